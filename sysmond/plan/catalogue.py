# SPDX-License-Identifier: Apache-2.0
"""The catalogue: what every plugin declares, what is refused and why, and every setting with where it was said.

The resolver writes it beside the plan, for restricted eyes: a setting may be a token. The bus part reads it, which
tells everybody what he may know; the parts that sample do without. Standard library only.
"""

import json
from functools import lru_cache
from typing import Any, NamedTuple

from sysmond.base import declared_answers
from sysmond.base.model import Answers, Lane, Metric, Semantics, Sensitivity, Table, packing_of
from sysmond.errors import CorruptError, UsageError
from sysmond.machine import note
from sysmond.plan.plan import PlannedProbe, Refusal, Scalar
from sysmond.probe import Option

FILE = "catalogue.json"
# What tables declare about answers, for everybody: who reads rings needs it, and settings are not in it.
ANSWERS_FILE = "answers.json"
CATALOGUE_VERSION = 1
# The probes that come with sysmond have 0.3 MB.
CATALOGUE_BYTES_MAX = 16 * 1024 * 1024


class Defaults(NamedTuple):
    """How a probe would run if nobody had said anything."""

    lane: Lane
    interval_ns: int
    sensitivity: Sensitivity


class ProbeEntry(NamedTuple):
    """One probe: what it declares, and what is planned. ``is_ours``: it comes with sysmond."""

    table: Table
    is_ours: bool
    planned: PlannedProbe
    declared: Defaults
    options: tuple[Option, ...] = ()
    privilege: str = ""


class EffectiveSetting(NamedTuple):
    """A setting as it holds now, spelled as in a file. ``file``: where it is said; None where that is a default."""

    key: str
    value: str
    file: str | None = None
    line: int = 0


class Catalogue(NamedTuple):
    """All of it; the tables by name."""

    tables: dict[str, ProbeEntry]
    refused: tuple[Refusal, ...] = ()
    settings: tuple[EffectiveSetting, ...] = ()


def encode(catalogue: Catalogue) -> bytes:
    """Spell a catalogue as JSON."""
    fields = {
        "version": CATALOGUE_VERSION,
        "tables": {name: _spell(entry) for name, entry in catalogue.tables.items()},
        "refused": [refusal._asdict() for refusal in catalogue.refused],
        "settings": [setting._asdict() for setting in catalogue.settings],
    }
    return json.dumps(fields).encode()


def decode(content: bytes) -> Catalogue:
    """Read a catalogue back.

    :raises CorruptError: where it is none of this version.
    """
    return note.parse(content, _catalogue, "catalogue")


def _catalogue(fields: dict[str, Any]) -> Catalogue:
    if fields["version"] != CATALOGUE_VERSION:
        raise CorruptError(f"catalogue: version {fields['version']!r}; expected {CATALOGUE_VERSION}")
    return Catalogue(
        {name: _entry(name, entry) for name, entry in fields["tables"].items()},
        tuple(Refusal(**refusal) for refusal in fields["refused"]),
        tuple(EffectiveSetting(**setting) for setting in fields["settings"]),
    )


def read(runtime: str) -> Catalogue:
    """Read the catalogue in a runtime folder.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is none.
    """
    return decode(note.read_bytes(f"{runtime}/{FILE}", CATALOGUE_BYTES_MAX))


def answers_in(runtime: str) -> dict[str, Answers]:
    """What tables declare about answers, by name, as the resolver has written it: rings do not say it.

    :raises OSError: where it cannot be read. :raises CorruptError: where it is none.
    """
    try:
        content = note.read_bytes(f"{runtime}/{ANSWERS_FILE}", CATALOGUE_BYTES_MAX)
    except FileNotFoundError:  # A resolver of before wrote the catalogue alone.
        return _declared(read(runtime))
    return _parsed(content)


@lru_cache(1)
def _parsed(content: bytes) -> dict[str, Answers]:
    """Read what the resolver has written; a screen asks again and again."""
    return note.parse(content, _answers, "answers")


def answers_there(runtime: str) -> dict[str, Answers]:
    """The same; nothing where that cannot be read: what is live shows less then."""
    try:
        return answers_in(runtime)
    except (OSError, CorruptError):
        return {}


def encode_answers(catalogue: Catalogue) -> bytes:
    """Spell what tables declare about answers as JSON."""
    declared = _declared(catalogue)
    return json.dumps({name: json.loads(declared_answers.spell(said)) for name, said in declared.items()}).encode()


def _declared(catalogue: Catalogue) -> dict[str, Answers]:
    tables = (entry.table for entry in catalogue.tables.values())
    return {table.name: table.answers for table in tables if table.answers is not None}


def _answers(fields: dict[str, Any]) -> dict[str, Answers]:
    from sysmond.base import formula  # noqa: PLC0415  few read this

    declared = {name: declared_answers.parse(said) for name, said in fields.items()}
    for name, said in declared.items():
        for column in said.derived:
            try:
                formula.parse(column.formula)
            except UsageError as wrong:
                raise CorruptError(f"answers: damaged ({name}/{column.name}: {wrong})") from wrong
    return declared


def _spell(entry: ProbeEntry) -> dict[str, Any]:
    """Spell one table, as flat as its reader would like it."""
    table, planned = entry.table, entry.planned
    return {
        "plugin": planned.plugin,
        "is_ours": entry.is_ours,
        "per": table.per,
        "doc": table.doc,
        "enabled": planned.enabled,
        "lane": planned.lane,
        "interval_ns": planned.interval_ns,
        "sensitivity": planned.sensitivity,
        "declared": entry.declared._asdict(),
        "subsystems": planned.subsystems,
        "needs": planned.needs,
        "privilege": entry.privilege,
        "on_battery_ns": planned.on_battery_ns,
        "metrics": [metric._asdict() for metric in table.metrics],
        "packing": table.packing,
        "answers": declared_answers.spell(table.answers),
        "options": [{**option._asdict(), "value": planned.options[option.name]} for option in entry.options],
    }


def _entry(name: str, fields: dict[str, Any]) -> ProbeEntry:
    metrics = tuple(Metric(**{**metric, "semantics": Semantics(metric["semantics"])}) for metric in fields["metrics"])
    values: dict[str, Scalar] = {option["name"]: option.pop("value") for option in fields["options"]}
    planned = PlannedProbe(
        name,
        fields["plugin"],
        Lane(fields["lane"]),
        fields["interval_ns"],
        Sensitivity(fields["sensitivity"]),
        fields["enabled"],
        values,
        tuple(map(str, fields.get("needs", ()))),
        int(fields.get("on_battery_ns", 0)),
        tuple(map(str, fields["subsystems"])),
    )
    declared = fields["declared"]
    answers = declared_answers.read(fields.get("answers", ""))
    table = Table(name, metrics, fields["per"], fields["doc"], packing_of(fields["packing"]), answers)
    declared_answers.check(table)
    return ProbeEntry(
        table,
        fields["is_ours"],
        planned,
        Defaults(Lane(declared["lane"]), declared["interval_ns"], Sensitivity(declared["sensitivity"])),
        tuple(Option(**{**option, "choices": tuple(option["choices"])}) for option in fields["options"]),
        str(fields.get("privilege", "")),
    )
