# SPDX-License-Identifier: Apache-2.0
"""Shells complete names that only the running recorder knows: each shell itself is asked, with a recorder that runs."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from docs.manuals import COMPLETIONS, main
from tests.support.waiting import HANG_S, wait_until

OFFER = [sys.executable, "-P", "-m", "sysmon_tools.ctl", "complete", "--user"]


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    assert main(folder) == 0
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """That of a user whose recorder runs."""
    folder = tmp_path_factory.mktemp("user")
    runtime = Path("/dev/shm", f"complete-{os.getpid()}")
    runtime.mkdir(mode=0o700)
    paths = {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    there = {**os.environ, **paths, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "dumb"}
    command = [sys.executable, "-P", "-m", "sysmond", "--user"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=there, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as user:
        try:
            wait_until(lambda: "cpu/user@total" in offered(there, "paths", "cpu/user@"))
            yield there
        finally:
            user.send_signal(signal.SIGTERM)
            user.wait(HANG_S)
            shutil.rmtree(runtime)


def offered(environment: Mapping[str, str], *words: str) -> list[str]:
    done = subprocess.run(
        [*OFFER, *words], env=environment, capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("probes", "cp"), {"cpu", "cpu_idle"}),
        (("probes", "gps"), {"gps"}),  # It is disabled: it can be enabled.
        (("paths", "memo"), {"memory", "memory/available", "memory/total"}),
        (("paths", "cpu/us"), {"cpu/user", "cpu/user@total"}),
        (("paths", "cpu/user@to"), {"cpu/user@total"}),
        (("paths", "cpu@to"), {"cpu@total"}),
        (("paths", "process/voluntary"), {"process/voluntary_switches"}),
    ],
)
def test_what_begins_with_the_word_is_offered(
    environment: Mapping[str, str], words: tuple[str, str], some: set[str]
) -> None:
    there = offered(environment, *words)
    assert some <= set(there)
    assert all(name.startswith(words[1]) for name in there)
    assert "gps" not in offered(environment, "paths", "gp")


def test_where_nobody_records_nothing_is_offered_and_nothing_said(tmp_path: Path) -> None:
    nowhere = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    for words in (("probes", ""), ("paths", ""), ("paths", "cpu/user@")):
        assert offered(nowhere, *words) == []
    (tmp_path / "sysmond").mkdir(mode=0o700)
    for content in ("{", '{"probes": 3}', '{"probes": [{"table": "x"}]}', '{"probes": [3]}'):
        (tmp_path / "sysmond/plan.json").write_text(content)
        assert offered(nowhere, "paths", "") == []


def test_nothing_is_imported_that_takes_long(environment: Mapping[str, str]) -> None:
    script = (
        "import sys; from sysmon_tools.ctl import main; main(sys.argv[1:]); "
        "print(sorted({'numpy', 'h5py', 'asyncio', 'dbus_fast', 'rich', 'yaml'} & set(sys.modules)))"
    )
    command = [sys.executable, "-P", "-c", script, "complete", "--user", "paths", "cpu/user@"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=HANG_S)
    *names, imported = done.stdout.splitlines()
    assert "cpu/user@total" in names
    assert imported == "[]"


def typed(shell: list[str], environment: Mapping[str, str], setting_up: str, line: str, wanted: str) -> str:
    """What is on the terminal of an interactive shell after a line and the key that completes."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(shell[0], shell, dict(environment))  # noqa: S606  it is a shell
    shown = ""
    try:

        def wait_for(text: str) -> bool:
            nonlocal shown
            until_s = time.monotonic() + HANG_S
            while text not in shown and time.monotonic() < until_s:
                if select.select([terminal], [], [], 0.2)[0]:
                    for sign in os.read(terminal, 65536).decode(errors="replace"):
                        shown = shown[:-1] if sign == "\b" else shown + sign
            return text in shown

        # A prompt comes from an editor that reads keys; what is typed before that is a line like any other.
        os.write(terminal, f"{setting_up}; PS1='re''ady> '\n".encode())
        assert wait_for("ready> "), shown
        shown = ""
        os.write(terminal, f"{line}\t".encode())
        assert wait_for(wanted), shown
        return shown
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


LINES = [
    ("sysmonctl --user enable probe conntr", "conntrack"),
    ("sysmonctl --user watch memory/avail", "memory/available"),
    ("sysmonctl --user watch load cpu/user@tot", "cpu/user@total"),
    ("sysmon-extract --user cpu/user@tot", "cpu/user@total"),
]


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_bash_completes_what_is_recorded(share: Path, environment: Mapping[str, str], line: str, wanted: str) -> None:
    scripts = "; ".join(
        f"source {share / COMPLETIONS['bash'].format(name)}" for name in ("sysmonctl", "sysmon-extract")
    )
    shell = ["bash", "--norc", "--noprofile", "-i"]
    typed(shell, environment, scripts, line, f"{line.rpartition(' ')[0]} {wanted} ")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here: its completion is written, and not tried")
@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_zsh_completes_what_is_recorded(share: Path, environment: Mapping[str, str], line: str, wanted: str) -> None:
    folder = (share / COMPLETIONS["zsh"].format("sysmonctl")).parent
    setting_up = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D"
    typed(["zsh", "-f", "-i"], environment, setting_up, line, wanted)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here: its completion is written, and not tried")
@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_fish_completes_what_is_recorded(share: Path, environment: Mapping[str, str], line: str, wanted: str) -> None:
    script = share / COMPLETIONS["fish"].format(line.partition(" ")[0])
    command = ["fish", "--no-config", "-c", f"source {script}; complete --do-complete '{line}'"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=HANG_S)
    assert wanted in [row.partition("\t")[0] for row in done.stdout.splitlines()], done.stdout + done.stderr
