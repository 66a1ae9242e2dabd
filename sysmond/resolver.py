# SPDX-License-Identifier: Apache-2.0
"""The resolver: configuration and plugins become one checked plan, in a short-lived process.

``python -m sysmond.resolver --output PLAN.json`` writes it; exit code 0, or one line and the exit
code of ``sysmond.errors``. Whatever is refused without making the plan wrong is a line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sysmond import config, folders, plan, plugins
from sysmond.config import Config, ProbeSettings
from sysmond.errors import ConfigError, Error, UsageError, nearest
from sysmond.model import Lane, Sensitivity
from sysmond.plan import Plan, PlannedProbe, Refusal
from sysmond.plugins import Discovery, Plugin
from sysmond.probe import Probe


def resolve(configuration: Config, discovery: Discovery) -> Plan:
    """Decide which probes run, where, how often and for whom.

    :raises ConfigError: where the configuration names a probe that is not there, or asks what it may not.
    :raises Error: where there is no plugin at all, which is a broken installation.
    """
    if not discovery.plugins:
        reasons = "; ".join(f"{each.plugin}: {each.reason}" for each in discovery.refused[:3])
        raise Error(f"no plugin to run: {reasons or 'sysmond is not installed for this Python'}")
    offered = {probe.table.name: (plugin, probe) for plugin in discovery.plugins for probe in plugin.probes}
    refused = list(discovery.refused)
    for name, settings in configuration.probes.items():
        if name not in offered:
            problem = f"{settings.origin}: probes.{name}: no such probe{nearest(name, offered)}"
            if not refused:
                raise ConfigError(" ".join(problem.split()))
            # It may belong to a refused plugin, whose failure must not cost the whole configuration.
            refused.append(Refusal(f"probes.{name}", f"{problem}; or its plugin is refused"))
    planned = []
    for name, (plugin, probe) in sorted(offered.items()):
        planned.append(_plan_probe(plugin, probe, configuration.probes.get(name), configuration))
    return Plan(tuple(planned), tuple(refused), configuration.sampler, configuration.archiver)


def make_plan(*, file: str | None, user: bool, environ: Mapping[str, str], uid: int) -> Plan:
    """Read configuration and plugins of this machine, or of this user, and resolve them.

    :raises Error: as one line.
    """
    configuration = config.load(file=file, user=user, environ=environ, uid=uid)
    probe_folder = f"{folders.configuration_home(environ, uid)}/probes" if user else plugins.SYSTEM_PROBE_FOLDER
    return resolve(configuration, plugins.discover(probe_folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit code."""
    output = "standard output"
    try:
        options = _parser().parse_args(arguments)
        uid = os.getuid()
        user = options.user or (uid != 0 and not options.system)
        made = make_plan(file=options.config, user=user, environ=os.environ, uid=uid)
        if options.output is None:
            sys.stdout.write(plan.encode(made).decode() + "\n")
        else:
            output = options.output
            if options.parent not in {None, os.getppid()}:
                raise Error("not made: who asked for it is gone")
            plan.write(made, output)
    except Error as wrong:
        _say(str(wrong))
        return wrong.exit_code
    except OSError as failure:
        _say(f"{output}: {failure.strerror or failure}; a file that can be written is right")
        return 1
    for refusal in made.refused:
        _say(f"refused: {refusal.plugin}: {refusal.reason}")
    return 0


def _plan_probe(plugin: Plugin, probe: Probe, settings: ProbeSettings | None, configuration: Config) -> PlannedProbe:
    planned = plan.as_declared(plugin.name, probe)
    if not plugin.is_ours:
        planned = planned._replace(lane=Lane.BACKGROUND, sensitivity=Sensitivity.RESTRICTED)
    if settings is None:
        return planned
    if settings.enabled is not None:
        planned = planned._replace(enabled=settings.enabled)
    if settings.interval_ns is not None:
        planned = planned._replace(interval_ns=settings.interval_ns)
    if settings.lane is not None:
        if settings.lane is Lane.REALTIME and probe.lane is Lane.BACKGROUND:
            raise _stricter(planned.table, "lane", "realtime", "background", configuration)
        planned = planned._replace(lane=settings.lane)
    if settings.sensitivity is not None:
        if settings.sensitivity is Sensitivity.PUBLIC and probe.sensitivity is Sensitivity.RESTRICTED:
            raise _stricter(planned.table, "sensitivity", "public", "restricted", configuration)
        planned = planned._replace(sensitivity=settings.sensitivity)
    return planned


def _stricter(table: str, key: str, given: str, declared: str, configuration: Config) -> ConfigError:
    origin = configuration.settings["probes", table, key].origin
    return ConfigError(f"{origin}: probes.{table}.{key}: {given}; {declared}, as the probe declares itself, is right")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; '{self.prog} --help' shows what is right")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("python -m sysmond.resolver", description="Turn configuration and plugins into a plan.")
    parser.add_argument("--config", metavar="FILE", help="read this file instead of all others")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--user", action="store_true", help="the user's own configuration and probes, for root too")
    whose.add_argument("--system", action="store_true", help="those of the machine, for an unprivileged user too")
    parser.add_argument("--parent", metavar="PID", type=int, help="write nothing once its parent is another process")
    parser.add_argument("--output", metavar="PLAN", help="write the plan to this file (default: standard output)")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"sysmond: {' '.join(line.split())}\n")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # A plugin may have left threads behind, which sys.exit() would wait for.
