# SPDX-License-Identifier: Apache-2.0
"""Manual pages are whole, and the shells complete what the programs know."""

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.generate import PROGRAMS, parser_of
from docs.manuals import COMPLETIONS, files, main
from sysmond.machine.commandline import subparsers

HANG_S = 60.0
# What bash does when somebody presses the key twice after these words.
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    assert main(folder) == 0
    return folder


@pytest.mark.parametrize(("program", "module"), PROGRAMS)
def test_a_manual_page_has_every_option_and_command(program: str, module: str) -> None:
    parser = parser_of(module)
    page = files(program, parser)[f"man/man1/{program}.1"].replace("\\-", "-")
    for name, command in [("", parser), *subparsers(parser)]:
        assert name in page
        for option in options(command):
            assert option in page, f"{program} {name}"


def options(parser: argparse.ArgumentParser) -> list[str]:
    shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    return [option for action in shown for option in action.option_strings if option not in {"-h", "--help"}]


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
@pytest.mark.parametrize("program", [program for program, _ in PROGRAMS])
def test_a_manual_page_is_set_without_a_warning(share: Path, program: str) -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", str(share / "man" / "man1" / f"{program}.1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    complaints = [line for line in done.stderr.splitlines() if "cannot adjust line" not in line and "break" not in line]
    assert (done.returncode, complaints) == (0, [])


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sysmonctl", "sta"), "status"),
        (("sysmonctl", "list", "pro"), "probes"),
        (("sysmonctl", "events", "--fol"), "--follow"),
        (("sysmond", "self"), "selftest"),
        (("sysmon-extract", "--sam"), "--sample"),
    ],
)
def test_bash_completes(share: Path, words: tuple[str, ...], offered: str) -> None:
    script = share / COMPLETIONS["bash"].format(words[0])
    command = ["bash", "-c", COMPLETE, "bash", str(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert offered in done.stdout.split(), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize("program", [program for program, _ in PROGRAMS])
def test_other_shells_can_read_their_completion(share: Path, shell: str, program: str) -> None:
    script = share / COMPLETIONS[shell].format(program)
    assert program in script.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: its completion is written, and not tried")
    subprocess.run([shell, "-n", str(script)], check=True, timeout=HANG_S)


def test_what_lies_beside_the_programs_is_installed_where_others_look_for_it(repository: Path, tmp_path: Path) -> None:
    there = tmp_path / "etc" / "sysmond" / "sysmond.yaml"
    there.parent.mkdir(parents=True)
    there.write_text("# Mine.\n")
    command = ["make", "--no-print-directory", "install-files", f"DESTDIR={tmp_path}"]
    subprocess.run(command, cwd=repository, check=True, capture_output=True, timeout=HANG_S)
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        "usr/share/dbus-1/interfaces/org.sysmond.SystemMonitor1.Manager.xml",
        "usr/share/dbus-1/system.d/org.sysmond.SystemMonitor1.conf",
        "usr/share/polkit-1/actions/org.sysmond.SystemMonitor1.policy",
        "usr/share/sysmond/sysmond.schema.json",
        "usr/share/man/man1/sysmonctl.1",
        "usr/share/bash-completion/completions/sysmonctl",
    } <= installed
    assert there.read_text() == "# Mine.\n"
    units = [path for path in (repository / "etc/systemd").rglob("*") if path.is_file()]
    assert len(units) > 10
    for unit in units:
        name = f"usr/lib/systemd/{unit.relative_to(repository / 'etc/systemd')}"
        assert name in installed
        text = (tmp_path / name).read_text()
        assert "@PYTHON@" not in text, name
        assert "@BINDIR@" not in text, name
    packaged = (repository / "debian/sysmond.install").read_text().split()
    assert {"usr/lib/systemd", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "usr/share"} <= set(packaged)
