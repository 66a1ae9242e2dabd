# SPDX-License-Identifier: Apache-2.0
"""The resolver: what the configuration may ask of a probe, and the program that writes the plan."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.base.model import Lane, Sensitivity
from sysmond.errors import ConfigError, CorruptError, Error, UsageError
from sysmond.machine import folders, lacking
from sysmond.plan import catalogue, config, plan, plugins, resolver, written_settings
from sysmond.plan.config import Config
from sysmond.plan.plan import Plan, PlannedProbe, Refusal
from sysmond.plan.plugins import Discovery, Plugin
from sysmond.plan.resolver import resolve
from sysmond.plan.settings import Settings, resolver_command
from sysmond.probe import Host, Option, Probe, Row, Table, gauge


def read_nothing(_host: Host) -> Iterable[Row]:
    return []


def offer(
    table: str, lane: Lane = Lane.REALTIME, sensitivity: Sensitivity = Sensitivity.PUBLIC, interval_s: float = 1
) -> Probe:
    return Probe(Table(table, (gauge("value", "1", "A value."),)), read_nothing, interval_s, lane, sensitivity)


OURS = Plugin(
    "sysmond_probes.some",
    True,
    (
        offer("cpu"),
        offer("filesystem", lane=Lane.BACKGROUND, interval_s=10),
        offer("input", sensitivity=Sensitivity.RESTRICTED),
    ),
)
THEIRS = Plugin("/etc/sysmond/probes/mine.py", False, (offer("mine", interval_s=0.01),))
ALL = Discovery((OURS, THEIRS), ())


def configured(text: str) -> Config:
    return config._typed(config.parse(text.encode(), "f.yaml"))


def test_what_is_read_very_often_is_remarked_upon_unless_it_is_off() -> None:
    def remarks(said: str) -> list[str]:
        return plan.remarks(resolve(configured(f"probes: {{cpu: {{{said}}}}}"), ALL))

    assert remarks("interval: 100ms") == []
    assert remarks("interval: 10ms, enabled: false") == []
    (said,) = remarks("interval: 25ms")
    assert said.startswith("probes.cpu.interval: 25ms is 40 readings a second; ")


def planned(text: str, discovery: Discovery = ALL) -> dict[str, PlannedProbe]:
    return {probe.table: probe for probe in resolve(configured(text), discovery).probes}


def complaint(text: str, discovery: Discovery = ALL) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(configured(text), discovery)
    return str(caught.value)


def test_without_configuration_ours_run_as_declared_and_strangers_begin_apart() -> None:
    background, realtime = Lane.BACKGROUND, Lane.REALTIME
    public, restricted = Sensitivity.PUBLIC, Sensitivity.RESTRICTED
    assert resolve(Config(), ALL) == Plan(
        (
            PlannedProbe("cpu", OURS.name, realtime, 1_000_000_000, public),
            PlannedProbe("filesystem", OURS.name, background, 10_000_000_000, public),
            PlannedProbe("input", OURS.name, realtime, 1_000_000_000, restricted),
            PlannedProbe("mine", THEIRS.name, background, 1_000_000_000, restricted),  # No oftener there.,
        )
    )


def test_a_probe_may_be_off_until_somebody_wants_it() -> None:
    discovery = Discovery((OURS._replace(probes=(offer("cpu"), offer("cgroup")._replace(enabled=False))),), ())
    assert not planned("", discovery)["cgroup"].enabled
    assert not planned("probes: {cgroup: {interval: 5s}}", discovery)["cgroup"].enabled
    assert planned("probes: {cgroup: {enabled: true}}", discovery)["cgroup"].enabled


def test_an_option_may_enable_a_table_of_which_nothing_else_is_said() -> None:
    more = Option("more", default=False, doc="More.", enables="thread")
    both = offer("process")._replace(options=(more,)), offer("thread")._replace(enabled=False)
    discovery = Discovery((OURS._replace(probes=both),), ())
    for text, right in (
        ("", False),
        ("probes: {process: {options: {more: true}}}", True),
        ("probes: {process: {options: {more: false}}}", False),
        ("probes: {process: {enabled: false, options: {more: true}}}", False),
        ("probes: {process: {options: {more: true}}, thread: {enabled: false}}", False),
        ("probes: {process: {options: {more: true}}, thread: {interval: 5s}}", True),
        ("probes: {thread: {enabled: true}}", True),
    ):
        assert planned(text, discovery)["thread"].enabled is right, text


def test_a_probe_is_switched_off() -> None:
    found = planned("probes: {cpu: {enabled: false}, mine: {enabled: true}}")
    assert {table for table, probe in found.items() if probe.enabled} == {"filesystem", "input", "mine"}
    assert set(found) == {"cpu", "filesystem", "input", "mine"}  # It can still be named.


def test_interval_lane_and_sensitivity_are_set() -> None:
    found = planned("probes: {cpu: {interval: 3s, lane: background, sensitivity: restricted}}")["cpu"]
    assert found[2:5] == (Lane.BACKGROUND, 3_000_000_000, Sensitivity.RESTRICTED)


def test_a_probe_that_is_public_by_choice_is_restricted_until_somebody_chooses() -> None:
    discovery = Discovery((OURS._replace(probes=(offer("idle")._replace(public_by_choice=True),)),), ())
    assert planned("", discovery)["idle"].sensitivity is Sensitivity.RESTRICTED
    assert planned("probes: {idle: {interval: 5s}}", discovery)["idle"].sensitivity is Sensitivity.RESTRICTED
    assert planned("probes: {idle: {sensitivity: public}}", discovery)["idle"].sensitivity is Sensitivity.PUBLIC


def test_an_interval_too_short_for_its_lane_names_the_smallest_that_works() -> None:
    assert planned("probes: {cpu: {interval: 10ms}}")["cpu"].interval_ns == 10_000_000
    for text, lane, least in (
        ("{filesystem: {interval: 999ms}}", "background", "1s"),
        ("{cpu: {interval: 999ms, lane: background}}", "background", "1s"),
        ("{mine: {interval: 999ms}}", "background", "1s"),
    ):
        assert complaint(f"probes: {text}").endswith(
            f".interval: '999ms' is too short for the {lane} lane; {least} is the smallest that works"
        )


def test_a_stranger_may_be_given_back_what_it_declares() -> None:
    found = planned("probes: {mine: {lane: realtime, sensitivity: public}}")["mine"]
    assert found[2:5] == (Lane.REALTIME, 10_000_000, Sensitivity.PUBLIC)


def test_nothing_becomes_laxer_than_it_declares() -> None:
    assert complaint("probes:\n  filesystem:\n    lane: realtime\n") == (
        "f.yaml:3: probes.filesystem.lane: realtime; expected background, as the probe declares"
    )
    assert complaint("probes: {input: {sensitivity: public}}") == (
        "f.yaml:1: probes.input.sensitivity: public; expected restricted, as the probe declares"
    )


@pytest.mark.parametrize("lane", ["realtime", "background"])
def test_what_declares_a_part_of_its_own_stays_there_where_it_is_ours(lane: str) -> None:
    probe, text = offer("disks", Lane.ONESHOT), f"probes: {{disks: {{lane: {lane}}}}}"
    ours = Discovery((Plugin("sysmond_probes.disks", True, (probe,)),), ())
    assert planned("", ours)["disks"][2:4] == (Lane.ONESHOT, 300_000_000_000)  # No oftener there.
    assert complaint(text, ours).endswith(f"lane: {lane}; expected oneshot, as the probe declares")
    theirs = Discovery((THEIRS._replace(probes=(probe,)),), ())
    assert planned("", theirs)["disks"].lane is Lane.BACKGROUND
    assert complaint("probes: {disks: {lane: oneshot}}").endswith("expected realtime or background")


OPTED = Plugin(
    "sysmond_probes.opted",
    True,
    (
        offer("opted")._replace(
            subsystems=("block",),
            options=(
                Option("threads", default=False, doc="Whether."),
                Option("depth", 3, "How deep.", 1, 5),
                Option("ratio", 0.5, "How much."),
                Option("sort", "cpu", "By what.", choices=("cpu", "memory")),
            ),
        ),
    ),
)
OPTIONS = Discovery((*ALL.plugins, OPTED), ())


def test_options_are_read_as_the_probe_declares_them() -> None:
    assert planned("", OPTIONS)["opted"].options == {"threads": False, "depth": 3, "ratio": 0.5, "sort": "cpu"}
    found = planned("probes: {opted: {options: {threads: yes, depth: 5, ratio: 2, sort: memory}}}", OPTIONS)["opted"]
    assert found.options == {"threads": True, "depth": 5, "ratio": 2.0, "sort": "memory"}
    assert planned("")["cpu"].options == {}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("threads: maybe", "threads: 'maybe' is wrong; expected true or false"),
        ("depth: 6", "depth: '6' is wrong; expected a whole number from 1 to 5"),
        ("depth: 2.5", "depth: '2.5' is wrong; expected a whole number from 1 to 5"),
        ("ratio: much", "ratio: 'much' is wrong; expected a number"),
        ("sort: name", "sort: 'name' is wrong; expected cpu or memory"),
        ("thread: true", "thread: no such option; did you mean threads?"),
        ("zzz: 1", "zzz: no such option; expected threads, depth, ratio, sort"),
    ],
)
def test_a_wrong_option_names_what_would_be_right(option: str, message: str) -> None:
    text = f"probes:\n  opted:\n    options:\n      {option}\n"
    assert complaint(text, OPTIONS) == f"f.yaml:4: probes.opted.options.{message}"


def test_the_catalogue_has_what_is_declared_what_is_planned_and_who_said_so() -> None:
    configuration = configured("sampler: {priority: 0}\nprobes: {opted: {interval: 2s, options: {depth: 4}}}")
    refused = OPTIONS._replace(refused=(Refusal("acme", "does not load"),))
    made = catalogue.decode(
        catalogue.encode(resolver.describe(configuration, refused, resolve(configuration, refused)))
    )
    assert set(made.tables) == {"cpu", "filesystem", "input", "mine", "opted"}
    assert made.refused == refused.refused
    opted, mine = made.tables["opted"], made.tables["mine"]
    assert (opted.table, opted.planned.subsystems, opted.options) == (
        OPTED.probes[0].table,
        OPTED.probes[0].subsystems,
        OPTED.probes[0].options,
    )
    assert (opted.planned.interval_ns, opted.declared.interval_ns) == (2_000_000_000, 1_000_000_000)
    assert opted.planned.options["depth"] == 4
    assert (mine.is_ours, mine.planned.lane, mine.declared.lane) == (False, Lane.BACKGROUND, Lane.REALTIME)
    settings = {setting.key: setting[1:] for setting in made.settings}
    assert settings["sampler.priority"] == ("0", "f.yaml", 1)
    assert settings["sampler.ring_size"] == ("16MiB", None, 0)
    assert settings["probes.opted.interval"] == ("2s", "f.yaml", 2)
    assert settings["probes.opted.options.depth"] == ("4", "f.yaml", 2)
    assert settings["probes.opted.options.threads"] == ("false", None, 0)
    assert settings["probes.filesystem.interval"] == ("10s", None, 0)
    assert settings["probes.mine.lane"] == ("background", None, 0)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "tables": {"a": 1}}'])
def test_what_is_no_catalogue_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptError, match="^catalogue: "):
        catalogue.decode(content)


def test_settings_reach_the_plan() -> None:
    made = resolve(configured("sampler: {priority: 0}\narchive: {ram_size: 1MiB}"), ALL)
    assert (made.sampler.priority, made.archiver.ram_bytes) == (0, 2**20)


def test_pins_that_cannot_hold_a_file_name_the_smallest_budget_that_works() -> None:
    right = "is less than a file of tiers.1s; 16777216B is the smallest that works, 0B for none"
    assert complaint("tiers:\n  pins:\n    size: 6249999B") == f"f.yaml:3: tiers.pins.size: '6249999B' {right}"
    for tiers in ("{pins: {size: 16777216B}}", "{pins: {size: 0B}}", "{1s: {size: 512KiB}, pins: {size: 64KiB}}"):
        assert resolve(configured(f"tiers: {tiers}"), ALL)
    assert "16777216B is the smallest" in complaint("tiers: {1s: {size: 1GiB}, pins: {size: 16MB}}")


def test_an_unknown_probe_is_named_with_its_nearest() -> None:
    assert complaint("probes:\n  cpus:\n") == "f.yaml:2: probes.cpus: no such probe; did you mean cpu?"
    assert complaint('probes: {"a\\nb": {}}') == "f.yaml:1: probes.'a\\nb': no such probe"


def test_an_unknown_probe_may_belong_to_a_refused_plugin() -> None:
    broken = Refusal("acme", "does not load")
    made = resolve(configured("probes: {gpu: {interval: 2s}}"), ALL._replace(refused=(broken,)))
    assert made.refused == (
        broken,
        Refusal("probes.gpu", "f.yaml:1: probes.gpu: no such probe; did you mean cpu? (or its plugin is refused)"),
    )


def test_without_any_plugin_there_is_no_plan() -> None:
    with pytest.raises(Error, match="no plugin to run: sysmond is not installed for this Python"):
        resolve(Config(), Discovery((), ()))
    with pytest.raises(Error, match="no plugin to run: acme: does not load"):
        resolve(Config(), Discovery((), (Refusal("acme", "does not load"),)))


def test_the_built_in_plan_is_what_the_resolver_makes_of_the_public_probes(tmp_path: Path) -> None:
    where = config.ConfigFiles((os.devnull,), "")
    made = resolver.make(where, str(tmp_path)).plan
    public = [probe for probe in made.probes if probe.sensitivity is Sensitivity.PUBLIC]
    assert public == sorted(plan.builtin().probes, key=lambda probe: probe.table)


def test_the_installed_file_gives_the_default_plan(tmp_path: Path, repository: Path) -> None:
    files = (os.devnull, str(repository / "etc/sysmond.yaml"))
    plans = [resolver.make(config.ConfigFiles((file,), ""), str(tmp_path)).plan for file in files]
    assert plans[0] == plans[1]


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    program = [sys.executable, "-I", "-m", "sysmond.plan.resolver", *arguments]
    return subprocess.run(program, env=environ, cwd=home, capture_output=True, text=True, check=False, timeout=60)


PROBE = """
import threading, time
from sysmond.probe import Probe, Table, gauge, hookimpl

print("loaded")
threading.Thread(target=time.sleep, args=(3600,)).start()

@hookimpl
def sysmond_probes():
    return [Probe(Table("mine", (gauge("value", "1", "A value."),)), lambda host: [("", (1,))])]
"""


def test_the_program_writes_a_plan_whatever_its_plugins_leave_behind(tmp_path: Path) -> None:
    own = tmp_path / ".config/sysmond"
    (own / "probes").mkdir(parents=True)
    (own / "probes/mine.py").write_text(PROBE)
    (own / "probes/bad.py").write_text("1/0")
    (own / "sysmond.yaml").write_text("probes: {mine: {interval: 3s}}")
    output = tmp_path / "plan.json"
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("probes: {disk: {interval: soon}}\n")
    assert run(tmp_path, "--config", str(wrong), "--output", str(output)).returncode == UsageError.exit_code
    (lacks,) = lacking.read(str(tmp_path))
    assert "soon" in lacks
    done = run(tmp_path, "--user", "--output", str(output))
    assert lacking.read(str(tmp_path)) == []
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"loaded\nsysmond: refused: {own}/probes/bad.py: does not load: ZeroDivisionError: division by zero\n"
    )
    made = plan.read(str(output))
    (mine,) = [probe for probe in made.probes if probe.table == "mine"]
    assert mine[:5] == (
        "mine",
        f"{own}/probes/mine.py",
        Lane.BACKGROUND,
        3_000_000_000,
        Sensitivity.RESTRICTED,
    )
    printed = run(tmp_path, "--user")
    assert plan.decode(printed.stdout.encode()) == made
    # What tables declare is for all who read rings; settings are not.
    answers = Path(tmp_path, catalogue.ANSWERS_FILE)
    assert catalogue.answers_in(str(tmp_path))["process"].others_by == ("cgroup",)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (answers, tmp_path / catalogue.FILE)]
    assert modes == [0o644, 0o640]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--config", "wrong.yaml"], 2, "wrong.yaml:1: sampler.priority: 'x' is wrong; expected a whole number"),
        (["--config", "none.yaml"], 2, "none.yaml: No such file or directory; expected a file that can be read"),
        (["--config", "unknown.yaml"], 2, "unknown.yaml:1: probes.cpus: no such probe; did you mean cpu?"),
        (
            ["--colour"],
            2,
            "unknown option '--colour'; 'python -m sysmond.plan.resolver --help' lists the options",
        ),
        (
            ["--config", os.devnull, "--output", "none/plan.json"],
            1,
            "none/plan.json: No such file or directory; expected a file that can be written",
        ),
    ],
)
def test_the_program_fails_in_one_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    (tmp_path / "wrong.yaml").write_text("sampler: {priority: x}")
    (tmp_path / "unknown.yaml").write_text("probes: {cpus: }")
    done = run(tmp_path, "--user", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"sysmond: {message}\n")


def test_user_and_system_exclude_each_other(tmp_path: Path) -> None:
    done = run(tmp_path, "--user", "--system")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_main_reads_the_files_of_the_machine_for_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sysmond.yaml").write_text("sampler: {priority: 7}")
    monkeypatch.setattr(config, "SYSTEM_FOLDER", str(tmp_path))
    monkeypatch.setattr(plugins, "SYSTEM_PROBE_FOLDER", str(tmp_path / "probes"))
    assert resolver.main(["--system"]) == 0
    assert plan.decode(capsys.readouterr().out.encode()).sampler.priority == 7


class Changed:
    """A configuration of its own, changed by the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "c.yaml"
        self.file.write_text("{}\n")
        self.drop_in = folder / "c.yaml.d" / written_settings.NAME
        self.output = folder / "plan.json"

    def change(self, *changes: str) -> str:
        """What is said about a change; nothing where it is made."""
        words = ["--user", "--config", str(self.file), "--output", str(self.output), *changes]
        done = run(self.folder, *words)
        assert bool(done.returncode) == bool(done.stderr)
        assert done.stderr.count("\n") <= 1
        return done.stderr.strip().removeprefix("sysmond: ")

    def said(self) -> str:
        text = self.drop_in.read_text()
        assert text.startswith(written_settings.HEAD)
        return text.removeprefix(written_settings.HEAD)

    def planned(self) -> dict[str, PlannedProbe]:
        return {probe.table: probe for probe in plan.read(str(self.output)).probes}


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    return Changed(tmp_path)


def test_a_change_is_written_to_the_drop_in_and_taken_back(changed: Changed) -> None:
    assert changed.change("--set", "probes.disk.enabled=false", "--set", "probes.cpu.interval=5s") == ""
    assert changed.said() == "probes:\n  cpu:\n    interval: 5s\n  disk:\n    enabled: false\n"
    assert not changed.planned()["disk"].enabled
    assert changed.change("--set", "probes.disk.enabled=true") == ""
    assert changed.planned()["disk"].enabled
    assert changed.planned()["cpu"].interval_ns == 5_000_000_000
    assert changed.change("--unset", "probes.disk.enabled") == ""
    assert changed.said() == "probes:\n  cpu:\n    interval: 5s\n"
    settings = catalogue.read(str(changed.folder)).settings
    line = written_settings.HEAD.count("\n") + 3
    assert catalogue.EffectiveSetting("probes.cpu.interval", "5s", str(changed.drop_in), line) in settings
    assert changed.change("--unset", "probes.cpu.interval") == ""
    assert not changed.drop_in.exists()
    assert changed.planned()["cpu"].interval_ns == 1_000_000_000


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("probes.disk.interval=1us", "probes.disk.interval: '1us' is out of bounds; expected 10ms to 24h"),
        ("probes.disk.enabled=maybe", "probes.disk.enabled: 'maybe' is wrong; expected true or false"),
        ("probes.disk.enabled=", "probes.disk.enabled: '' is wrong; expected true or false"),
        (
            "probes.disk.colour=red",
            "probes.disk.colour: no such key; expected enabled, interval, lane, sensitivity, options",
        ),
        ("probes.dsik.enabled=true", "probes.dsik: no such probe; did you mean disk"),
        ("probes.filesystem.interval=10ms", "probes.filesystem.interval: '10ms' is too short for the background lane"),
        ("probes.disk.options=5", "probes.disk.options: '5' is not a section"),
        ("probes.disk.options.x=1", "probes.disk.options.x: no such option; expected none"),
        ("probes.disk.lane=\u00e9: [", "probes.disk.lane: 'é: [' is wrong; expected realtime or background"),
    ],
)
def test_a_wrong_change_changes_nothing(changed: Changed, change: str, problem: str) -> None:
    assert changed.change("--set", "probes.cpu.interval=2s") == ""
    before = changed.said(), changed.output.read_bytes()
    assert changed.change("--set", change).startswith(problem)
    assert (changed.said(), changed.output.read_bytes()) == before


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "sampler=1"),
        ("--set", "sampler.=1"),
        ("--set", "probes.disk"),
        ("--unset", "probes..x"),
        ("--unset", "probes.disk"),
        ("--set", "="),
    ],
)
def test_what_is_no_change_is_refused(changed: Changed, words: tuple[str, str]) -> None:
    assert f"{words[1]!r} is not a change; expected SECTION.KEY" in changed.change(f"{words[0]}={words[1]}")
    assert not changed.output.exists()


def test_a_file_that_is_read_later_is_named_where_it_overrules_a_change(changed: Changed) -> None:
    later = changed.drop_in.parent / "95-mine.yaml"
    later.parent.mkdir()
    later.write_text("probes: {disk: {enabled: false}}")
    assert changed.change("--set", "probes.disk.enabled=true") == (
        f"{later}:1: probes.disk.enabled is set there, which overrides {written_settings.NAME}; change it there"
    )
    assert not changed.drop_in.exists()
    later.write_text("probes: {dsik: {}}")
    assert changed.change("--set", "probes.cpu.interval=2s").startswith(f"{later}:1: probes.dsik: no such probe")


def test_a_drop_in_that_was_edited_keeps_what_it_says_and_its_mistakes_are_named(changed: Changed) -> None:
    changed.drop_in.parent.mkdir()
    changed.drop_in.write_text("# mine\nsampler: {priority: '3'}\n'probes':\n  cpu: {interval: 1h 30min}\n")
    assert changed.change("--set", "probes.disk.enabled=no") == ""
    assert changed.said() == (
        'probes:\n  cpu:\n    interval: "1h 30min"\n  disk:\n    enabled: no\nsampler:\n  priority: 3\n'
    )
    assert plan.read(str(changed.output)).sampler.priority == 3
    changed.drop_in.write_text("\nprobe: {}\n")
    assert changed.change("--set", "probes.disk.enabled=no").startswith(f"{changed.drop_in}:2: probe: no such key")


def test_what_was_once_set_of_a_probe_that_is_no_more_stops_nothing(changed: Changed) -> None:
    changed.drop_in.parent.mkdir()
    changed.drop_in.write_text("probes: {gone: {enabled: false}}\n")
    words = ["--user", "--config", str(changed.file), "--output", str(changed.output)]
    for change in ([], ["--set", "probes.disk.enabled=no"]):
        done = run(changed.folder, *words, *change)
        assert done.returncode == 0
        assert done.stderr.startswith("sysmond: refused: probes.gone: ")
    assert changed.change("--set", "probes.gone.enabled=true").startswith("probes.gone: no such probe")
    assert [refusal.plugin for refusal in catalogue.read(str(changed.folder)).refused] == ["probes.gone"]
    assert changed.change("--unset", "probes.gone.enabled") == ""


def test_a_plugin_that_ends_its_process_is_in_the_catalogue_with_its_reason(tmp_path: Path) -> None:
    own = tmp_path / ".config/sysmond/probes"
    own.mkdir(parents=True)
    (own / "wreck.py").write_text("import os; os.abort()")
    (own / "old.py").write_text(f"{PROBE}\n@hookimpl\ndef sysmond_api_version():\n    return 0\n")
    (own / "same.py").write_text(PROBE.replace('"mine"', '"cpu"'))
    done = run(tmp_path, "--user", "--output", str(tmp_path / "plan.json"))
    assert done.returncode == 0
    refused = {os.path.basename(refusal.plugin): refusal.reason for refusal in catalogue.read(str(tmp_path)).refused}
    assert refused == {
        "wreck.py": "ends its process while loading: SIGABRT",
        "old.py": "written for API version 0; expected 1 or 2",
        "same.py": "table 'cpu': already offered by sysmond_probes.cpu; expected another name",
    }
    assert "cpu" in {probe.table for probe in plan.read(str(tmp_path / "plan.json")).probes}


def test_where_the_plan_cannot_be_written_the_drop_in_stays_as_it_was(changed: Changed) -> None:
    assert changed.change("--set", "probes.cpu.interval=2s") == ""
    before = changed.said()
    changed.output.unlink()
    changed.output.mkdir()
    assert "Is a directory" in changed.change("--set", "probes.cpu.interval=3s")
    assert changed.said() == before


def test_a_plan_that_nobody_waits_for_any_more_is_not_written(changed: Changed) -> None:
    assert "the caller has gone" in changed.change("--parent", "1", "--set", "probes.cpu.interval=2s")
    assert not changed.drop_in.exists()
    assert not changed.output.exists()


@given(
    st.dictionaries(
        st.tuples(st.just("probes"), st.text(min_size=1), st.just("options"), st.text(min_size=1)),
        st.text(),
        max_size=4,
    )
)
def test_whatever_a_drop_in_is_given_it_says_just_that_or_is_refused(texts: dict[tuple[str, ...], str]) -> None:
    try:
        said = config.parse(written_settings._spell(texts), "d.yaml")
    except ConfigError:
        assert not all(text.isprintable() for path in texts for text in (*path, texts[path]))
        return
    found = {path: setting.text for path, setting in said.items() if setting.value is not None}
    if all(text.isprintable() for path in texts for text in (*path, texts[path])):
        assert found == texts


def test_a_recorder_with_folders_of_its_own_changes_no_file_that_the_default_one_reads(changed: Changed) -> None:
    own = Settings(folders.ours(user=True, state_dir="/nowhere/state", runtime_dir=None), user=True)
    default = own._replace(folders=folders.ours(user=True, state_dir=None, runtime_dir=None))
    assert "--borrowed" in resolver_command(own)
    assert "--borrowed" not in resolver_command(own._replace(config=str(changed.file)))
    assert "--borrowed" not in resolver_command(default)
    assert changed.change("--borrowed") == ""
    said = changed.change("--borrowed", "--set", "probes.cpu.interval=2s")
    assert said.startswith(f"{changed.drop_in.parent}: belongs to the recorder with the default folders; ")
    assert not changed.drop_in.exists()
