# SPDX-License-Identifier: Apache-2.0
"""The resolver: what the configuration may ask of a probe, and the program that writes the plan."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from sysmond import config, plan, plugins, resolver
from sysmond.config import Config
from sysmond.errors import ConfigError, Error
from sysmond.model import Lane, Sensitivity
from sysmond.plan import Plan, PlannedProbe, Refusal
from sysmond.plugins import Discovery, Plugin
from sysmond.probe import Host, Probe, Row, Table, gauge
from sysmond.resolver import resolve


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
            PlannedProbe("mine", THEIRS.name, background, 10_000_000, restricted),
        )
    )


def test_a_probe_is_switched_off() -> None:
    found = planned("probes: {cpu: {enabled: false}, mine: {enabled: true}}")
    assert {table for table, probe in found.items() if probe.enabled} == {"filesystem", "input", "mine"}
    assert set(found) == {"cpu", "filesystem", "input", "mine"}  # It can still be named.


def test_interval_lane_and_sensitivity_are_set() -> None:
    found = planned("probes: {cpu: {interval: 100ms, lane: background, sensitivity: restricted}}")["cpu"]
    assert found[2:5] == (Lane.BACKGROUND, 100_000_000, Sensitivity.RESTRICTED)


def test_a_stranger_may_be_given_back_what_it_declares() -> None:
    found = planned("probes: {mine: {lane: realtime, sensitivity: public}}")["mine"]
    assert found[2:5] == (Lane.REALTIME, 10_000_000, Sensitivity.PUBLIC)


def test_nothing_becomes_laxer_than_it_declares() -> None:
    assert complaint("probes:\n  filesystem:\n    lane: realtime\n") == (
        "f.yaml:3: probes.filesystem.lane: realtime; background, as the probe declares itself, is right"
    )
    assert complaint("probes: {input: {sensitivity: public}}") == (
        "f.yaml:1: probes.input.sensitivity: public; restricted, as the probe declares itself, is right"
    )


def test_settings_reach_the_plan() -> None:
    made = resolve(configured("sampler: {priority: 0}\narchive: {ram_size: 1MiB}"), ALL)
    assert (made.sampler.priority, made.archiver.ram_bytes) == (0, 2**20)


def test_an_unknown_probe_is_named_with_its_nearest() -> None:
    assert complaint("probes:\n  cpus:\n") == "f.yaml:2: probes.cpus: no such probe; nearest: cpu"
    assert complaint('probes: {"a\\nb": {}}') == "f.yaml:1: probes.a b: no such probe"


def test_an_unknown_probe_may_belong_to_a_refused_plugin() -> None:
    broken = Refusal("acme", "does not load")
    made = resolve(configured("probes: {gpu: {interval: 2s}}"), ALL._replace(refused=(broken,)))
    assert made.refused == (
        broken,
        Refusal("probes.gpu", "f.yaml:1: probes.gpu: no such probe; nearest: cpu, input; or its plugin is refused"),
    )


def test_without_any_plugin_there_is_no_plan() -> None:
    with pytest.raises(Error, match="no plugin to run: sysmond is not installed for this Python"):
        resolve(Config(), Discovery((), ()))
    with pytest.raises(Error, match="no plugin to run: acme: does not load"):
        resolve(Config(), Discovery((), (Refusal("acme", "does not load"),)))


def test_the_built_in_plan_is_what_the_resolver_makes_of_the_public_probes(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    made = resolver.make_plan(file=os.devnull, user=True, environ=environ, uid=os.getuid())
    public = [probe for probe in made.probes if probe.sensitivity is Sensitivity.PUBLIC]
    assert public == sorted(plan.builtin().probes, key=lambda probe: probe.table)


def test_the_installed_file_gives_the_default_plan(tmp_path: Path, repository: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    plans = [
        resolver.make_plan(file=file, user=True, environ=environ, uid=os.getuid())
        for file in (os.devnull, str(repository / "etc/sysmond.yaml"))
    ]
    assert plans[0] == plans[1]


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    program = [sys.executable, "-I", "-m", "sysmond.resolver", *arguments]
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
    done = run(tmp_path, "--user", "--output", str(output))
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
    assert json.loads(printed.stdout) == json.loads(output.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--config", "wrong.yaml"], 2, "wrong.yaml:1: sampler.priority: 'x' is wrong; a whole number is right"),
        (["--config", "none.yaml"], 2, "none.yaml: No such file or directory; a file that can be read is right"),
        (["--config", "unknown.yaml"], 2, "unknown.yaml:1: probes.cpus: no such probe; nearest: cpu, tcp, icmp"),
        (
            ["--colour"],
            2,
            "unrecognized arguments: --colour; 'python -m sysmond.resolver --help' shows what is right",
        ),
        (
            ["--config", os.devnull, "--output", "none/plan.json"],
            1,
            "none/plan.json: No such file or directory; a file that can be written is right",
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
