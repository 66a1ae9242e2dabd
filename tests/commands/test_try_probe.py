# SPDX-License-Identifier: Apache-2.0
"""sysmond probe: what an author sees of a probe, right or wrong."""

from pathlib import Path

import pytest
from sysmond_probes import load

from sysmond.__main__ import main
from sysmond.errors import Error, NotPermittedError, UsageError

PROBE = """
from sysmond.probe import ABSENT, Absence, Cause, Host, Probe, Table, gauge, hookimpl, text

TABLE = Table("tried", (gauge("heat", "°C", "Heat.", scale=3), text("kind", "What it is.")), per="thing", doc="Things.")


def read(host):
    {body}


@hookimpl
def sysmond_probes():
    return [Probe(TABLE, read)]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tried.py"


def tried(file: Path, body: str, *words: str) -> int:
    file.write_text(PROBE.replace("{body}", body))
    return main(["probe", str(file), *words])


def test_its_rows_are_shown_with_units_and_what_they_cost(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = 'yield "a\\x1b[2J", (-23125, "hot")\n    yield "b", (ABSENT, ABSENT)\n    yield "c", Absence(Cause.ASLEEP)'
    assert tried(file, body) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:8] == [
        "tried: every 1 s in the realtime lane, public: Things.",
        "a\\x1b[2J",
        "  heat  -23.125 °C",
        "  kind  hot",
        "b",
        "  heat  –",
        "  kind  –",
        "c: asleep",
    ]
    assert lines[8] == "3 rows"
    assert lines[9].startswith("read twice: in ")


def test_it_reads_another_machine(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "machine/proc").mkdir(parents=True)
    (tmp_path / "machine/proc/heat").write_text("12\n")
    assert tried(file, 'yield "", (host.integer("/proc/heat"), "x")', "--root", str(tmp_path / "machine")) == 0
    assert "  heat  0.012 °C" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            'yield "a", (23.125, "x")',
            "tried.py:7: row 'a', metric 'heat': 23.125; expected an integer of 64 bits",
        ),
        ('yield "a", (True, "x")', "metric 'heat': True; expected"),
        ('yield "a", (2**63, "x")', "expected an integer of 64 bits"),
        ('yield "a", (1, 2)', "metric 'kind': 2; expected a text, or ABSENT"),
        ('yield "a", (1,)', "row 'a': 1 values; expected 2: heat, kind"),
        ('yield "a", (1, "x")\n    yield "a", (1, "x")', "row 'a': given twice"),
        ('yield "a", (1)', "tried.py:7: row 'a': 1 came for its values; expected a tuple of 2: heat, kind"),
        ("yield 5", "a row is 5; expected the name of an instance and its values"),
        (
            'yield "a", (int("x"), "x")',
            "tried.py:8: ValueError: invalid literal for int() with base 10: 'x'",
        ),
        ('host.read("/proc/none")\n    yield "", (1, "x")', "readers would see a gap: no source"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(
    file: Path, capsys: pytest.CaptureFixture[str], body: str, said: str
) -> None:
    assert tried(file, body) == Error.exit_code
    printed = capsys.readouterr()
    assert said in printed.err
    assert str(file) in printed.err
    assert printed.err.count("\n") == 1


def test_options_have_their_defaults(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROBE.replace("def read(host):", "def read(host, *, warm):").replace("gauge,", "Option, gauge,")
    option = 'options=(Option("warm", 7, "How warm."),)'
    file.write_text(
        text.replace("Probe(TABLE, read)", f"Probe(TABLE, read, {option})").replace("{body}", 'yield "", (warm, "x")')
    )
    assert main(["probe", str(file)]) == 0
    assert "  heat  0.007 °C" in capsys.readouterr().out


def test_what_may_not_be_read_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tried(file, "raise PermissionError(13, 'no')\n    yield") == NotPermittedError.exit_code
    assert "no permission" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "said"),
    [("dsik", "there is no probe 'dsik'; did you mean disk"), ("none.py", "none.py: no such file")],
)
def test_what_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str], word: str, said: str) -> None:
    assert main(["probe", word]) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_a_file_that_the_resolver_would_refuse_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("import nothing_of_that_name\n")
    assert main(["probe", str(file)]) == Error.exit_code
    assert f"{file}: does not load: ModuleNotFoundError" in capsys.readouterr().err
    file.write_text("")
    assert main(["probe", str(file)]) == UsageError.exit_code
    assert "has no function sysmond_probes" in capsys.readouterr().err


def test_a_table_named_like_one_of_ours_is_refused_but_not_ours(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, owner in (("load", "sysmond_probes.load"), ("event", "all parts")):
        file.write_text(PROBE.replace('"tried"', f'"{name}"').replace("{body}", 'yield "", (1, "x")'))
        assert main(["probe", str(file)]) == UsageError.exit_code
        said = f"{file}: table {name!r}: already offered by {owner}; expected another name"
        assert capsys.readouterr().err == f"sysmond: {said}\n"
    assert main(["probe", str(load.__file__)]) == 0


@pytest.mark.parametrize("name", ["load", "cpu", "process"])
def test_what_comes_with_sysmond_is_named_by_its_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}: every 1 s in the realtime lane, public")
    assert "read twice" in shown
