# SPDX-License-Identifier: Apache-2.0
"""How numbers are spelled for people: three digits, and the prefix or the unit of time that makes them short. Pure."""

from itertools import pairwise

_KIBI = 1024
_MILLE = 1000
# Up to here a whole number is written whole.
_WHOLE_MAX = 100_000
# What is smaller would be spelled as nothing.
_SMALLEST = 0.005
_MINUTE_S = 60.0
_PREFIXED = frozenset({"Hz", "bit/s", "W", "J", "V", "A"})


def size(size_bytes: float) -> str:
    """Bytes with a binary prefix and three digits: 0 B, 1.20 MiB, 345 KiB."""
    value = float(size_bytes)
    for prefix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if value < _MILLE or prefix == "Pi":
            return f"{value:.0f} B" if not prefix else f"{three(value)} {prefix}B"
        value /= _KIBI
    raise AssertionError


def number(value: float) -> str:
    """A count with a decimal prefix and three digits: 7, 345, 1.20 k."""
    for prefix in ("", " k", " M", " G", " T"):
        if value < _MILLE - 0.5 or prefix == " T":
            return f"{value:.0f}" if not prefix else f"{three(value)}{prefix}"
        value /= _MILLE
    raise AssertionError


def three(value: float) -> str:
    """Three digits, and more only before the point: 1.20, 34.5, 345."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"  # noqa: PLR2004


def duration(length_s: float) -> str:
    """A length of time in its two largest units: 7 s, 3 min 20 s, 2 d 3 h."""
    whole = int(length_s)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (name, unit), (next_name, next_unit) in pairwise(units):
        if whole >= unit:
            rest = whole % unit // next_unit
            return f"{whole // unit} {name}" + (f" {rest} {next_name}" if rest else "")
    return f"{whole} s"


def spelled(value: float, unit: str, *, is_ascii: bool = False) -> str:
    """A value of any unit that metrics have; what ``heading`` gives of the unit stands above it."""
    if value < 0:
        return f"-{spelled(-value, unit, is_ascii=is_ascii)}"
    match unit:
        case "B" | "B/s":
            return size(value)
        case "s":
            return _length(value, "us" if is_ascii else "µs")
        case _ if unit in _PREFIXED:
            return _prefixed(value, unit)
        case _:
            return _counted(value)


def with_unit(value: float, unit: str, *, is_ascii: bool = False) -> str:
    """A value that stands alone, without a heading: ``4.00 KiB/s``, ``97.9 %``."""
    above = heading(unit)
    between = " " if above and not above.startswith("/") else ""
    return f"{spelled(value, unit, is_ascii=is_ascii)}{between}{above}"


def heading(unit: str) -> str:
    """What stands above a column: nothing where each value says it."""
    if unit in {"B", "s", "1", "text", "time", ""} or unit in _PREFIXED:
        return ""
    return "/s" if unit in {"B/s", "1/s"} else unit


def _counted(value: float) -> str:
    if 0 < value < _SMALLEST:
        return f"<{_SMALLEST * 2}"
    if value == round(value) and value < _WHOLE_MAX:
        return f"{value:.0f}"
    return three(value) if value < _MILLE else number(value)


def _length(length_s: float, micro: str) -> str:
    if length_s >= _MINUTE_S:
        return duration(length_s)
    if length_s >= 0.9995 or not length_s:  # noqa: PLR2004  What three digits of milliseconds hold.
        return f"{three(length_s)} s" if length_s else "0 s"
    if length_s >= 0.9995e-3:  # noqa: PLR2004  as above
        return f"{three(length_s * 1e3)} ms"
    return f"{three(length_s * 1e6)} {micro}"


def _prefixed(value: float, unit: str) -> str:
    """With a decimal prefix that is part of the unit: 2.40 GHz; small ones as they are."""
    if not value:
        return f"0 {unit}"
    if value < _MILLE - 0.5:
        return f"{three(value)} {unit}"
    digits, _, prefix = number(value).partition(" ")
    return f"{digits} {prefix}{unit}"
