# SPDX-License-Identifier: Apache-2.0
"""Writes how the columns of an answer came about: for people, or as JSON."""

import json
from collections.abc import Callable, Iterable, Iterator

from sysmon_tools.style import Style
from sysmond.base.clock import SECOND_NS
from sysmond.base.result import Explanation
from sysmond.base.terminal import printable
from sysmond.base.timespec import Notation, format_step

Writer = Callable[[Iterable[Explanation], Style], Iterator[bytes]]


def _seconds(length_ns: int) -> str:
    return f"{length_ns / SECOND_NS:.9f}".rstrip("0").rstrip(".")


def _lines(explanation: Explanation, style: Style) -> Iterator[tuple[str, str]]:
    """What is said of a column: a word and a text a line."""
    yield "source", explanation.origin or "not declared"
    yield "formula", explanation.formula
    for part in explanation.answered:
        span = f"{style.time(part.start_ns)} to {style.time(part.end_ns)}"
        every = f" every {format_step(part.step_ns)}" if part.step_ns else ""
        yield "answered", f"{part.tier}{every}, {span}"
    if not explanation.answered:
        yield "answered", "nothing in this range"
    yield "resampling", explanation.resampling
    for gap in explanation.gaps:
        yield "gaps", f"{gap.number} × {gap.cause}, {_seconds(gap.total_ns)} s in all"
    if not explanation.gaps:
        yield "gaps", "none"


def _text(explanations: Iterable[Explanation], style: Style) -> Iterator[bytes]:
    """Write a paragraph a column."""
    for number, explanation in enumerate(explanations):
        step = f" every {format_step(explanation.step_ns)}" if explanation.step_ns else ""
        heading = f"{explanation.path} {explanation.stat} [{explanation.unit}]{step}"
        yield b"\n" * bool(number) + printable(heading).encode() + b"\n"
        for word, text in _lines(explanation, style):
            yield printable(f"  {word:<12}{text}").encode() + b"\n"


def _object(explanation: Explanation, style: Style) -> bytes:
    def time(time_ns: int) -> str | float | int:
        text = style.time(time_ns)
        if style.notation is not Notation.EPOCH:
            return text
        return float(text) if "." in text else int(text)

    answered = [
        {
            "tier": part.tier,
            "step": format_step(part.step_ns) if part.step_ns else None,
            "from": time(part.start_ns),
            "to": time(part.end_ns),
        }
        for part in explanation.answered
    ]
    gaps = [
        {"cause": str(gap.cause), "count": gap.number, "seconds": gap.total_ns / SECOND_NS} for gap in explanation.gaps
    ]
    return json.dumps(
        {
            "path": explanation.path,
            "stat": explanation.stat,
            "unit": explanation.unit,
            "source": explanation.origin,
            "formula": explanation.formula,
            "step": format_step(explanation.step_ns) if explanation.step_ns else None,
            "answered": answered,
            "resampling": explanation.resampling,
            "gaps": gaps,
        }
    ).encode()


def _json(explanations: Iterable[Explanation], style: Style) -> Iterator[bytes]:
    yield b"[" + b",\n".join(_object(explanation, style) for explanation in explanations) + b"]\n"


def _jsonl(explanations: Iterable[Explanation], style: Style) -> Iterator[bytes]:
    for explanation in explanations:
        yield _object(explanation, style) + b"\n"


WRITERS: dict[str, Writer] = {"table": _text, "json": _json, "jsonl": _jsonl}
