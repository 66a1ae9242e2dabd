# SPDX-License-Identifier: Apache-2.0
"""The names of other programs lead to columns that there are, every table has some, and the sampler holds none."""

import ast
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from docs import generate
from sysmond.base import elsewhere

# Tables for which we know no program that has a name for any of their columns, and why.
NAMELESS = {
    "air_pressure": "barometers are read by no program of those in use",
    "backlight": "brightnessctl and the like print one level, without a name",
    "address": "ip prints addresses, and counts none",
    "cpu_idle": "turbostat and cpupower name columns after the states, which are instances here",
    "flush": "sysmond's own",
    "hugepages": "hugeadm prints pools of the files' own names",
    "init": "ps and pstree print it as any other process",
    "input": "nobody else counts it",
    "orientation": "iio-sensor-proxy says it in words, without a name",
    "vibration": "nobody else counts it",
    "killed": "killsnoop of bcc prints each, and counts none",
    "kernel_message": "dmesg shows the messages themselves",
    "motion": "sensors of motion have no name in iio-sensor-proxy, only what follows from them",
    "mounts": "nobody else counts it",
    "package": "apt and dpkg have logs, and no numbers",
    "pstore": "systemd-pstore moves its records, and counts none",
    "proximity": "iio-sensor-proxy says only near or far",
    "route": "ip prints routes in words, without a name",
    "runtime_pm": "powertop shows it without names",
    "stall": "nobody else counts it",
    "screen": "xrandr and the like print states in words, without a name",
    "self": "sysmond's own",
    "setting": "sysctl prints each by a name of its own, which is an instance here",
    "session": "loginctl lists sessions, and counts none",
    "unit": "systemctl shows what units are, and counts nothing",
    "unit_file": "systemd-delta lists what is overridden, and counts nothing",
    "watchdog": "wdctl prints bits and texts, without a name",
    "wifi_connection": "iw prints events in words, and counts none",
    "zswap": "the files of debugfs alone have names for it",
}


def test_every_name_leads_to_a_column() -> None:
    columns = generate.units_here()
    wrong = [
        f"{name.program} {name.name}: {path}"
        for name in elsewhere.every()
        for path in name.paths
        if (of := path.partition("@")[0].partition("/"))[2] != "*" and of[2] not in columns.get(of[0], {})
    ]
    assert wrong == []
    assert len([*elsewhere.every()]) > 1000


def test_every_table_has_a_name_elsewhere_or_a_reason() -> None:
    named = {path.partition("/")[0] for name in elsewhere.every() for path in name.paths}
    tables = {probe.table.name for probe in generate.catalogue()}
    assert tables - named - NAMELESS.keys() == set(), "neither in sysmond/base/elsewhere/ nor above"
    assert NAMELESS.keys() & named == set()
    assert named - tables == set()


@pytest.mark.parametrize("module", elsewhere.MODULES)
def test_a_name_of_a_program_means_one_thing_unless_it_says_or(module: str) -> None:
    """A mapping that is made of others, as ``{**_CPU, **_DISK}``, would let the last one win in silence."""
    loaded = import_module(f"{elsewhere.__name__}.{module}")
    twice: dict[str, int] = {}
    for node in ast.walk(ast.parse(Path(str(loaded.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            names = Counter[str]()
            for key, value in zip(node.keys, node.values, strict=True):
                part = ast.Expression(value if key is None else ast.List([key], ast.Load()))
                compiled = compile(ast.fix_missing_locations(part), module, "eval")
                names.update([*eval(compiled, vars(loaded))])  # noqa: S307  our own source
            twice |= {name: node.lineno for name, count in names.items() if count > 1}
    assert twice == {}


def test_the_parts_that_sample_hold_none_of_them() -> None:
    """Nor does anybody who makes no mistake: they are imported to speak of one."""
    program = """if True:
        import sys
        from sysmond.plan import plan
        from sysmond.sampler import lane
        import sysmond.history
        probes = plan.builtin().probes
        assert len(probes) > 50, probes
        print(sorted(name for name in sys.modules if "elsewhere" in name))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    declared = {probe.table.name: probe.table.answers for probe in generate.catalogue() if probe.table.answers}
    assert len(declared) > 10
    assert {name: answers.aliases for name, answers in declared.items() if answers.aliases} == {}
