# SPDX-License-Identifier: Apache-2.0
"""What other programs call the metrics that come with sysmond: a module a group of programs, for readers alone.

Each module has ``NAMES``: by program, what its names mean here. Not on the declarations, which the real-time sampler
holds in locked memory and every file repeats; docs/design/0008-tables-declare.md. A table of a plugin declares its own
(``Answers.aliases``). Called by ``base.paths`` and by what refuses a name that is not known, to suggest ours.

``node_exporter``, ``opentelemetry`` and ``below`` have the names of one program each, ``sysstat`` of sar, iostat,
mpstat and pidstat, ``procps`` of ps, top, free and vmstat, ``hardware`` of what prints sensors, disks, batteries and
networks.

A meaning is spelled ``PATH``, ``PATH + PATH`` (what it is the sum of) or ``PATH or PATH`` (one name for two things);
``about PATH`` is computed in another way there; ``PATH in UNIT`` is in another unit there. In a name, ``*`` stands for
what is left out, and in a path for the same. Labels and attributes that tell which one is meant stand in braces.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

MODULES = ("node_exporter", "opentelemetry", "sysstat", "procps", "below", "hardware")
# So many columns, and programs, are named at once.
_NAMED = 4


class ForeignName(NamedTuple):
    """A name that a program has.

    ``paths``: ``table/metric[@instance]``. ``is_sum``: it is the sum of these, not one or the other. ``unit``: where it
    is another one there. ``is_about``: it is computed in another way there.
    """

    program: str
    name: str
    paths: tuple[str, ...]
    is_sum: bool = False
    unit: str = ""
    is_about: bool = False

    @property
    def meanings(self) -> tuple[str, ...]:
        """What it may mean here; a sum is one meaning."""
        return (" + ".join(self.paths),) if self.is_sum else self.paths


def every() -> Iterator[ForeignName]:
    """Give all names, by program in the order of the modules, each in the order of its program."""
    for module in MODULES:
        names: Mapping[str, Mapping[str, str]] = import_module(f"{__name__}.{module}").NAMES
        for program, meanings in names.items():
            yield from (_read(program, name, meaning) for name, meaning in meanings.items())


def _read(program: str, name: str, meaning: str) -> ForeignName:
    spelled, _, unit = meaning.partition(" in ")
    paths = spelled.removeprefix("about ")
    is_sum = " + " in paths
    return ForeignName(program, name, tuple(paths.split(" + " if is_sum else " or ")), is_sum, unit, paths != spelled)


def of(word: str) -> list[ForeignName]:
    """Give the names that somebody may mean by a word: of the same spelling if there are any, else in any case.

    A name without its labels means each that has them.
    """
    names = list(every())
    in_case = [name._replace(paths=paths) for name in names if (paths := _meant(name, word, name.name))]
    return in_case or [
        name._replace(paths=paths) for name in names if (paths := _meant(name, word.lower(), name.name.lower()))
    ]


def _meant(name: ForeignName, word: str, spelled: str) -> tuple[str, ...]:
    """The paths, if a word is a name that is spelled so; with what stands in the word for the star of the name."""
    word, spelled = word.replace('"', ""), spelled.replace('"', "")
    if word in {spelled, spelled.partition("{")[0]}:
        return name.paths
    before, star, after = spelled.partition("*")
    if star and word.startswith(before) and word.endswith(after) and len(word) > len(before) + len(after):
        stands = word[len(before) : len(word) - len(after)]
        return tuple(path.replace("*", stands) for path in name.paths)
    return ()


def suggest(word: str, aliases: Iterable[tuple[str, str]] = ()) -> str:
    """Ask whether a metric was meant that is called so elsewhere: ``"; did you mean disk/read_bytes (rkB/s in sar)?"``.

    Nothing where no program calls anything so. ``aliases``: names that tables declare themselves, and the paths meant.
    """
    declared = dict.fromkeys(path for name, path in aliases if name.lower() == word.lower())
    names = of(word)
    meanings = dict.fromkeys((*declared, *(meaning for name in names for meaning in name.meanings)))
    return _asked(word, meanings, dict.fromkeys(name.program for name in names))


def suggest_column(word: str, table: str, columns: Collection[str], aliases: Iterable[tuple[str, str]] = ()) -> str:
    """Ask the same about a column of one table: its own, or one that is called as that of another table.

    ``columns``: those that it has. ``aliases``: names that it declares itself, and the columns that they mean.
    """
    meanings = dict.fromkeys(column for name, column in aliases if name.lower() == word.lower())
    programs: dict[str, None] = {}
    names = of(word)
    own = [name for name in names if name.paths[0].startswith(f"{table}/")]
    for name in own or names:
        called = tuple(path.partition("/")[2] for path in name.paths)
        if all(column in columns for column in called):
            meanings.update(dict.fromkeys(name._replace(paths=called).meanings))
            programs[name.program] = None
    return _asked(word, meanings, programs)


def _asked(word: str, meanings: Iterable[str], programs: Iterable[str]) -> str:
    meanings, programs = [*meanings], [*programs]
    if not meanings:
        return ""
    more = f" or {len(meanings) - _NAMED} more" if len(meanings) > _NAMED else ""
    where = f" ({word} in {', '.join(programs[:_NAMED])})" if programs else ""
    return f"; did you mean {' or '.join(meanings[:_NAMED])}{more}{where}?"
