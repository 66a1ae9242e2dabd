# SPDX-License-Identifier: Apache-2.0
"""Plugins: both doors, and every way in which a plugin can be wrong without hurting another."""

import importlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pluggy
import pytest

from sysmond import probe
from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import Error
from sysmond.plan import hookspecs, plan, plugins
from sysmond.plan.plugins import Discovery, discover, load

GOOD = """
from sysmond.probe import Lane, Option, Probe, Sensitivity, Table, counter, gauge, hookimpl, state, text

TABLE = Table("{table}", (gauge("value", "1", "A value."),))

def read(host):
    yield "", (1,)

@hookimpl
def sysmond_probes():
    return [Probe(TABLE, read)]
"""

Write = Callable[[str, str], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "probes"
    path.mkdir()
    return path


@pytest.fixture
def write(folder: Path) -> Write:
    def write_file(name: str, text: str) -> str:
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
        return str(folder / name)

    return write_file


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path, for distributions that are installed like any other."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    before = set(sys.modules)
    yield path
    for name in set(sys.modules) - before:
        if not name.startswith(("sysmond", "_")):
            del sys.modules[name]


def install(site: Path, distribution: str, entry_points: str, **modules: str) -> None:
    meta = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text(f"[sysmond.probes]\n{entry_points}\n")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
    importlib.invalidate_caches()


def reasons(found: Discovery) -> dict[str, str]:
    return {os.path.basename(refusal.plugin): refusal.reason for refusal in found.refused}


def accepted(found: Discovery) -> set[str]:
    return {os.path.basename(plugin.name) for plugin in found.plugins if not plugin.is_ours}


def refusal_of(path: str) -> str:
    with pytest.raises(Error) as caught:
        load(path)
    return str(caught.value)


def test_our_own_mark_is_the_one_that_pluggy_looks_for() -> None:
    @pluggy.HookimplMarker("sysmond")
    def theirs() -> None: ...

    @probe.hookimpl
    def ours() -> None: ...

    options = ours.sysmond_impl  # type: ignore[attr-defined]
    assert options == theirs.sysmond_impl  # type: ignore[attr-defined]


def test_every_hook_is_specified_and_documented() -> None:
    registry = pluggy.PluginManager("sysmond")
    registry.add_hookspecs(hookspecs)
    specified = {name for name in dir(hookspecs) if registry.parse_hookspec_opts(hookspecs, name)}
    assert specified == set(plugins._HOOKS)
    assert all(getattr(hookspecs, name).__doc__ for name in specified)


def test_every_probe_of_our_own_comes_through_the_door() -> None:
    found = discover(None)
    ours = {plugin.name for plugin in found.plugins if plugin.is_ours}
    assert ours == set(plan._builtin_names()), "not an entry point in pyproject.toml, or not installed anew"
    assert [refusal for refusal in found.refused if refusal.plugin.startswith("sysmond_probes")] == []


def test_a_file_in_the_probe_folder_is_a_plugin(write: Write, folder: Path) -> None:
    path = write("mine.py", GOOD.format(table="mine"))
    write("note.txt", "no")
    write(".hidden.py", "raise RuntimeError")
    found = discover(str(folder))
    (mine,) = [plugin for plugin in found.plugins if not plugin.is_ours]
    assert (mine.name, mine.probes[0].table.name) == (path, "mine")
    assert found.refused == ()
    assert sorted(os.listdir(folder)) == [".hidden.py", "mine.py", "note.txt"]


def test_an_installed_distribution_is_a_plugin(site: Path) -> None:
    install(site, "acme-probes", "a = acme_one\nb = acme_pkg.two", acme_one=GOOD.format(table="acme"))
    (site / "acme_pkg").mkdir()
    (site / "acme_pkg/two.py").write_text(GOOD.format(table="acme_two"))
    found = discover(None)
    assert {plugin.name for plugin in found.plugins if not plugin.is_ours} == {"acme_one", "acme_pkg.two"}
    assert found.refused == ()


def test_a_plugin_may_use_pluggys_own_marker(write: Write) -> None:
    text = GOOD.format(table="mine").replace("hookimpl, ", "").replace("@hookimpl", "@pluggy.HookimplMarker('sysmond')")
    assert [each.table.name for each in load(write("mine.py", f"import pluggy\n{text}"))] == ["mine"]


def test_no_folder_and_no_probes_are_right(tmp_path: Path, write: Write) -> None:
    assert discover(str(tmp_path / "none")).refused == ()
    assert load(write("none.py", GOOD.format(table="t").replace("[Probe(TABLE, read)]", "[]"))) == ()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("TABLE =", "import nowhere\nTABLE =", "does not load: ModuleNotFoundError: No module named 'nowhere'"),
        ("def read(host)", "def read(host", "does not load: SyntaxError: "),
        ("TABLE =", "raise SystemExit(0)\nTABLE =", "does not load: SystemExit: 0"),
        ("return [", "raise KeyError('x')\n    return [", "does not load: KeyError: 'x'"),
        ("return [", "return 1 / 0\n    return [", "does not load: ZeroDivisionError: division by zero"),
        ("return [Probe(TABLE, read)]", "return None", "sysmond_probes returned None; expected a list of Probe"),
        (
            "return [Probe(TABLE, read)]",
            "return 5",
            "sysmond_probes returned a value of type int; expected a list of Probe",
        ),
        (
            "return [Probe(TABLE, read)]",
            "return [TABLE]",
            "returned a list with a value of type Table; expected a list of Probe",
        ),
        (
            "return [Probe(TABLE, read)]",
            "yield Probe(TABLE, read)",
            "sysmond_probes is a generator; expected a function that",
        ),
        ("[Probe(TABLE, read)]", "[Probe(TABLE, read)] * 2", "table 't': offered twice; expected each table once"),
        ("[Probe(TABLE, read)]", "[Probe(TABLE, read)] * 101", "returned 101 probes; expected at most 100"),
        (
            "def sysmond_probes()",
            "def sysmond_probe()",
            "sysmond_probe is not a hook of sysmond; did you mean sysmond_probes",
        ),
        ("@hookimpl\n", "", "has no function sysmond_probes marked with sysmond.probe.hookimpl"),
        ("sysmond_probes()", "sysmond_probes(host)", "a hook does not match its specification: "),
        ("Probe(TABLE, read)", "Probe(TABLE, 5)", "table 't': read is a value of type int; expected a function"),
        ("Probe(TABLE, read)", "Probe('t', read)", "a probe's table is a value of type str; expected a Table"),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, 'x')",
            "table 't': interval_s is a value of type str; expected a number",
        ),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, deadline_s=True)",
            "deadline_s is a value of type bool; expected a number",
        ),
        ("Probe(TABLE, read)", "Probe(TABLE, read, deadline_s=-1)", "deadline_s is -1; expected 0 to 600"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, options=[1])", "options is a value of type list; expected tuple"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, options=(1,))", "option is a value of type int; expected Option"),
        ("Probe(TABLE, read)", 'Probe(TABLE, read, options=(Option("x", 1, "X."),))', "does not take the options x"),
        ("Probe(TABLE, read)", 'Probe(TABLE, read, options=(Option("X", 1, "X."),))', "lower-case letters"),
        ("Probe(TABLE, read)", 'Probe(TABLE, read, options=(Option("x", 1, ""),))', "must be one line"),
        (
            "Probe(TABLE, read)",
            'Probe(TABLE, read, options=(Option("x", "", "X.", pattern="("),))',
            "is not a regular expression",
        ),
        (
            "Probe(TABLE, read)",
            'Probe(TABLE, read, options=(Option("x", "b", "X.", pattern="a"),))',
            "would not accept itself",
        ),
        (
            "Probe(TABLE, read)",
            'Probe(TABLE, read, options=(Option("x", 1, "X.", low=2),))',
            "default is a value of type int that it would not accept itself",
        ),
        (
            "Probe(TABLE, read)",
            'Probe(TABLE, read, options=(Option("x", 1, "X.", low="2"),))',
            "a bound is a value of type str; expected a number",
        ),
        ("Probe(TABLE, read)", "Probe(TABLE, read, 0)", "table 't': interval_s is 0; expected 0.01 to 86400"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, float('nan'))", "interval_s is nan; expected 0.01 to 86400"),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, 1.0, 'realtime')",
            "table 't': lane is a value of type str; expected Lane.REALTIME or Lane.BACKGROUND",
        ),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, sensitivity='public')",
            "sensitivity is a value of type str; expected Sensitivity.PUBLIC or Sensitivity.RESTRICTED",
        ),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, subsystems='block')",
            "subsystems is a value of type str; expected tuple",
        ),
        ("Probe(TABLE, read)", "Probe(TABLE, read, subsystems=(1,))", "subsystem is a value of type int; expected str"),
        ('gauge("value", ', 'gauge("time", ', "metric 'time': every row has a column of that name; expected another"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, costly_s=-1)", "costly_s is -1; expected 0 to 600"),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, on_battery_s=1e-9)",
            "on_battery_s is 1e-09; expected 0.01 to 86400",
        ),
        (
            "Probe(TABLE, read)",
            "Probe(TABLE, read, public_by_choice=1)",
            "public_by_choice is a value of type int; expected bool",
        ),
        ("Probe(TABLE, read)", "Probe(TABLE, read, needs='/sys')", "needs is a value of type str; expected tuple"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, needs=('sys',))", "need 'sys'; expected an absolute path"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, needs=('/a/**',))", "need '/a/**'; expected an absolute path"),
        ("Probe(TABLE, read)", "Probe(TABLE, read, needs=('/a',) * 17)", "17 needs; expected at most 16"),
        ('Table("t"', 'Table("T t"', "table 'T t': not a name; expected lower-case letters"),
        ('Table("t"', "Table(5", "table 5: name is a value of type int; expected str"),
        ('(gauge("value", "1", "A value."),)', "()", "table 't': 0 metrics; expected 1 to 512"),
        ('(gauge("value", "1", "A value."),)', '"ab"', "table 't': metrics is a value of type str; expected tuple"),
        ('(gauge("value", "1", "A value."),)', "(1,)", "table 't': metric is a value of type int; expected Metric"),
        ('"A value."', "5", "table 't', metric 'value': doc is a value of type int; expected str"),
        ('"A value."', '"A value.", True', "metric 'value': scale is a value of type bool; expected int"),
        ('"A value."', '"A value.", 10', "metric 'value': scale 10; expected 0 to 9"),
        ('gauge("value", "1"', 'gauge("value", ""', "metric 'value': no unit; expected '1'"),
        (
            "@hookimpl",
            "@hookimpl\ndef sysmond_api_version():\n    return 99\n\n@hookimpl",
            "written for API version 99; expected 1 or 2",
        ),
        ("TABLE =", "class E(Exception):\n    __str__ = None\nraise E\nTABLE =", "does not load: E: E"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said(write: Write, old: str, new: str, reason: str) -> None:
    text = GOOD.format(table="t")
    assert old in text
    assert reason in refusal_of(write("wrong.py", text.replace(old, new)))


def test_the_right_api_version_is_accepted(write: Write) -> None:
    version = "\n@hookimpl\ndef sysmond_api_version():\n    return 1\n"
    assert len(load(write("mine.py", GOOD.format(table="mine") + version))) == 1


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(60)"])
def test_a_plugin_that_hangs_is_left(write: Write, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(plugins, "LOAD_TIME_MAX_S", 0.05)
    stubborn = f"try:\n    {body}\nexcept Exception:\n    pass\n"
    assert refusal_of(write("hangs.py", stubborn)) == "hangs while loading: not done after 0.05 s"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("import os; os._exit(0)", "ends its process while loading: exit code 0"),
        ("import os; os._exit(3)", "ends its process while loading: exit code 3"),
        ("import faulthandler, os; faulthandler.disable(); os.abort()", "ends its process while loading: SIGABRT"),
        (
            "import ctypes, faulthandler; faulthandler.disable(); ctypes.string_at(0)",
            "ends its process while loading: SIGSEGV",
        ),
        ("import os; os.closerange(3, 1000)", "ends its process while loading: exit code 0"),
        ("import os, time; os.closerange(3, 1000); time.sleep(60)", "hangs while loading: not done after 0.3 s"),
        ("import signal; signal.pthread_sigmask(0, [14])\nwhile True: pass", "hangs while loading: not done after"),
        ("import sys; sys.modules['sysmond.probe'] = None", "does not load: "),
    ],
)
def test_a_plugin_that_wrecks_its_process_costs_only_itself(
    write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, reason: str
) -> None:
    monkeypatch.setattr(plugins, "LOAD_TIME_MAX_S", 0.3)
    monkeypatch.setattr(plugins, "KILL_AFTER_S", 0.2)
    write("wreck.py", f"{body}\n{GOOD.format(table='wreck')}")
    write("zfine.py", GOOD.format(table="zfine"))
    found = discover(str(folder))
    assert accepted(found) == {"zfine.py"}
    assert reasons(found)["wreck.py"].startswith(reason)
    assert all(plugin.is_ours or plugin.probes[0].table.name == "zfine" for plugin in found.plugins)


def test_when_loading_takes_too_long_in_all_the_rest_is_refused(
    write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "LOAD_TIME_MAX_S", 0.1)
    write("a.py", "import time; time.sleep(60)")
    write("b.py", GOOD.format(table="b"))
    assert accepted(discover(str(folder))) == {"b.py"}
    monkeypatch.setattr(plugins, "LOAD_ALL_MAX_S", 0.05)
    monkeypatch.setattr(plugins, "_entry_points", lambda refused: [])
    found = discover(str(folder))
    assert accepted(found) == set()
    assert reasons(found) == {
        "a.py": "hangs while loading: not done after 0.1 s",
        "b.py": "not loaded: those before it took longer than 0.05 s",
    }


def test_the_rest_go_on(write: Write, folder: Path, site: Path) -> None:
    install(site, "acme", "x = acme_bad\ny = acme_good", acme_bad="1/0", acme_good=GOOD.format(table="good"))
    write("bad.py", "raise OSError('x\\ny')")
    write("fine.py", GOOD.format(table="fine"))
    found = discover(str(folder))
    assert accepted(found) == {"acme_good", "fine.py"}
    assert reasons(found) == {
        "acme_bad": "does not load: ZeroDivisionError: division by zero",
        "bad.py": "does not load: OSError: x y",
    }


def test_colliding_tables_are_refused_to_the_stranger(write: Write, folder: Path) -> None:
    write("a.py", GOOD.format(table="mine"))
    write("b.py", GOOD.format(table="mine"))
    write("c.py", GOOD.format(table="cpu"))
    write("d.py", GOOD.format(table="event"))
    found = discover(str(folder))
    assert accepted(found) == {"a.py"}
    assert reasons(found) == {
        "b.py": f"table 'mine': already offered by {folder}/a.py; expected another name",
        "c.py": "table 'cpu': already offered by sysmond_probes.cpu; expected another name",
        "d.py": "table 'event': already offered by all parts; expected another name",
    }


def test_an_entry_point_must_name_a_module(site: Path) -> None:
    install(site, "acme", "x = acme:thing\n", acme=GOOD.format(table="acme"))
    assert discover(None).refused == (
        plan.Refusal("acme:thing", "entry point 'x' of acme is 'acme:thing'; expected the name of a module"),
    )


def test_damaged_metadata_hides_nobody_else(site: Path) -> None:
    install(site, "good", "x = good_one", good_one=GOOD.format(table="good"))
    install(site, "bad", "no equals sign")
    found = discover(None)
    assert accepted(found) == {"good_one"}
    assert any(plugin.is_ours for plugin in found.plugins)
    (refusal,) = found.refused
    assert refusal.plugin.endswith("bad-1.0.dist-info")
    assert refusal.reason.startswith("damaged metadata: ")


def test_an_older_installation_further_down_the_path_is_not_seen(site: Path, tmp_path: Path) -> None:
    install(site, "acme", "x = acme_new", acme_new=GOOD.format(table="new"))
    older = tmp_path / "older"
    older.mkdir()
    sys.path.append(str(older))
    try:
        install(older, "Acme", "x = acme_old", acme_old=GOOD.format(table="old"))
        assert accepted(discover(None)) == {"acme_new"}
    finally:
        sys.path.remove(str(older))


def test_code_that_others_could_have_written_is_refused(write: Write, folder: Path) -> None:
    for name, mode in (("all.py", 0o646), ("fine.py", 0o644)):
        os.chmod(write(name, GOOD.format(table=name[:-3])), mode)
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    found = discover(str(folder))
    assert accepted(found) == {"fine.py"}
    assert reasons(found)["all.py"] == "mode 0646 lets others write; expected that only root may"
    assert reasons(found)["pipe.py"] == "is not a regular file"
    assert "folder.py" in reasons(found)
    folder.chmod(0o777)
    found = discover(str(folder))
    assert accepted(found) == set()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o777
    assert reasons(found) == {"probes": "mode 0777 lets others write; expected that only root may"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_code_of_another_user_or_group_is_refused(write: Write, folder: Path) -> None:
    os.chown(write("other.py", GOOD.format(table="other")), 65534, 65534)
    os.chown(write("group.py", GOOD.format(table="group")), 0, 65534)
    os.chmod(folder / "group.py", 0o664)
    os.chmod(write("own_group.py", GOOD.format(table="own_group")), 0o664)
    found = discover(str(folder))
    assert accepted(found) == {"own_group.py"}
    assert reasons(found)["other.py"] == "belongs to uid 65534; expected root"
    assert reasons(found)["group.py"].startswith("mode 0664 lets others write")


def test_too_many_plugins_are_bounded(write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = len(discover(None).plugins)
    monkeypatch.setattr(plugins, "PLUGINS_MAX", ours + 1)
    for name in ("a", "b", "c"):
        write(f"{name}.py", GOOD.format(table=f"mine_{name}"))
    found = discover(str(folder))
    assert accepted(found) == {"a.py"}
    assert set(reasons(found)) == {"b.py", "c.py"}


def test_a_reason_is_short(write: Write, folder: Path) -> None:
    write("bad.py", "raise RuntimeError('x' * 10_000)")
    assert len(reasons(discover(str(folder)))["bad.py"]) == plugins.REASON_LENGTH_MAX


def test_what_a_plugin_prints_is_kept_from_standard_output(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    load(write("mine.py", "print('hello')\n" + GOOD.format(table="mine")))
    assert capsys.readouterr() == ("", "hello\n")


def test_a_declaration_comes_whole_out_of_the_child(write: Write, folder: Path) -> None:
    text = GOOD.format(table="t").replace(
        "Probe(TABLE, read)",
        "Probe(TABLE, lambda host, depth, w: (), 5, Lane.BACKGROUND, Sensitivity.RESTRICTED, ('block',), True, 2.5,"
        " (Option('depth', 3, 'How deep \u00e9.', 1, 5), Option('w', 'a', 'W.', choices=('a',), pattern='a+')),"
        " needs=('/sys/block/md*',))",
    )
    path = write("mine.py", text)
    (here,), (there,) = load(path), plugins.load_apart(path)
    assert there._replace(read=here.read) == here
    assert type(there.lane) is Lane
    with pytest.raises(Error, match="loaded in another process"):
        list(there.read(None))


def test_the_declaration_is_kept_whole(write: Write) -> None:
    text = GOOD.format(table="t").replace(
        "Probe(TABLE, read)",
        "Probe(TABLE, read, 5, Lane.BACKGROUND, Sensitivity.RESTRICTED, ('block',), True, needs=('/x',),"
        " public_by_choice=True, privilege='CAP_X')",
    )
    (offered,) = load(write("mine.py", text))
    assert offered[2:] == (
        5,
        Lane.BACKGROUND,
        Sensitivity.RESTRICTED,
        ("block",),
        True,
        0.0,
        (),
        True,
        None,
        ("/x",),
        0,
        0,
        True,
        "CAP_X",
        (),
        (),
    )
