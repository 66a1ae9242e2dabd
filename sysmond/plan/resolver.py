# SPDX-License-Identifier: Apache-2.0
"""The resolver: configuration and plugins become one checked plan, in a short-lived process.

``python -m sysmond.plan.resolver --output PLAN.json`` writes it, and the catalogue beside it; exit code 0, or one
line and the exit code of ``sysmond.errors``. Whatever is refused without making the plan wrong is a line on
standard error. ``--set`` changes the drop-in of what is changed while sysmond runs, where all is right.
"""

import argparse
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from sysmond.base.clock import SECOND_NS
from sysmond.base.model import FINEST_TIER, Lane, Sensitivity
from sysmond.base.terminal import confess, put, say
from sysmond.errors import ConfigError, Error, NotPermittedError, UsageError, nearest
from sysmond.machine import folders
from sysmond.machine.commandline import Parser
from sysmond.machine.lacking import LackingReport
from sysmond.plan import catalogue, config, config_keys, plan, plan_cache, plugins, retention, written_settings
from sysmond.plan.catalogue import Catalogue, Defaults, EffectiveSetting, ProbeEntry
from sysmond.plan.config import Config, ProbeSettings
from sysmond.plan.plan import LANE_INTERVAL_MIN_NS, Plan, PlannedProbe, Refusal, Scalar
from sysmond.plan.plugins import Discovery, Plugin
from sysmond.probe import Probe


def resolve(configuration: Config, discovery: Discovery, written: str = "", asked: Collection[str] = ()) -> Plan:
    """Decide which probes run, where, how often and for whom.

    ``written``: the drop-in that is written by program. A probe that is no more, as when its package was removed, must
    not keep sysmond from starting because of what was once set there; those ``asked`` for now must be there.

    :raises ConfigError: where the configuration names a probe that is not there, or asks what it may not.
    :raises Error: where there is no plugin at all, which is a broken installation.
    """
    if not discovery.plugins:
        reasons = "; ".join(f"{refusal.plugin}: {refusal.reason}" for refusal in discovery.refused[:3])
        raise Error(f"no plugin to run: {reasons or 'sysmond is not installed for this Python'}")
    offered = {probe.table.name: (plugin, probe) for plugin in discovery.plugins for probe in plugin.probes}
    refused = list(discovery.refused)
    for name, settings in configuration.probes.items():
        if name not in offered:
            key = config.spell_path(("probes", name))
            problem = f"{settings.origin}: {key}: no such probe{nearest(name, offered)}"
            if not refused and (settings.origin.file != written or name in asked):
                raise ConfigError(" ".join(problem.split()))
            # It may belong to a refused plugin, whose failure must not cost the whole configuration.
            refused.append(Refusal(key, f"{problem} (or its plugin is refused)"))
    check_pins(configuration)
    planned = []
    for name, (plugin, probe) in sorted(offered.items()):
        planned.append(_plan_probe(plugin, probe, configuration.probes.get(name), configuration))
    planned = _with_enabled_by_options(planned, discovery, configuration)
    return Plan(tuple(planned), tuple(refused), configuration.sampler, configuration.archiver)


def _with_enabled_by_options(
    planned: Sequence[PlannedProbe], discovery: Discovery, configuration: Config
) -> list[PlannedProbe]:
    """Let those run that options of others enable, unless something is said of them themselves."""
    options = {probe.table.name: probe.options for plugin in discovery.plugins for probe in plugin.probes}
    enabled = {
        option.enables
        for probe_planned in planned
        for option in options[probe_planned.table]
        if probe_planned.enabled and option.enables and probe_planned.options[option.name]
    }
    said = {name for name, settings in configuration.probes.items() if settings.enabled is not None}
    return [
        probe_planned._replace(enabled=True) if probe_planned.table in enabled - said else probe_planned
        for probe_planned in planned
    ]


def check_pins(configuration: Config) -> None:
    """Whole files are pinned: what cannot hold one holds nothing.

    :raises ConfigError: with the smallest budget that works.
    """
    limits, pins_bytes = retention.of_settings(configuration.archiver)
    least_bytes = retention.file_bytes_max(limits[FINEST_TIER])
    if 0 < pins_bytes < least_bytes:
        said = configuration.settings["tiers", "pins", "size"]
        right = f"{least_bytes}B is the smallest that works, 0B for none"
        raise ConfigError(
            f"{said.origin}: tiers.pins.size: {config.spell_text(said.text)} is less than a file of tiers.1s; {right}"
        )


def describe(configuration: Config, discovery: Discovery, made: Plan) -> Catalogue:
    """Put together what is declared, what is planned, and where each setting is said."""
    planned = {probe.table: probe for probe in made.probes}
    tables: dict[str, ProbeEntry] = {}
    settings = [_setting(key.path, key.default, configuration) for key in config_keys.KEYS if key.path[0] != "probes"]
    for plugin in discovery.plugins:
        for probe in plugin.probes:
            name = probe.table.name
            declared = Defaults(
                probe.lane, round(probe.interval_s * SECOND_NS), plan.as_declared("", probe).sensitivity
            )
            tables[name] = ProbeEntry(
                probe.table,
                plugin.is_ours,
                planned[name],
                declared,
                probe.options,
                probe.privilege,
            )
    for name, planned_probe in planned.items():
        own: dict[tuple[str, ...], str] = {
            ("enabled",): config_keys.spell(planned_probe.enabled),
            ("interval",): config_keys.spell_duration(planned_probe.interval_ns),
            ("lane",): planned_probe.lane,
            ("sensitivity",): planned_probe.sensitivity,
            **{("options", option): config_keys.spell(value) for option, value in planned_probe.options.items()},
        }
        settings += [_setting(("probes", name, *key), value, configuration) for key, value in own.items()]
    return Catalogue(dict(sorted(tables.items())), made.refused, tuple(settings))


def _setting(path: config_keys.Path, default: str, configuration: Config) -> EffectiveSetting:
    said = configuration.settings.get(path)
    if said is None:
        return EffectiveSetting(".".join(path), default)
    return EffectiveSetting(".".join(path), said.text, *said.origin)


class Made(NamedTuple):
    """What there is to write. ``changed``: the text of the drop-in, where something is changed in it."""

    plan: Plan
    catalogue: Catalogue
    changed: bytes | None = None


def make(where: config.ConfigFiles, probe_folder: str, changes: Sequence[written_settings.Change] = ()) -> Made:
    """Read configuration and plugins, and resolve them; nothing is written.

    :raises Error: as one line.
    """
    changed = None
    try:
        if changes:
            configuration, changed = written_settings.read_changed(where, changes)
        else:
            configuration = config.read(config.files(where))
        discovery = plugins.discover(probe_folder)
        asked = {change.path[1] for change in changes}
        made = resolve(configuration, discovery, f"{where.drop_ins}/{written_settings.NAME}", asked)
    except ConfigError as wrong:
        raise ConfigError(written_settings.as_asked(where, changes, str(wrong))) from wrong
    return Made(made, describe(configuration, discovery, made), changed)


def write(made: Made, where: config.ConfigFiles, output: str) -> str:
    """Write drop-in, catalogue and plan, in this order: who reads the plan finds the others.

    Where the plan cannot be written, the drop-in stays as it was; recording goes on without a catalogue, and what
    is returned says why.

    :raises Error: naming what cannot be written.
    """
    path = f"{where.drop_ins}/{written_settings.NAME}"
    try:
        before = written_settings.content(where)
        if made.changed is not None:
            written_settings.write(where, made.changed)
        path = output
        remark = _write_catalogue(made.catalogue, os.path.dirname(output) or ".")
        try:
            plan.write(made.plan, output)
        except OSError:
            if made.changed is not None:
                written_settings.write(where, before)
            raise
    except OSError as failure:
        kind = NotPermittedError if isinstance(failure, PermissionError) else Error
        raise kind(f"{path}: {failure.strerror or failure}; expected a file that can be written") from failure
    return remark


def _write_catalogue(what: Catalogue, folder: str) -> str:
    path = f"{folder}/{catalogue.FILE}"
    try:
        plan.put(catalogue.encode(what), path, Sensitivity.RESTRICTED)
        path = f"{folder}/{catalogue.ANSWERS_FILE}"
        plan.put(catalogue.encode_answers(what), path, Sensitivity.PUBLIC)
    except OSError as failure:
        with suppress(OSError):
            os.unlink(f"{path}.new")  # It is large, and others need the room.
        return f"{path}: {failure.strerror or failure}; probes and settings cannot be listed"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit code."""
    os.umask(folders.UMASK)
    began_ns = time.time_ns()
    options = argparse.Namespace(output=None)
    try:
        options = _parser().parse_args(arguments, options)
        uid = os.getuid()
        user = options.user or (uid != 0 and not options.system)
        where = config.place(file=options.config, user=user, environ=os.environ, uid=uid)
        _check_own(where, options)
        own = folders.configuration_home(os.environ, uid) if user else None
        probe_folder = plugins.SYSTEM_PROBE_FOLDER if own is None else f"{own}/probes"
        made = make(where, probe_folder, options.changes)
        if options.output is None:
            put(*plan.encode(made.plan).decode().splitlines())
        elif options.parent not in {None, os.getppid()}:
            raise Error("not made: the caller has gone")
        else:
            if remark := write(made, where, options.output):
                say(remark)
            if options.cache is not None:
                _keep(made, where, probe_folder, options, began_ns)
            LackingReport(os.path.dirname(options.output))
    except Error as wrong:
        say(str(wrong))
        if options.output is not None and not options.changes:
            LackingReport(os.path.dirname(options.output)).tell([f"{wrong}; going on with what was planned before"])
        return wrong.exit_code
    except OSError as failure:
        say(f"standard output: {failure.strerror or failure}; expected one that can be written to")
        return 1
    refusals = [f"refused: {refusal.plugin}: {refusal.reason}" for refusal in made.plan.refused]
    for line in (*refusals, *plan.remarks(made.plan)):
        say(line)
    return 0


def _check_own(where: config.ConfigFiles, options: argparse.Namespace) -> None:
    """Refuse to change files that another recorder has, too.

    :raises UsageError: naming the folder, and how to have one of one's own.
    """
    if options.borrowed and options.changes:
        right = "to change this one alone, start it with --config FILE, which may be empty"
        raise UsageError(f"{where.drop_ins}: belongs to the recorder with the default folders; {right}")


def _keep(made: Made, where: config.ConfigFiles, probe_folder: str, options: argparse.Namespace, began_ns: int) -> None:
    """Keep the plan for the next start, where all that it was made of is known, and nothing was refused.

    What is refused is to be said, and tried, again. Plugins of other packages were loaded by others than this process.
    """
    names = {probe.plugin for probe in made.plan.probes}
    modules = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if not name.startswith("/")}
    with suppress(OSError, Error):
        if made.plan.refused or None in modules.values():
            os.unlink(f"{options.cache}/{plan_cache.MADE_OF}")
            return
        read = [*config.files(where), config.VENDOR_FILE, f"{config.SYSTEM_FOLDER}/sysmond.yaml", where.drop_ins]
        # A folder's stamp changes with what is put into it and taken from it.
        around = [os.path.dirname(config.VENDOR_FILE), config.SYSTEM_FOLDER, probe_folder]
        files = [name for name in names if name.startswith("/")]
        paths = {*read, *around, *files, *sys.path, *_of(modules)}
        plan_cache.store(os.path.dirname(options.output), options.cache, paths, began_ns)


def _of(modules: Mapping[str, str | None]) -> Iterator[str]:
    """The files of modules, and the folders that these lie in."""
    for file in modules.values():
        if file is not None:
            yield file
            yield os.path.dirname(file)


def _plan_probe(plugin: Plugin, probe: Probe, settings: ProbeSettings | None, configuration: Config) -> PlannedProbe:
    planned = plan.as_declared(plugin.name, probe)
    if not plugin.is_ours:
        planned = planned._replace(lane=Lane.BACKGROUND, sensitivity=Sensitivity.RESTRICTED)
    if settings is None:
        return _paced(planned)
    options = planned.options | _options(probe, settings, configuration)
    enabled = planned.enabled if settings.enabled is None else settings.enabled
    planned = planned._replace(enabled=enabled, options=options)
    if settings.lane is not None:
        is_too_fast = settings.lane is Lane.REALTIME and probe.lane is Lane.BACKGROUND
        if is_too_fast or planned.lane is Lane.ONESHOT:
            raise _stricter(planned.table, "lane", settings.lane, probe.lane, configuration)
        planned = planned._replace(lane=settings.lane)
    if settings.sensitivity is not None:
        if settings.sensitivity is Sensitivity.PUBLIC and probe.sensitivity is Sensitivity.RESTRICTED:
            raise _stricter(planned.table, "sensitivity", "public", "restricted", configuration)
        planned = planned._replace(sensitivity=settings.sensitivity)
    if settings.interval_ns is not None:
        planned = planned._replace(interval_ns=settings.interval_ns, on_battery_ns=0)
        if _paced(planned) != planned:
            raise _too_often(planned, configuration)
    return _paced(planned)


def _too_often(planned: PlannedProbe, configuration: Config) -> ConfigError:
    said = configuration.settings["probes", planned.table, "interval"]
    least = config_keys.spell_duration(LANE_INTERVAL_MIN_NS[planned.lane])
    problem = (
        f"{config.spell_text(said.text)} is too short for the {planned.lane} lane; {least} is the smallest that works"
    )
    return ConfigError(f"{said.origin}: probes.{planned.table}.interval: {problem}")


def _paced(planned: PlannedProbe) -> PlannedProbe:
    """Read it no more often than its lane does: nobody said that it should run there as often as it declares."""
    return planned._replace(interval_ns=max(planned.interval_ns, LANE_INTERVAL_MIN_NS[planned.lane]))


def _options(probe: Probe, settings: ProbeSettings, configuration: Config) -> dict[str, Scalar]:
    """Read the options that are given as the probe declares them."""
    declared = {option.name: option for option in probe.options}
    values: dict[str, Scalar] = {}
    for name, text in settings.options.items():
        path = ("probes", probe.table.name, "options", name)
        where = f"{configuration.settings[path].origin}: {config.spell_path(path)}"
        if name not in declared:
            right = nearest(name, declared) or f"; expected {', '.join(declared) or 'none'}"
            raise ConfigError(f"{where}: no such option{right}")
        try:
            values[name] = config_keys.option_value(declared[name], text)
        except (ValueError, KeyError):
            raise ConfigError(
                f"{where}: {config.spell_text(text)} is wrong; expected {declared[name].right()}"
            ) from None
    return values


def _stricter(table: str, key: str, given: str, declared: str, configuration: Config) -> ConfigError:
    origin = configuration.settings["probes", table, key].origin
    return ConfigError(f"{origin}: probes.{table}.{key}: {given}; expected {declared}, as the probe declares")


def _parser() -> Parser:
    parser = Parser("python -m sysmond.plan.resolver", description="Turn configuration and plugins into a plan.")
    parser.add_argument("--config", metavar="FILE", help="read this file instead of all others")
    parser.add_argument("--borrowed", action="store_true", help="change nothing: these files are another recorder's")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--user", action="store_true", help="the user's own configuration and probes, for root too")
    whose.add_argument("--system", action="store_true", help="those of the machine, for an unprivileged user too")
    for option, is_set in (("--set", True), ("--unset", False)):
        parser.add_argument(
            option,
            metavar="SECTION.KEY=VALUE" if is_set else "SECTION.KEY",
            type=partial(_change, is_set=is_set),
            dest="changes",
            action="append",
            default=[],
            help="have the drop-in say so" if is_set else "have the drop-in no longer say anything about it",
        )
    parser.add_argument("--parent", metavar="PID", type=int, help="write nothing once its parent is another process")
    parser.add_argument("--cache", metavar="FOLDER", help="keep a copy here, with what it was made of")
    parser.add_argument("--output", metavar="PLAN", help="write the plan to this file (default: standard output)")
    return parser


def _change(text: str, *, is_set: bool) -> written_settings.Change:
    try:
        return written_settings.parse_change(text, is_set=is_set)
    except UsageError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from wrong


if __name__ == "__main__":
    sys.excepthook = confess
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # A plugin may have left threads behind, which sys.exit() would wait for.
