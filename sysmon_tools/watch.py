# SPDX-License-Identifier: Apache-2.0
"""Watching the newest values, each second; on a terminal in place, elsewhere a block of lines a time."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from sysmon_tools.client import Client, variants
from sysmon_tools.show import columns, console, screen
from sysmond.base.terminal import put
from sysmond.base.timespec import format_time
from sysmond.errors import UsageError

PERIOD_S = 1.0
SERIES_MAX = 1000
# From here on nobody reads decimals.
_WHOLE_FROM = 1e6
# What a value is worth, by the number that the bus gives.
QUALITIES = {0: "", 1: "absent", 2: "stale", 3: "no permission", 4: "unknown", 5: ""}


async def run(client: Client, metrics: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """Show the values of these series until interrupted, or as often as was asked for."""
    if len(metrics) > SERIES_MAX:
        raise UsageError(f"{len(metrics)} series; expected at most {SERIES_MAX}")
    left = options.count
    with screen(console()) if _is_live(options) else nullcontext() as shown:
        while left is None or left > 0:
            rows = await _values(client, metrics)
            if options.json:
                put(json.dumps({"time_ns": time.time_ns(), "values": rows}))
                sys.stdout.flush()
            elif shown is not None:
                shown.update(_table(rows), refresh=True)
            else:
                _write(rows)
            left = None if left is None else left - 1
            if left != 0:
                await asyncio.sleep(PERIOD_S)


def _write(rows: Sequence[dict[str, Any]]) -> None:
    """Where there is no terminal: a line a value, each with the time."""
    now = format_time(time.time_ns())
    put(*(f"{now}  {row['path']}  {_spelled(row)}" for row in rows))
    sys.stdout.flush()


def _is_live(options: argparse.Namespace) -> bool:
    return sys.stdout.isatty() and not options.json


async def _values(client: Client, metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    _, _, values, qualities = await client.call(
        "GetLatest", "aua{sv}", [metric["id"] for metric in metrics], variants({"rate": ("b", True)})
    )
    return [
        {
            "path": metric["path"],
            "unit": metric.get("rate_unit", metric["unit"]),
            "value": value if quality in {0, 2} else None,
            "quality": QUALITIES.get(quality, "unknown"),
            **({"text": metric["text"]} if "text" in metric else {}),
        }
        for metric, value, quality in zip(metrics, values, qualities, strict=True)
    ]


def _table(rows: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401  what rich draws
    return columns(("series", "value"), [(row["path"], _spelled(row)) for row in rows], right=("value",))


def _spelled(row: dict[str, Any]) -> str:
    if row["value"] is None:
        return str(row.get("text") or row["quality"])
    number = f"{row['value']:,.6g}" if abs(row["value"]) < _WHOLE_FROM else f"{row['value']:,.0f}"
    said = number if row["unit"] == "1" else f"{number} {row['unit']}"
    return f"{said} ({row['quality']})" if row["quality"] else said
