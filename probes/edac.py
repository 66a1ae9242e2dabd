# SPDX-License-Identifier: Apache-2.0
"""Errors of memory that ECC corrected or could not correct, by memory controller and module, from EDAC.

Source: the kernel's ``Documentation/driver-api/edac.rst`` and ``ABI/testing/sysfs-devices-edac``. Drivers poll or are
interrupted anyway, and the kernel keeps these counts: no controller is asked.
"""

from collections.abc import Iterator
from itertools import chain

from sysmond.probe import ABSENT, Host, Lane, Probe, Row, Table, Tells, counter, gauge, hookimpl, rows_of, text
from sysmond.sources.unread import printable

FOLDER = "/sys/devices/system/edac/mc"
INTERVAL_S = 30.0
CONTROLLERS_MAX, MODULES_MAX = 64, 1024
MIB = 1024 * 1024

EDAC = Table(
    "edac",
    per="controller:module",
    doc="Errors of ECC memory: for each controller (mc0), and for each module or rank that it knows"
    " (mc0:dimm3), whose errors are included in those of the controller. They count from boot, or"
    " from the last reset.",
    metrics=(
        counter("corrected", "1", "Errors that were corrected.", 0, "ce_count, dimm_ce_count"),
        counter("uncorrected", "1", "Errors that could not be corrected.", 0, "ue_count, dimm_ue_count"),
        counter("corrected_anywhere", "1", "Corrected errors of an unknown module.", 0, "ce_noinfo_count"),
        counter("uncorrected_anywhere", "1", "Uncorrected errors of an unknown module.", 0, "ue_noinfo_count"),
        gauge("size", "B", "Size of the memory.", 0, "size_mb, size"),
        text(
            "name",
            "What controls it, or where on the board the module is, as its maker labels it.",
            "mc_name, dimm_label",
        ),
        text("kind", "Type of the module, such as Registered-DDR4.", "dimm_mem_type"),
    ),
)


def read(host: Host) -> Iterator[Row]:
    """Give a row for each controller, and for each of its modules."""
    controllers = [name for name in host.names(FOLDER) if _is_numbered(name, "mc")][:CONTROLLERS_MAX]
    modules = [
        f"{controller}:{name}"
        for controller in controllers
        for name in host.names(f"{FOLDER}/{controller}")
        if _is_numbered(name, "dimm") or _is_numbered(name, "rank")
    ][:MODULES_MAX]

    def of_controller(name: str) -> tuple[int | str, ...]:
        folder = f"{FOLDER}/{name}"
        corrected, uncorrected = (_bounded(int(host.read(f"{folder}/{kind}_count"))) for kind in ("ce", "ue"))
        anywhere = (_bounded(host.integer(f"{folder}/{kind}_noinfo_count")) for kind in ("ce", "ue"))
        return (
            corrected,
            uncorrected,
            *anywhere,
            _bytes(host, f"{folder}/size_mb"),
            _text(host, f"{folder}/mc_name"),
            ABSENT,
        )

    def of_module(name: str) -> tuple[int | str, ...]:
        folder = f"{FOLDER}/{name.replace(':', '/')}"
        counts = (_bounded(host.integer(f"{folder}/dimm_{kind}_count")) for kind in ("ce", "ue"))
        texts = (_text(host, f"{folder}/{file}") for file in ("dimm_label", "dimm_mem_type"))
        return *counts, ABSENT, ABSENT, _bytes(host, f"{folder}/size"), *texts

    return chain(rows_of(controllers, of_controller), rows_of(modules, of_module))


def _is_numbered(name: str, kind: str) -> bool:
    return name.startswith(kind) and name.removeprefix(kind).isdecimal()


def _bytes(host: Host, path: str) -> int:
    size = host.integer(path)
    return _bounded(size * MIB) if size != ABSENT else ABSENT


def _bounded(number: int) -> int:
    return number if 0 <= number < -ABSENT else ABSENT


def _text(host: Host, path: str) -> str | int:
    word = host.word(path)
    return word if isinstance(word, int) else printable(word.encode("utf-8", "surrogateescape")) or ABSENT


_TELLS = (Tells("memory error", "corrected", grows=True), Tells("memory error", "uncorrected", grows=True))


@hookimpl
def sysmond_probes() -> list[Probe]:
    """Offer the table ``edac``."""
    return [
        Probe(
            EDAC,
            read,
            INTERVAL_S,
            Lane.BACKGROUND,
            subsystems=("edac",),
            needs=(f"{FOLDER}/mc*/ce_count",),
            tells=_TELLS,
        )
    ]
