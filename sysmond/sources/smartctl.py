# SPDX-License-Identifier: Apache-2.0
"""What disks tell of themselves by SMART, through smartctl(8) of smartmontools, which knows every kind of disk.

Source: smartctl(8) and its JSON (version 1.0). It is hostile input, from a program that may hang over a disk that does:
it has a time limit and a bound, and dies with whoever called it. Serial numbers are not read from it.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from errno import ENOENT
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

from sysmond.probe import ABSENT, Absence, Cause

PACKAGE = "smartmontools"
PROGRAMS = (
    "/usr/sbin/smartctl",
    "/usr/bin/smartctl",
    "/usr/local/sbin/smartctl",
    "/run/current-system/sw/bin/smartctl",
)
# How long one disk may take: reading the logs of a slow one takes seconds. A killed one is gone by then, unless the
# kernel holds it.
LIMIT_S = 30.0
KILLED_S = 2.0
# A disk with every log filled has 0.2 MB.
OUTPUT_BYTES_MAX = 1024 * 1024
# Exit codes (smartctl(8), "EXIT STATUS"): what failed, and what was found out about the disk. Both bits of failure
# at once are never its own; they are what it is told to say of a disk that sleeps.
COMMAND_FAILED, OPEN_FAILED, VERDICTS = 1, 2, 0b1111_1000
SLEEPS = COMMAND_FAILED | OPEN_FAILED
OPTIONS = ("--json=c", "-n", f"standby,{SLEEPS}", "-a", "-l", "devstat")

ATTRIBUTES_MAX = 64
TEXT_LENGTH_MAX, MESSAGE_LENGTH_MAX = 64, 200
NUMBER_MAX = 2**62
HOUR_S, MINUTE_S = 3600, 60
PERCENT = 100
SECTOR_BYTES, MIB = 512, 1024 * 1024
NVME_UNIT_BYTES = 1000 * SECTOR_BYTES  # NVM Express Base Specification, SMART / Health Information: Data Units.
GIGABYTE = 10**9
TEMPERATURES = range(-60, 201)

# How a self-test ended, of the codes of ATA (ACS-4, the upper four bits), NVMe and SCSI (SPC-5); else it failed.
PASSED, RUNNING, ABORTED, FAILED = 0, 1, 2, 3
_ENDED = {
    "ata": {0: PASSED, 1: ABORTED, 2: ABORTED, 15: RUNNING},
    "nvme": {0: PASSED, 1: ABORTED, 2: ABORTED, 3: ABORTED, 4: ABORTED, 8: ABORTED, 9: ABORTED, 15: ABSENT},
    "scsi": {0: PASSED, 1: ABORTED, 2: ABORTED, 15: RUNNING},
}
# Attributes of ATA whose raw value is a count, by number: these mean the same with every vendor that has them.
_COUNTED = {5: "reallocated", 197: "pending", 198: "uncorrectable", 199: "crc_errors"}
# The others mean what their name in smartmontools' database says, which knows the model.
_UNSAFE = ("Unsafe_Shutdown_Count", "Unexpect_Power_Loss_Ct", "POR_Recovery_Count", "Unexpected_Power_Loss")
_LEFT = ("SSD_Life_Left", "Percent_Lifetime_Remain", "Media_Wearout_Indicator", "Wear_Leveling_Count")
_READ = ("Total_LBAs_Read", "Host_Reads_32MiB", "Host_Reads_MiB", "Host_Reads_GiB", "Lifetime_Reads_GiB")
_WRITTEN = ("Total_LBAs_Written", "Host_Writes_32MiB", "Host_Writes_MiB", "Host_Writes_GiB", "Lifetime_Writes_GiB")
_UNITS_BYTES = {"32MiB": 32 * MIB, "_MiB": MIB, "_GiB": 1024 * MIB}
_PR_SET_PDEATHSIG = 1

Json = Mapping[str, Any]


class Attribute(NamedTuple):
    """An attribute of ATA: as the vendor counts it, and its normalized value, which is the better the larger.

    ``failed``: 0 never, 1 now, 2 in the past its value was not above its threshold.
    """

    raw: int
    value: int
    worst: int
    threshold: int
    failed: int


class Health(NamedTuple):
    """What a disk tells, by name of the metric; attributes by number and name, as ``197 Current_Pending_Sector``."""

    values: dict[str, int | str]
    attributes: dict[str, Attribute]


class HangsError(Exception):
    """The kernel holds a smartctl that was killed: ``process`` is its id."""

    def __init__(self, process: int) -> None:
        """Name the process."""
        super().__init__(f"smartctl ({process}) was killed after {LIMIT_S:.0f} s, and the kernel holds it")
        self.process = process


def program(programs: Sequence[str] = PROGRAMS) -> str:
    """Where smartctl is.

    :raises FileNotFoundError: naming the package, where it is not installed.
    """
    path = next((path for path in programs if os.access(path, os.X_OK)), None)
    if path is None:
        raise FileNotFoundError(ENOENT, f"smartctl is not installed; expected the package {PACKAGE}")
    return path


def ask(device: str, smartctl: str) -> Health | Absence:
    """Ask one disk, ``/dev/sda``, or ``/dev/sda -d megaraid,0`` behind a controller; else says why it tells nothing.

    :raises HangsError: where that cannot be ended. :raises FileNotFoundError: where the device is gone.
    """
    try:
        output, code = run([smartctl, *OPTIONS, *device.split()])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TimeoutError) as failure:
        return Absence(Cause.PROBE_FAILED, f"smartctl: {failure}")
    return judge(output, code)


def run(command: Sequence[str], limit_s: float = LIMIT_S) -> tuple[bytes, int]:
    """Run smartctl; gives its output and its exit code.

    :raises TimeoutError: where it takes longer. :raises ValueError: where it says too much, or dies of a signal.
    :raises OSError: where it cannot be started. :raises HangsError: where it takes longer and cannot be ended.
    """
    with subprocess.Popen(  # noqa: S603  a path of ours and a device of /sys
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509  the part that calls this has no threads
    ) as process:
        try:
            output = _heard(process, limit_s)
        finally:
            _end(process)
    if process.returncode < 0:
        raise ValueError(f"died of {signal.Signals(-process.returncode).name}")
    return output, process.returncode


def _heard(process: "subprocess.Popen[bytes]", limit_s: float) -> bytes:
    """Read what it says until it has ended, which it need not do when it has said all."""
    assert process.stdout is not None  # noqa: S101  for the type checker
    output, until_s = bytearray(), monotonic() + limit_s
    pipe, ended = process.stdout.fileno(), os.pidfd_open(process.pid)
    try:
        waiting = [pipe, ended]
        while ready := select.select(waiting, [], [], max(0.0, until_s - monotonic()))[0]:
            if pipe in ready:
                piece = os.read(pipe, 65536)
                output += piece
                if len(output) > OUTPUT_BYTES_MAX:
                    raise ValueError(f"said more than {OUTPUT_BYTES_MAX} bytes")
                if not piece:
                    waiting = [ended]
            elif ended in ready:
                return bytes(output)
    finally:
        os.close(ended)
    raise TimeoutError(f"no answer within {limit_s:g} s; killed")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill it, and whatever it started; until it is waited for, its number is nobody else's."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # Nobody waits for it any more.
        raise HangsError(process.pid) from None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def judge(output: bytes, code: int) -> Health | Absence:
    """Read the answer of smartctl and its exit code. Pure.

    :raises FileNotFoundError: where it says that the device is gone.
    """
    try:
        report = json.loads(output)
    except (ValueError, RecursionError) as damage:
        return Absence(Cause.PROBE_FAILED, f"smartctl: not JSON ({damage}); exit code {code}")
    if not isinstance(report, dict):
        return Absence(Cause.PROBE_FAILED, f"smartctl: JSON without names; exit code {code}")
    if code & (COMMAND_FAILED | OPEN_FAILED):
        return _refused(message(report), code)
    values: dict[str, int | str] = {**_values(report)}
    if not values:
        return Absence(Cause.NO_SOURCE, message(report) or "the disk reports nothing by SMART")
    values["verdict"] = code & VERDICTS
    values |= {name: said for name, said in _texts(report) if said}
    return Health(values, dict(_attributes(report)))


def _refused(said: str, code: int) -> Absence:
    if code & SLEEPS == SLEEPS:
        return Absence(Cause.ASLEEP, said)
    if "Permission denied" in said or "not permitted" in said:
        return Absence(Cause.NO_PERMISSION, said)
    if "No such device" in said or "No such file" in said:
        raise FileNotFoundError(ENOENT, said)
    is_unknown = code & COMMAND_FAILED or "Unknown USB bridge" in said
    return Absence(Cause.NO_SOURCE if is_unknown else Cause.PROBE_FAILED, said or f"smartctl: exit code {code}")


def message(report: Json) -> str:
    """What smartctl says went wrong, in one line."""
    said = [_text(each, "string", length_max=MESSAGE_LENGTH_MAX) for each in _list(report, "smartctl", "messages")]
    return "; ".join(filter(None, said))[:MESSAGE_LENGTH_MAX]


def _values(report: Json) -> dict[str, int]:
    """Every number, by name of its metric; of several sources of one the first that has it counts."""
    known: dict[str, int] = {}
    for of_kind in (_common, _nvme, _of_statistics, _of_attributes, _scsi, _self_tests):
        for name, value in of_kind(report):
            if value != ABSENT:
                known.setdefault(name, value)
    return known


def _common(report: Json) -> Iterator[tuple[str, int]]:
    passed = _member(report, "smart_status", "passed")
    yield "healthy", int(passed) if isinstance(passed, bool) else ABSENT
    yield "temperature", _temperature(_member(report, "temperature", "current"))
    yield "power_on", _time_s(report, "power_on_time")
    yield "power_cycles", _number(report, "power_cycle_count")
    yield "percent_used", _number(report, "endurance_used", "current_percent")
    yield "spare", _number(report, "spare_available", "current_percent")
    yield "spare_min", _number(report, "spare_available", "threshold_percent")
    yield "errors_logged", _number(report, "ata_smart_error_log", "summary", "count")


def _nvme(report: Json) -> Iterator[tuple[str, int]]:
    log = _member(report, "nvme_smart_health_information_log")
    if not isinstance(log, dict):
        return
    yield "temperature", _temperature(log.get("temperature"))
    for name, theirs in (
        ("warning", "critical_warning"),
        ("percent_used", "percentage_used"),
        ("spare", "available_spare"),
        ("spare_min", "available_spare_threshold"),
        ("power_cycles", "power_cycles"),
        ("unsafe_shutdowns", "unsafe_shutdowns"),
        ("media_errors", "media_errors"),
        ("errors_logged", "num_err_log_entries"),
    ):
        yield name, _number(log, theirs)
    yield "power_on", _times(_number(log, "power_on_hours"), HOUR_S)
    yield "read_bytes", _times(_number(log, "data_units_read"), NVME_UNIT_BYTES)
    yield "written_bytes", _times(_number(log, "data_units_written"), NVME_UNIT_BYTES)


def _of_statistics(report: Json) -> Iterator[tuple[str, int]]:
    """The device statistics of ATA, whose names are those of the standard (ACS-4, Device Statistics log)."""
    sector_bytes = _sector_bytes(report)
    factors = {
        "Logical Sectors Read": ("read_bytes", sector_bytes),
        "Logical Sectors Written": ("written_bytes", sector_bytes),
        "Percentage Used Endurance Indicator": ("percent_used", 1),
        "Number of Reported Uncorrectable Errors": ("media_errors", 1),
        "Lifetime Power-On Resets": ("power_cycles", 1),
        "Number of Interface CRC Errors": ("crc_errors", 1),
    }
    for page in _list(report, "ata_device_statistics", "pages"):
        for entry in _list(page, "table"):
            name, factor = factors.get(_text(entry, "name"), ("", 0))
            if name and _member(entry, "flags", "valid") is not False:
                yield name, _times(_number(entry, "value"), factor)


def _of_attributes(report: Json) -> Iterator[tuple[str, int]]:
    for entry in _list(report, "ata_smart_attributes", "table"):
        number, name, raw = _number(entry, "id"), _text(entry, "name"), _number(entry, "raw", "value")
        if number in _COUNTED:
            yield _COUNTED[number], raw
        elif name in _UNSAFE:
            yield "unsafe_shutdowns", raw
        elif name in _LEFT:
            left = _number(entry, "value")
            yield "percent_used", PERCENT - left if 0 <= left <= PERCENT else ABSENT
        elif name == "Available_Reservd_Space":
            yield "spare", _number(entry, "value")
            yield "spare_min", _number(entry, "thresh")
        elif name == "Reported_Uncorrect":
            yield "media_errors", raw
        elif name in _READ or name in _WRITTEN:
            unit_bytes = next((size for end, size in _UNITS_BYTES.items() if name.endswith(end)), _sector_bytes(report))
            yield "read_bytes" if name in _READ else "written_bytes", _times(raw, unit_bytes)


def _scsi(report: Json) -> Iterator[tuple[str, int]]:
    yield "reallocated", _number(report, "scsi_grown_defect_list")
    yield "pending", _number(report, "scsi_pending_defects", "count")
    yield "percent_used", _number(report, "scsi_percentage_used_endurance_indicator")
    yield "power_cycles", _number(report, "scsi_start_stop_cycle_counter", "accumulated_start_stop_cycles")
    uncorrected = []
    for kind, name in (("read", "read_bytes"), ("write", "written_bytes"), ("verify", "")):
        uncorrected.append(_number(report, "scsi_error_counter_log", kind, "total_uncorrected_errors"))
        if name:
            yield name, _gigabytes(_member(report, "scsi_error_counter_log", kind, "gigabytes_processed"))
    known = [errors for errors in uncorrected if errors != ABSENT]
    yield "media_errors", sum(known) if known else ABSENT


def _self_tests(report: Json) -> Iterator[tuple[str, int]]:
    """How the newest self-test ended, and at which age of the disk."""
    of_ata = [_list(report, "ata_smart_self_test_log", log, "table")[:1] for log in ("standard", "extended")]
    for entry in chain(*of_ata):
        code = _number(entry, "status", "value")
        yield "self_test", _ended("ata", code >> 4 if code != ABSENT else ABSENT)
        yield "self_test_age", _times(_number(entry, "lifetime_hours"), HOUR_S)
    for entry in _list(report, "nvme_self_test_log", "table")[:1]:
        yield "self_test", _ended("nvme", _number(entry, "self_test_result", "value"))
        yield "self_test_age", _times(_number(entry, "power_on_hours"), HOUR_S)
    yield "self_test", _ended("scsi", _number(report, "scsi_self_test_0", "result", "value"))
    yield "self_test_age", _time_s(report, "scsi_self_test_0", "power_on_time")


def _ended(kind: str, code: int) -> int:
    return ABSENT if code == ABSENT else _ENDED[kind].get(code, FAILED)


def _attributes(report: Json) -> Iterator[tuple[str, Attribute]]:
    """The attributes of ATA, each once."""
    failed = {"now": 1, "past": 2}
    for entry in _list(report, "ata_smart_attributes", "table")[:ATTRIBUTES_MAX]:
        if (number := _number(entry, "id")) != ABSENT:
            yield (
                f"{number} {_text(entry, 'name') or 'Unknown_Attribute'}",
                Attribute(
                    _number(entry, "raw", "value"),
                    _number(entry, "value"),
                    _number(entry, "worst"),
                    _number(entry, "thresh"),
                    failed.get(_text(entry, "when_failed"), 0),
                ),
            )


def _texts(report: Json) -> Iterator[tuple[str, str]]:
    yield "model", _text(report, "model_name") or _text(report, "scsi_model_name")
    yield "firmware", _text(report, "firmware_version") or _text(report, "scsi_revision")
    yield "protocol", _text(report, "device", "protocol")


# --- What may be anything


def _member(node: object, *path: str) -> object:
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _list(node: object, *path: str) -> list[Any]:
    member = _member(node, *path)
    return member if isinstance(member, list) else []


def _number(node: object, *path: str) -> int:
    """A whole number that fits; ABSENT for whatever else."""
    member = _member(node, *path)
    return member if type(member) is int and 0 <= member <= NUMBER_MAX else ABSENT


def _text(node: object, *path: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """A short printable text, or none."""
    member = _member(node, *path)
    if not isinstance(member, str):
        return ""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in member).split())[:length_max]


def _times(number: int, factor: int) -> int:
    return ABSENT if number == ABSENT or number * factor > NUMBER_MAX else number * factor


def _time_s(report: Json, *path: str) -> int:
    hours, minutes = _times(_number(report, *path, "hours"), HOUR_S), _number(report, *path, "minutes")
    return hours if hours == ABSENT or not 0 < minutes < MINUTE_S else hours + minutes * MINUTE_S


def _temperature(reading: object) -> int:
    return reading if type(reading) is int and reading in TEMPERATURES else ABSENT


def _gigabytes(text: object) -> int:
    """Bytes of a decimal text of gigabytes, as ``1234.567``."""
    whole, _, thousandths = text.partition(".") if isinstance(text, str) else ("", "", "")
    digits = f"{whole}{thousandths[:3]:0<3}"
    return _times(int(digits), GIGABYTE // 1000) if digits.isascii() and digits.isdigit() and whole else ABSENT


def _sector_bytes(report: Json) -> int:
    size_bytes = _number(report, "logical_block_size")
    return size_bytes if size_bytes in {512, 520, 524, 528, 4096, 4160, 4224} else SECTOR_BYTES
