# SPDX-License-Identifier: Apache-2.0
"""Values, limits and names equal those that sensors(1) prints, by the real library and the real program.

umockdev shows both of them the chips of a described machine in place of /sys.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysmond.sources.libsensors import library
from tests.support import sysfs

OURS = """
import json
from sysmond.probe import Host
from sysmond_probes import humidity, hwmon, temperature
read = {}
for probe in (*temperature.sysmond_probes(), *hwmon.sysmond_probes(), *humidity.sysmond_probes()):
    names = [metric.name for metric in probe.table.metrics]
    scale = probe.table.metrics[0].scale
    rows = probe.read(Host(), **{option.name: True for option in probe.options})
    read[probe.table.name] = [scale, {name: dict(zip(names, row)) for name, row in rows}]
print(json.dumps(read))
"""
KINDS = {"temp": "temperature", "fan": "fan", "in": "voltage", "curr": "current", "power": "power", "energy": "energy"}
NEEDED = [name for name in ("umockdev-run", "sensors") if shutil.which(name) is None]
NEEDED += [] if library() else ["libsensors.so.5"]
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not installed: {', '.join(NEEDED)} (umockdev, lm-sensors)")


def shown(folder: Path, machine: str, *command: str, configured: str = "") -> str:
    """Run a program that sees the chips of a machine, and of /etc/sensors.d one file of this content."""
    described = folder / "hwmon.umockdev"
    described.write_text(sysfs.as_recorded((sysfs.MACHINES / machine / "hwmon.umockdev").read_text()))
    run = ["umockdev-run", "-d", str(described), "--", *command]
    if configured:
        (folder / "etc").mkdir(exist_ok=True)
        (folder / "etc/test.conf").write_text(configured)
        bind = f'mount --bind "{folder}/etc" /etc/sensors.d && exec "$@"'
        run = ["unshare", "--map-root-user", "--mount", "sh", "-c", bind, "sh", *run]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    if configured and "mount" in done.stderr:
        pytest.skip(f"no mount namespace: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def theirs(folder: Path, machine: str, configured: str = "") -> dict[tuple[str, str, str], float]:
    """What sensors prints, by chip, label and attribute; a label may be there twice."""
    text = shown(folder, machine, "sensors", "-j", configured=configured)
    pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
    return {
        (chip, label, attribute): value
        for chip, features in pairs
        for label, attributes in features
        if isinstance(attributes, list)
        for attribute, value in attributes
    }


def ours(folder: Path, machine: str, configured: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(shown(folder, machine, sys.executable, "-c", OURS, configured=configured))
    return answer


def compare(printed: dict[tuple[str, str, str], float], read: dict[str, Any]) -> int:
    """Find each value that sensors printed among ours, and count them."""
    compared = 0
    chips = {chip for chip, _, _ in printed}
    features = {(chip, label, attribute.partition("_")[0]) for chip, label, attribute in printed}
    for (chip, label, attribute), value in printed.items():
        feature, _, end = attribute.partition("_")
        scale, rows = read[KINDS[feature.rstrip("0123456789")]] if not feature.startswith("humid") else read["humidity"]
        metric = "value" if end in {"input", "average"} else end
        name = chip.rsplit("-", 3 if "-i2c-" in chip or "-scsi-" in chip else 2)[0]
        spelled = chip if sum(each.startswith(f"{name}-") for each in chips) > 1 else name
        is_twice = sum(at[:2] == (chip, label) for at in features) > 1
        row = rows.get(f"{spelled}:{label}" + f" ({feature})" * is_twice)
        if row is None:  # A thermal zone, which is called by its type.
            row = rows[name]
        if metric in row and metric != "alarm" and not isinstance(row["value"], str):
            assert row[metric] / 10**scale == pytest.approx(value, abs=6e-4), (chip, label, attribute)
            compared += 1
    return compared


@pytest.mark.parametrize(("machine", "least"), [("laptop", 25), ("server", 50), ("arm", 10)])
def test_what_sensors_prints_is_what_is_recorded(machine: str, least: int, tmp_path: Path) -> None:
    """The chips of the server have computed voltages by /etc/sensors3.conf as Debian has it."""
    assert compare(theirs(tmp_path, machine), ours(tmp_path, machine)) >= least


def test_a_label_an_expression_and_an_ignored_sensor_hold(tmp_path: Path) -> None:
    configured = (
        'chip "nct6779-*"\n label in1 "+12V"\n compute in1 @*12+in0_input, (@-in0_input)/12\n ignore in2\n'
        ' ignore fan2\n compute in3 @*nothing, @\n label temp1 "Board"\n compute temp1 @/2, @*2\n'
    )
    printed, read = theirs(tmp_path, "server", configured), ours(tmp_path, "server", configured)
    assert compare(printed, read) >= 50
    voltages, fans = read["voltage"][1], read["fan"][1]
    assert voltages["nct6779:+12V"]["value"] == 12 * 1000 + 1210
    assert voltages["nct6779:+3.3V"] == {"value": "probe failed", "min": "in3_input is not a number"}
    assert read["temperature"][1]["nct6779:Board"]["value"] == 18_000
    assert "nct6779:fan1" in fans
    assert "nct6779:fan2" not in fans
    assert len([name for name in voltages if name.startswith("nct6779:")]) == 3


def test_the_computed_voltage_of_a_board_is_not_the_raw_one(tmp_path: Path) -> None:
    """w83627thf has resistors of 34 and 51 kΩ before two inputs."""
    voltages = ours(tmp_path, "server")["voltage"][1]
    assert voltages["w83627thf:+5V"]["value"] == round(3024 * (1 + 34 / 51))
    assert voltages["w83627thf:+5V"]["max"] == round(3296 * (1 + 34 / 51))
    assert voltages["w83627thf:Vbat"]["value"] == 3280


def test_chips_that_come_are_known_and_nothing_leaks(tmp_path: Path) -> None:
    """Look anew many times while others read: labels stay right, and memory does not grow by a page a look."""
    script = """
import resource, threading
from sysmond.sources.libsensors import library
known = library()
known.labels(0)
stop = threading.Event()
def read():
    while not stop.is_set():
        assert known.value("hwmon2", "in0_input") in (None, 1.21)
readers = [threading.Thread(target=read) for _ in range(3)]
for reader in readers: reader.start()
for look in range(1, 30): assert known.labels(look)["hwmon0"]["temp1"] == b"Package id 0"
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for look in range(30, 130): known.labels(look)
stop.set()
for reader in readers: reader.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown_kb = int(shown(tmp_path, "server", sys.executable, "-c", script))
    assert grown_kb < 100 * os.sysconf("SC_PAGESIZE") // 1024
