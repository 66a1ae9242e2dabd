# SPDX-License-Identifier: Apache-2.0
"""Plugins: finds them, loads each one apart, and refuses with a reason whatever would break the others.

Two doors: the entry point group ``sysmond.probes`` of installed distributions, and ``*.py`` files in the
administrator's probe folder. A plugin is accepted whole or not at all. One that did not come with sysmond is
loaded in a child: whatever it does to its process, it does to that one. Only the resolver imports this.
"""

import contextlib
import inspect
import json
import math
import os
import re
import select
import signal
import sys
import threading
import time
import types
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple, NoReturn

import pluggy

from sysmond.base import declared_answers, event_kinds
from sysmond.base.clock import SECOND_NS
from sysmond.base.model import (
    DOC_LENGTH_MAX,
    EVENTS,
    INTERVAL_MIN_NS,
    Lane,
    Metric,
    Packing,
    Semantics,
    Sensitivity,
    Table,
    check_table,
    packing_of,
)
from sysmond.errors import Error, UsageError, nearest
from sysmond.machine.folders import check_trusted
from sysmond.plan import hookspecs, plan
from sysmond.plan.plan import Refusal
from sysmond.probe import Host, Option, Probe, Row, Tells
from sysmond.records import Records, record_bytes

GROUP = "sysmond.probes"
DISTRIBUTION = "sysmond"
SYSTEM_PROBE_FOLDER = "/etc/sysmond/probes"

# Importing a probe takes milliseconds; what takes longer hangs.
LOAD_TIME_MAX_S = 10.0
# Somebody waits for the plan: when those so far took longer, the others are not loaded any more.
LOAD_ALL_MAX_S = 30.0
# A child that cannot even be interrupted in time is killed so much later; one that has answered is gone by then.
KILL_AFTER_S = 1.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
PLUGINS_MAX = 1000
EVENTS_OWNER = "all parts"
PROBES_PER_PLUGIN_MAX = 100
REASON_LENGTH_MAX = 300
# No reading may hold a lane up for longer.
DEADLINE_MAX_S = 600.0
NEEDS_MAX = 16
# Columns that every row of an answer may have.
_OF_ANY_ROW = frozenset({"time", "instance"})

_HOOKS = ("sysmond_probes", "sysmond_api_version")
# In version 1 tables say nothing of answers; all else is as it is now.
_FIRST_API_VERSION = 1
_API_VERSIONS = (_FIRST_API_VERSION, hookspecs.API_VERSION)


class Plugin(NamedTuple):
    """An accepted plugin. ``name``: as a plan spells it. ``is_ours``: it comes with sysmond itself."""

    name: str
    is_ours: bool
    probes: tuple[Probe, ...]


class Discovery(NamedTuple):
    """What there is to run, ours first, and what is refused."""

    plugins: tuple[Plugin, ...]
    refused: tuple[Refusal, ...]


class _Candidate(NamedTuple):
    name: str
    is_ours: bool


class _HangsError(BaseException):
    """Thrown into a plugin that takes too long: no Exception, or its own ``except`` would swallow it."""


def discover(probe_folder: str | None) -> Discovery:
    """Find and load every plugin of this interpreter and of the folder."""
    refused: list[Refusal] = []
    candidates = [*_entry_points(refused), *_files(probe_folder, refused)]
    if len(candidates) > PLUGINS_MAX:
        refused += [Refusal(extra.name, f"more than {PLUGINS_MAX} plugins") for extra in candidates[PLUGINS_MAX:]]
        del candidates[PLUGINS_MAX:]
    began_s = time.monotonic()
    accepted: list[Plugin] = []
    owners = {EVENTS: EVENTS_OWNER}
    for candidate in candidates:
        try:
            if time.monotonic() - began_s > LOAD_ALL_MAX_S:
                raise Error(f"not loaded: those before it took longer than {LOAD_ALL_MAX_S:g} s")
            probes = load(candidate.name) if candidate.is_ours else load_apart(candidate.name)
            for probe in probes:
                if owner := owners.get(probe.table.name):
                    raise already_offered(probe, owner)
        except Error as wrong:
            refused.append(Refusal(candidate.name, _reason(wrong)))
            continue
        owners.update((probe.table.name, candidate.name) for probe in probes)
        accepted.append(Plugin(candidate.name, candidate.is_ours, probes))
    return Discovery(tuple(accepted), tuple(refused))


def already_offered(probe: Probe, owner: str) -> UsageError:
    """What is wrong with a table whose name another one has."""
    return UsageError(f"table {probe.table.name!r}: already offered by {owner}; expected another name")


def load(name: str) -> tuple[Probe, ...]:
    """Import one plugin, ask it for its probes, and check them.

    :raises Error: with the reason why it cannot be accepted.
    """
    try:
        # What a plugin prints must not end up in a plan written to standard output.
        with _time_limit(), contextlib.redirect_stdout(sys.stderr):
            offered = _offered(plan.import_plugin(name))
    except Error:
        raise
    except (_HangsError, TimeoutError) as hang:
        raise Error(f"hangs while loading: not done after {LOAD_TIME_MAX_S:g} s") from hang
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        raise Error(f"does not load: {type(failure).__name__}: {_spell(failure)}") from failure
    if not isinstance(offered, (list, tuple)):
        raise UsageError(f"sysmond_probes returned {_kind(offered)}; expected a list of Probe")
    if len(offered) > PROBES_PER_PLUGIN_MAX:
        raise UsageError(f"sysmond_probes returned {len(offered)} probes; expected at most {PROBES_PER_PLUGIN_MAX}")
    tables: set[str] = set()
    for probe in offered:
        if not isinstance(probe, Probe):
            raise UsageError(f"sysmond_probes returned a list with {_kind(probe)}; expected a list of Probe")
        check_probe(probe)
        if probe.table.name in tables:
            raise UsageError(f"table {probe.table.name!r}: offered twice; expected each table once")
        tables.add(probe.table.name)
    _check_enables(offered)
    return tuple(offered)


def load_apart(name: str) -> tuple[Probe, ...]:
    """Load one plugin in a child, which may die of it. The probes declare what they do and cannot be read here.

    :raises Error: with the reason why it cannot be accepted.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _load_and_tell(name, reading, writing)
    os.close(writing)
    try:
        answer = _heard(reading)
    finally:
        os.close(reading)
        status = _bury(child)
    try:
        answered = json.loads(answer)
        if "refused" not in answered:
            return tuple(_declared(fields) for fields in answered["probes"])
    except (ValueError, KeyError, TypeError, AttributeError):
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            raise Error(f"hangs while loading: not done after {LOAD_TIME_MAX_S:g} s") from None
        reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise Error(f"ends its process while loading: {reason}") from None
    raise Error(str(answered["refused"]))


def _load_and_tell(name: str, reading: int, writing: int) -> NoReturn:
    """Be the child."""
    try:
        os.close(reading)
        os.dup2(2, 1)
        try:
            answer: dict[str, Any] = {"probes": [_declaration(probe) for probe in load(name)]}
        except Error as wrong:
            answer = {"refused": _reason(wrong)}
        with open(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode() + b"\n")
        sys.stderr.flush()
    finally:
        os._exit(0)


def _heard(reading: int) -> bytes:
    """What a child says, up to the end of its line; less where it dies, or is too slow or too long about it."""
    limit_s = time.monotonic() + LOAD_TIME_MAX_S + KILL_AFTER_S
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < ANSWER_BYTES_MAX:
        if not select.select([reading], [], [], max(0.0, limit_s - time.monotonic()))[0]:
            break
        if not (more := os.read(reading, 65536)):
            break
        answer += more
    return answer


def _bury(child: int) -> int:
    """Wait for a child that should be about to end, kill one that is not; gives its status."""
    limit_s = time.monotonic() + KILL_AFTER_S
    while time.monotonic() < limit_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _declaration(probe: Probe) -> dict[str, Any]:
    """Spell what a probe declares, for the way through a pipe."""
    *table, answers = probe.table
    spelled = [*table, declared_answers.spell(answers)]
    apart = {"table": spelled, "read": None, "records": probe.records is not None, "tells": (), "told_kinds": ()}
    return {**probe._asdict(), **apart}


def _declared(fields: dict[str, Any]) -> Probe:
    name, metrics, per, doc, packing, answers = fields["table"]
    columns = (Metric(metric, unit, Semantics(semantics), *more) for metric, unit, semantics, *more in metrics)
    typed = {
        "table": Table(name, tuple(columns), per, doc, packing_of(packing), declared_answers.read(answers)),
        "read": _read_elsewhere,
        "records": _records_elsewhere if fields["records"] else None,
        "lane": Lane(fields["lane"]),
        "sensitivity": Sensitivity(fields["sensitivity"]),
        "subsystems": tuple(fields["subsystems"]),
        "needs": tuple(fields["needs"]),
        "tells": (),  # Whoever reads it elsewhere has that.
        "told_kinds": (),
        "options": tuple(
            Option._make(tuple(part) if isinstance(part, list) else part for part in option)
            for option in fields["options"]
        ),
    }
    return Probe(**{**fields, **typed})


def _read_elsewhere(_host: Host) -> Iterator[Row]:
    raise Error("this probe was loaded in another process")


def _records_elsewhere(_host: Host) -> Records:
    raise Error("this probe was loaded in another process")


def _check_packing(probe: Probe, where: str) -> None:
    """A long table has a packing that fits, and a function that gives its records."""
    packing = probe.table.packing
    if packing is None:
        if probe.records is not None:
            raise UsageError(f"{where}: records without a packing; expected both or neither")
        return
    _right_type(where, "packing", packing, Packing)
    _right_type(where, "format", packing.format, str)
    _right_type(where, "key", packing.key, tuple)
    _right_type(where, "lasting", packing.lasting, bool)
    if not callable(probe.records):
        raise UsageError(f"{where}: records is {_kind(probe.records)}; expected a function for a table with a packing")
    record_bytes(probe.table)


def check_probe(probe: Probe) -> None:
    """Refuse a probe whose declaration has a wrong type or value: nothing checked the author's code.

    :raises UsageError: naming the table, the field and what would be right.
    """
    table = probe.table
    if not isinstance(table, Table):
        raise UsageError(f"a probe's table is {_kind(table)}; expected a Table")
    where = f"table {_spell(table.name)}"
    _right_type(where, "name", table.name, str)
    _right_type(where, "metrics", table.metrics, tuple)
    _right_type(where, "per", table.per, str)
    _right_type(where, "doc", table.doc, str)
    for metric in table.metrics:
        _right_type(where, "metric", metric, Metric)
        inside = f"{where}, metric {_spell(metric.name)}"
        for field, right in Metric.__annotations__.items():
            _right_type(inside, field, getattr(metric, field), right)
        if metric.name in _OF_ANY_ROW:
            raise UsageError(f"{inside}: every row has a column of that name; expected another")
    check_table(table)
    if not callable(probe.read):
        raise UsageError(f"{where}: read is {_kind(probe.read)}; expected a function")
    _check_packing(probe, where)
    declared_answers.check(table)
    _right_type(where, "lane", probe.lane, Lane)
    _right_type(where, "sensitivity", probe.sensitivity, Sensitivity)
    _right_type(where, "subsystems", probe.subsystems, tuple)
    _right_type(where, "pure", probe.pure, bool)
    _right_type(where, "privilege", probe.privilege, str)
    _right_type(where, "enabled", probe.enabled, bool)
    _right_type(where, "public_by_choice", probe.public_by_choice, bool)
    for subsystem in probe.subsystems:
        _right_type(where, "subsystem", subsystem, str)
    _check_needs(probe, where)
    _check_tells(probe, where)
    _check_times(probe, where)
    _check_options(probe, where)


def _check_times(probe: Probe, where: str) -> None:
    for field in ("interval_s", "deadline_s", "on_battery_s", "costly_s"):
        number = getattr(probe, field)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise UsageError(f"{where}: {field} is {_kind(number)}; expected a number")
    for field, length_s in (("deadline_s", probe.deadline_s), ("costly_s", probe.costly_s)):
        if not 0 <= length_s <= DEADLINE_MAX_S:
            raise UsageError(f"{where}: {field} is {length_s}; expected 0 to {DEADLINE_MAX_S:g}")
    low_s, high_s = INTERVAL_MIN_NS / SECOND_NS, plan.INTERVAL_MAX_NS / SECOND_NS
    for field, interval_s in (("interval_s", probe.interval_s), ("on_battery_s", probe.on_battery_s or high_s)):
        if not math.isfinite(interval_s) or not low_s <= interval_s <= high_s:
            raise UsageError(f"{where}: {field} is {interval_s}; expected {low_s:g} to {high_s:g}")


def _check_needs(probe: Probe, where: str) -> None:
    _right_type(where, "needs", probe.needs, tuple)
    for path in probe.needs:
        _right_type(where, "need", path, str)
        if not path.startswith("/") or any(part.count("*") > 1 for part in path.split("/")) or "\0" in path:
            raise UsageError(f"{where}: need {_spell(path)}; expected an absolute path, with one '*' in a name at most")
    if len(probe.needs) > NEEDS_MAX:
        raise UsageError(f"{where}: {len(probe.needs)} needs; expected at most {NEEDS_MAX}")


def _check_tells(probe: Probe, where: str) -> None:
    """Refuse events that nobody could record: of a kind or a column that is none, or of rows that nobody compares."""
    _right_type(where, "tells", probe.tells, tuple)
    _right_type(where, "told_kinds", probe.told_kinds, tuple)
    columns = {metric.name for metric in probe.table.metrics}
    kinds = list(probe.told_kinds)
    for tells in probe.tells:
        _right_type(where, "an entry of tells", tells, Tells)
        kinds += [tells.kind, tells.gone] if tells.gone else [tells.kind]
        for column in filter(None, (tells.column, tells.shows)):
            if column not in columns:
                raise UsageError(f"{where}: tells names the column {_spell(column)}{nearest(str(column), columns)}")
    for kind in kinds:
        _right_type(where, "kind of event", kind, str)
        event_kinds.check(kind, event_kinds.REALTIME if probe.lane is Lane.REALTIME else event_kinds.BACKGROUND)
    if probe.tells and (probe.lane is not Lane.BACKGROUND or probe.table.packing is not None):
        raise UsageError(f"{where}: only wide tables of the background lane can tell of events")


def _check_options(probe: Probe, where: str) -> None:
    """Refuse options that are not declared as they should be, or that ``read`` does not take."""
    _right_type(where, "options", probe.options, tuple)
    for option in probe.options:
        _right_type(where, "option", option, Option)
        _check_option(option, f"{where}, option {_spell(option.name)}")
    names = [option.name for option in probe.options]
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: options {', '.join(names)}; expected each name once")
    function, given = (probe.read, ()) if probe.records is None else (probe.records, (False,))
    try:
        inspect.signature(function).bind(None, *given, **dict.fromkeys(names))
    except (TypeError, ValueError) as wrong:
        if names:
            kind = "read" if probe.records is None else "records"
            raise UsageError(f"{where}: {kind} does not take the options {', '.join(names)}: {wrong}") from wrong


def _check_option(option: Option, inside: str) -> None:
    for field in ("name", "doc", "enables", "pattern"):
        _right_type(inside, field, getattr(option, field), str)
    try:
        re.compile(option.pattern)
    except re.error as wrong:
        raise UsageError(f"{inside}: pattern {option.pattern!r} is not a regular expression: {wrong}") from wrong
    if option.enables and type(option.default) is not bool:
        raise UsageError(f"{inside}: enables {option.enables!r}; expected an option that is true or false")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", option.name):
        raise UsageError(f"{inside}: not a name; expected lower-case letters, digits and '_'")
    if not 0 < len(option.doc) <= DOC_LENGTH_MAX or "\n" in option.doc:
        raise UsageError(f"{inside}: its documentation must be one line of 1 to {DOC_LENGTH_MAX} characters")
    for bound in (option.low, option.high):
        if bound is not None and type(bound) not in {int, float}:
            raise UsageError(f"{inside}: a bound is {_kind(bound)}; expected a number")
    _right_type(inside, "choices", option.choices, tuple)
    for choice in option.choices:
        _right_type(inside, "choice", choice, str)
    if type(option.default) not in {bool, int, float, str} or not option.accepts(option.default):
        raise UsageError(f"{inside}: default is {_kind(option.default)} that it would not accept itself")


def _check_enables(offered: Sequence[Probe]) -> None:
    """Refuse an option that enables a table which this plugin has not."""
    for probe in offered:
        others = sorted(other.table.name for other in offered if other is not probe)
        for option in probe.options:
            if option.enables and option.enables not in others:
                where = f"table {probe.table.name!r}, option {option.name!r}"
                right = f"expected {', '.join(others)}" if others else "its plugin has no other table"
                raise UsageError(f"{where}: enables {option.enables!r}; {right}")


def _offered(module: types.ModuleType) -> Any:  # noqa: ANN401  that is what is to be found out
    """Validate the module's hooks against the specifications, then call them."""
    # One plugin each: a plugin that raises, or wraps hooks, reaches no other.
    registry = pluggy.PluginManager(hookspecs.PROJECT)
    registry.add_hookspecs(hookspecs)
    try:
        registry.register(module)
    except pluggy.PluginValidationError as wrong:
        raise UsageError(f"a hook does not match its specification: {_spell(wrong)}") from wrong
    marked = [name for name in dir(module) if registry.parse_hookimpl_opts(module, name)]
    for name in marked:
        if name not in _HOOKS:
            raise UsageError(f"{name} is not a hook of sysmond{nearest(name, _HOOKS)}")
    if "sysmond_probes" not in marked:
        raise UsageError("has no function sysmond_probes marked with sysmond.probe.hookimpl")
    if inspect.isgeneratorfunction(module.sysmond_probes):
        raise UsageError("sysmond_probes is a generator; expected a function that returns a list of Probe")
    versions = registry.hook.sysmond_api_version() or [_FIRST_API_VERSION]
    if versions[0] not in _API_VERSIONS:
        right = " or ".join(map(str, _API_VERSIONS))
        raise UsageError(f"written for API version {_spell(versions[0])}; expected {right}")
    results = registry.hook.sysmond_probes()
    return results[0] if results else None


def _entry_points(refused: list[Refusal]) -> list[_Candidate]:
    candidates: dict[str, _Candidate] = {}
    seen: set[str] = set()
    for distribution in metadata.distributions():
        # Each on its own: importlib.metadata.entry_points() lets one damaged distribution hide all others.
        try:
            points = distribution.entry_points.select(group=GROUP)
            if not points:
                continue
            owner = re.sub(r"[-_.]+", "-", distribution.name).lower()
        except Exception as damage:  # noqa: BLE001  damaged metadata raises whatever it happens to
            where = str(getattr(distribution, "_path", "a distribution"))
            refused.append(Refusal(where, _reason(Error(f"damaged metadata: {type(damage).__name__}: {damage}"))))
            continue
        if owner in seen:  # An older installation further down sys.path.
            continue
        seen.add(owner)
        for point in points:
            value = point.value.strip()
            if re.fullmatch(r"\w+(\.\w+)*", value):
                candidates.setdefault(value, _Candidate(value, owner == DISTRIBUTION))
            else:
                reason = f"entry point {point.name!r} of {owner} is {value!r}; expected the name of a module"
                refused.append(Refusal(value, _reason(Error(reason))))
    # Ours come first: where tables collide, the stranger is refused.
    return sorted(candidates.values(), key=lambda candidate: (not candidate.is_ours, candidate.name))


def _files(folder: str | None, refused: list[Refusal]) -> list[_Candidate]:
    if folder is None:
        return []
    folder = os.path.abspath(folder)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py") and not name.startswith("."))
        if names:
            check_trusted(folder)
    except FileNotFoundError:
        return []
    except (OSError, Error) as failure:
        refused.append(Refusal(folder, _reason(failure).removeprefix(f"{folder}: ")))
        return []
    candidates = []
    for name in names:
        path = f"{folder}/{name}"
        try:
            check_trusted(path)
            if not os.path.isfile(path):
                raise Error("is not a regular file")
        except (OSError, Error) as failure:
            refused.append(Refusal(path, _reason(failure).removeprefix(f"{path}: ")))
        else:
            candidates.append(_Candidate(path, is_ours=False))
    return candidates


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals reach the main thread only; the resolver has no other.
        return

    def interrupt(_signal: int, _frame: types.FrameType | None) -> None:
        raise _HangsError

    before = signal.signal(signal.SIGALRM, interrupt)
    # Again and again: a plugin may catch even that.
    signal.setitimer(signal.ITIMER_REAL, LOAD_TIME_MAX_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _right_type(where: str, field: str, value: object, right: type) -> None:
    if not isinstance(value, right) or (right is int and isinstance(value, bool)):
        choices: Iterable[str] = right if right in {Lane, Semantics, Sensitivity} else ()
        name = " or ".join(f"{right.__name__}.{choice.upper()}" for choice in choices) or right.__name__
        raise UsageError(f"{where}: {field} is {_kind(value)}; expected {name}")


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _spell(value: object) -> str:
    """Spell what a plugin gave us, though even its ``__str__`` may raise."""
    try:
        return repr(value) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001
        return type(value).__name__


def _reason(failure: Exception) -> str:
    text = " ".join(_spell(failure).split())
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 1]}…"
