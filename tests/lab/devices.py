# SPDX-License-Identifier: Apache-2.0
"""Devices of a laptop, by the drivers of a real kernel: the value set from outside is the value recorded.

For the lab (``make lab``): firmware of ``devices.asl``, devices that qemu plugs in, chips of i2c-stub. Each kind runs
alone: ``make lab ARGS="tests/lab/devices.py -k nvme"``.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from sysmond_probes import ethtool

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import Cause
from sysmond.history import Archive
from tests.lab.ground import Ground, number
from tests.lab.outside import AT_FIRST, CHARGES, DISCHARGES, Outside
from tests.lab.sensed import (
    INTERVAL_S,
    LATE_NS,
    instances,
    newest,
    plugged,
    pulled,
    run,
    sensing,
    tell_supplies,
    the_only,
)
from tests.support.waiting import wait_until

TABLES = (
    *("battery", "mains", "temperature", "fan", "power", "voltage", "light", "lid", "motion", "wakeup", "usb_power"),
    *("ethtool", "cpu", "disk"),
)
BATTERY, MAINS = "BAT0", "ACAD"
CPU1 = Path("/sys/devices/system/cpu/cpu1/online")
FULL_MWH = 48_000
# Which of our tables has what sensors(1) prints, and how many of its own units make one of theirs.
PRINTED = {"temp": ("temperature", 1000), "fan": ("fan", 1), "in": ("voltage", 1000), "power": ("power", 10**6)}
SLEPT_S = 20.0
# What is recorded of a network card by default.
TROUBLE = re.compile(ethtool.TROUBLE)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    subprocess.run(["modprobe", "--all", "acpi-als", "acpi_power_meter", "battery", "ac", "button", "fan"], check=True)
    with sensing(TABLES) as ground:
        yield ground


@pytest.fixture(scope="module")
def opened() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.close()


@pytest.fixture
def outside(opened: Outside) -> Iterator[Outside]:
    """The world, which is as it was at first after each check."""
    yield opened
    opened.say(**AT_FIRST)
    tell_supplies()


# --- Power


def test_battery_and_mains_are_as_the_firmware_says(ground: Ground, outside: Outside) -> None:
    ground.comes_to("mains", MAINS, lambda: {"online": 1, "type": "Mains"})
    outside.say(plugged=0, status=DISCHARGES, energy_mwh=FULL_MWH * 17 // 100, rate_mw=12_345, voltage_mv=10_987)
    tell_supplies()
    ground.comes_to("mains", MAINS, lambda: {"online": 0})
    wanted = {
        "status": "Discharging", "capacity": 17, "energy": 8_160_000, "energy_full": 48_000_000, "cycles": 143,
        "energy_design": 50_000_000, "power": 12_345_000, "voltage": 10_987_000, "present": 1, "model": "LABBAT",
    }  # fmt: skip
    ground.comes_to("battery", BATTERY, lambda: wanted)


def test_battery_has_the_numbers_of_upower(ground: Ground, outside: Outside) -> None:
    outside.say(plugged=0, status=DISCHARGES, energy_mwh=FULL_MWH * 42 // 100, rate_mw=9876)
    tell_supplies()

    def printed() -> dict[str, str]:
        told = run("upower", "--show-info", f"/org/freedesktop/UPower/devices/battery_{BATTERY}")
        return dict(re.findall(r"^ +([a-z-]+): +(\S+)", told, re.MULTILINE))

    def told() -> dict[str, object]:
        words = printed()
        energy, power = (round(float(words[name].replace(",", ".")) * 1e6) for name in ("energy", "energy-rate"))
        capacity = int(words["percentage"].removesuffix("%"))
        return {"energy": energy, "power": power, "capacity": capacity, "status": words["state"].capitalize()}

    wait_until(lambda: told()["capacity"] == 42, printed)
    ground.comes_to("battery", BATTERY, told)


def test_battery_that_feeds_the_machine_doubles_the_intervals(ground: Ground, outside: Outside) -> None:
    fan = the_only(ground, "fan")

    def apart_s() -> list[int]:
        times = [row.time_ns for row in ground.rows("fan", fan)][-4:]
        return [round((later - sooner) / SECOND_NS) for sooner, later in pairwise(times)]

    wait_until(lambda: apart_s() == [INTERVAL_S] * 3, apart_s)
    outside.say(plugged=0, status=DISCHARGES)
    tell_supplies()
    wait_until(lambda: apart_s() == [2 * INTERVAL_S] * 3, apart_s)
    outside.say(plugged=1, status=CHARGES)
    tell_supplies()
    wait_until(lambda: apart_s() == [INTERVAL_S] * 3, apart_s)


# --- Sensors


def test_sensor_of_temperature_and_its_limits(ground: Ground, outside: Outside) -> None:
    outside.say(temperature=61.5)
    ground.comes_to("temperature", "acpitz", lambda: {"value": 61_500, "crit": 120_000})


def test_sensor_of_a_fan(ground: Ground, outside: Outside) -> None:
    outside.say(fan_rpm=3300)
    ground.comes_to("fan", the_only(ground, "fan"), lambda: {"value": 3300})


def test_sensor_of_light(ground: Ground, outside: Outside) -> None:
    for lux in (42, 0, 31_000):
        outside.say(light_lux=lux)
        ground.comes_to("light", the_only(ground, "light"), lambda lux=lux: {"illuminance": lux * 10**6})  # type: ignore[misc]


def test_sensor_of_the_lid(ground: Ground, outside: Outside) -> None:
    for is_open in (0, 1):
        outside.say(lid=is_open)
        ground.comes_to("lid", the_only(ground, "lid"), lambda is_open=is_open: {"closed": 1 - is_open})  # type: ignore[misc]


def test_sensor_values_are_what_sensors_prints(ground: Ground, outside: Outside) -> None:
    outside.say(fan_rpm=1234, power_mw=21_000, temperature=47.3)

    def printed() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {table: [] for table, _ in PRINTED.values()}
        for chip in json.loads(run("sensors", "-j")).values():
            for values in (feature for feature in chip.values() if isinstance(feature, dict)):
                for name, value in values.items():
                    kind = re.fullmatch(r"(temp|fan|in|power)\d+_(input|average)", name)
                    if kind:
                        table, factor = PRINTED[kind[1]]
                        found[table].append(round(value * factor))
        return {table: sorted(values) for table, values in found.items()}

    def values() -> dict[str, list[int]]:
        return {table: sorted(map(int, newest(ground, f"{table}/value").values())) for table, _ in PRINTED.values()}

    wait_until(lambda: printed() == values(), lambda: (printed(), values()))
    assert min(map(len, printed().values())) >= 1
    assert 1234 in printed()["fan"]
    assert 21_000_000 in printed()["power"]


class Chips:
    """Chips of i2c-stub: a thermometer (lm75) and an accelerometer (kxcj91008)."""

    def __init__(self) -> None:
        run("modprobe", "i2c-dev")
        run("modprobe", "i2c-stub", "chip_addr=0x0f,0x48")
        adapters = Path("/sys/bus/i2c/devices").glob("i2c-*")
        (self.bus,) = (each for each in adapters if "SMBus stub" in (each / "name").read_text())
        self.temperature(25.0)
        for register, limit in ((2, 75), (3, 80)):
            self._word(0x48, register, self._swapped(limit << 8))
        self._byte(0x0F, 0x0F, 0x07)  # WHO_AM_I
        for chip in ("lm75 0x48", "kxcj91008 0x0f"):
            (self.bus / "new_device").write_text(chip)

    def _put(self, chip: int, register: int, value: int, size: str) -> None:
        run("i2cset", "-f", "-y", self.bus.name.removeprefix("i2c-"), hex(chip), hex(register), hex(value), size)

    def _word(self, chip: int, register: int, value: int) -> None:
        self._put(chip, register, value & 0xFFFF, "w")

    def _byte(self, chip: int, register: int, value: int) -> None:
        self._put(chip, register, value, "b")

    @staticmethod
    def _swapped(word: int) -> int:
        return (word >> 8 & 0xFF) | (word & 0xFF) << 8

    def temperature(self, degrees: float) -> None:
        self._word(0x48, 0, self._swapped(round(degrees * 256) & 0xFFE0))

    def acceleration(self, x: int, y: int, z: int) -> None:
        """Set raw values of 12 bits."""
        for place, value in enumerate((x, y, z)):
            self._word(0x0F, 6 + 2 * place, value * 16)

    def close(self) -> None:
        for chip in ("0x48", "0x0f"):
            (self.bus / "delete_device").write_text(chip)
        run("modprobe", "--remove", "i2c-stub")


@pytest.fixture(scope="module")
def chips(ground: Ground) -> Iterator[Chips]:
    wait_until(lambda: ground.last("load", ""))  # They come while it records.
    made = Chips()
    yield made
    made.close()


def test_chip_of_temperature_comes_by_an_event_and_says_what_is_set(ground: Ground, chips: Chips) -> None:
    for degrees in (33.5, -5.0, 80.5):
        chips.temperature(degrees)
        ground.comes_to("temperature", "lm75:temp1", lambda value=degrees: {"value": round(value * 1000)})  # type: ignore[misc]


def test_chip_of_acceleration_says_what_is_set(ground: Ground, chips: Chips) -> None:
    chips.acceleration(10, -20, 1000)
    (folder,) = (
        each for each in Path("/sys/bus/iio/devices").glob("iio:device*") if "kx" in (each / "name").read_text()
    )
    scale = float((folder / "in_accel_scale").read_text())
    # Else it sleeps after two seconds, and is left asleep.
    (folder.resolve().parent / "power/control").write_text("on")
    raw = [int((folder / f"in_accel_{axis}_raw").read_text()) for axis in "xyz"]
    assert raw == [10, -20, 1000]
    wanted = {f"acceleration_{axis}": round(value * scale * 1e6) for axis, value in zip("xyz", raw, strict=True)}
    ground.comes_to("motion", the_only(ground, "motion"), lambda: wanted)


def test_chip_of_acceleration_is_still_by_its_buffer(chips: Chips) -> None:
    """A stub does not shake: a timer asks it a hundred times a second, and it says the same each time."""
    chips.acceleration(10, -20, 1000)
    run("modprobe", "iio-trig-hrtimer")
    trigger = Path("/sys/kernel/config/iio/triggers/hrtimer/lab")
    trigger.mkdir()
    (folder,) = (
        each for each in Path("/sys/bus/iio/devices").glob("iio:device*") if "kx" in (each / "name").read_text()
    )
    (folder / "trigger/current_trigger").write_text("lab")
    try:
        with sensing(("vibration",), wake=True) as ground:
            name = the_only(ground, "vibration")
            ground.comes_to("vibration", name, lambda: {"rms": 0, "peak": 0})
            assert number(ground.last("vibration", name)["rate"]) > 50_000  # It has three decimals.
        wait_until(lambda: (folder / "buffer/enable").read_text().strip() == "0")
        assert (folder / "trigger/current_trigger").read_text().strip() == "lab"
    finally:
        (folder / "trigger/current_trigger").write_text("\n")
        trigger.rmdir()


# --- What comes and goes


def test_cpu_that_is_offline_has_a_gap(ground: Ground) -> None:
    ground.comes_to("cpu", "cpu1", dict)
    wait_until(lambda: ground.rows("cpu", "cpu1"))
    CPU1.write_text("0")
    try:
        off_ns = time.time_ns() + LATE_NS
        wait_until(lambda: ground.rows("cpu", "cpu0", off_ns + 3 * INTERVAL_S * SECOND_NS))
        assert ground.rows("cpu", "cpu1", off_ns) == []
    finally:
        CPU1.write_text("1")
    on_ns = time.time_ns()
    wait_until(lambda: ground.rows("cpu", "cpu1", on_ns))


def test_usb_keyboard_is_there_while_it_is_plugged_in(ground: Ground, outside: Outside) -> None:
    devices = Path("/sys/bus/usb/devices")
    before = {each.name for each in devices.iterdir()}
    outside.monitor("device_add usb-kbd,id=trial,bus=usb.0,port=4")
    wait_until(lambda: {each.name for each in devices.iterdir()} - before)
    shown = devices / min({each.name for each in devices.iterdir()} - before, key=len)
    outside.monitor("device_del trial")
    # Now that its place is known.
    wait_until(lambda: not shown.exists() and shown.name not in instances(ground, "usb_power"))
    name = plugged(ground, "usb_power", lambda: outside.monitor("device_add usb-kbd,id=keys,bus=usb.0,port=4"), shown)
    assert name == shown.name
    said = int((shown / "bMaxPower").read_text().removesuffix("mA\n"))
    ground.comes_to("usb_power", name, lambda: {"current_max": said})
    pulled(ground, "usb_power", name, lambda: outside.monitor("device_del keys"), shown)


def test_usb_disk_is_there_while_it_is_plugged_in(ground: Ground, outside: Outside) -> None:
    shown = Path("/sys/block") / next(name for name in ("sda", "sdb", "sdc") if not Path("/sys/block", name).exists())
    add = "device_add usb-storage,id=stick,drive=stick,bus=usb.0"
    assert plugged(ground, "disk", lambda: outside.monitor(add), shown) == shown.name
    run("dd", f"of=/dev/{shown.name}", "if=/dev/zero", "bs=64K", "count=32", "oflag=direct", "conv=notrunc")

    def told() -> dict[str, int]:
        words = [int(word) for word in (shown / "stat").read_text().split()]
        return {"reads": words[0], "read_bytes": words[2] * 512, "writes": words[4], "written_bytes": words[6] * 512}

    ground.comes_to("disk", shown.name, told)
    assert told()["written_bytes"] == 2 << 20
    pulled(ground, "disk", shown.name, lambda: outside.monitor("device_del stick"), shown)


def test_nvme_has_a_temperature_while_it_is_plugged_in(ground: Ground, outside: Outside) -> None:
    shown = Path("/sys/class/nvme/nvme0")
    add = "device_add nvme,id=disk,serial=LABNVME,drive=nvme,bus=socket"
    name = plugged(ground, "temperature", lambda: outside.monitor(add), shown, "nvme:")
    told = json.loads(run("smartctl", "--json", "--attributes", "/dev/nvme0"))["temperature"]["current"]
    assert abs(number(ground.last("temperature", name)["value"]) - told * 1000) < 1000
    pulled(ground, "temperature", name, lambda: outside.monitor("device_del disk"), shown)


def test_ethtool_prints_what_is_recorded_of_a_network_card(ground: Ground) -> None:
    (card,) = (each.name for each in Path("/sys/class/net").iterdir() if (each / "device").exists())
    run("ip", "link", "set", card, "up")

    def printed() -> dict[str, int]:
        lines = run("ethtool", "--statistics", card).splitlines()[1:]
        return {f"{card}:{name.strip()}": int(value) for name, _, value in (line.rpartition(":") for line in lines)}

    def differing() -> dict[str, tuple[object, object]]:
        told, values = printed(), newest(ground, "ethtool/value")
        return {name: (values.get(name), told[name]) for name in told if TROUBLE.search(name)
                and values.get(name) != told[name]}  # fmt: skip

    wait_until(lambda: not differing(), differing)
    assert sum(1 for name in printed() if TROUBLE.search(name)) > 10


# --- Sleep


def test_suspend_is_one_gap_of_its_length(ground: Ground, outside: Outside) -> None:
    wait_until(lambda: ground.rows("load", ""))
    begin_ns = time.time_ns() - 2 * SECOND_NS
    run("umount", "/host")  # A shared folder does not come back from sleep.
    Path("/sys/power/mem_sleep").write_text("deep")
    before_s = asleep_s()
    outside.wake_after(SLEPT_S)
    Path("/sys/power/state").write_text("mem")
    slept_s = asleep_s() - before_s
    assert slept_s > SLEPT_S / 2
    woken_ns = time.time_ns()
    wait_until(lambda: len(ground.rows("load", "", woken_ns)) > 2)
    found = Archive(ground.recorder.folders).select("load/tasks", raw=True, start=begin_ns)
    gaps = [gap for gap in found.gaps if gap.cause is Cause.SUSPENDED]
    (gap,) = gaps
    print(f"asleep for {slept_s:.1f} s; {gap}")
    # From the last row before to the first one after.
    assert slept_s - 1 <= (gap.end_ns - gap.start_ns) / SECOND_NS <= slept_s + 2 + 2 * LATE_NS / SECOND_NS


def asleep_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
