# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, and the exit code that says so.

Error                   1   failure
├── UsageError          2   the command line, a path, a time, a unit, the configuration
│   ├── ConfigError     2   … with file, line, key, value and what would be right
│   └── TooManySeriesError  2   a path means more series than an answer may have
├── NotPermittedError  77   the user may not do that
├── BusyError           1   somebody else holds it
├── TooMuchError        1   a bound is reached
├── CorruptError        1   a file or frame is damaged
└── ForeignError        1   a file is not one of ours, or of a version we do not know

Exit code 3 (partial result) belongs to no exception: it is said beside a result.
Every message is one line: what, where, what would be right.
"""

from collections.abc import Iterable, Sequence

EXIT_PARTIAL = 3
# A message names all that there is where it is no more; else it says what lists it.
LISTED_MAX = 8
# So many words are suggested for one that is wrong. Of those spelled otherwise, how like it they must be, from 0 to 1,
# and how much less than the likest; so many letters tell what a word begins.
SUGGESTED_MAX = 3
LIKENESS_MIN, LIKENESS_SPREAD = 0.6, 0.15
BEGINNING_MIN = 3

# A part's folder or its rings were removed: it saved what they held, and is to be started again (EX_TEMPFAIL).
EXIT_AGAIN = 75


class Error(Exception):
    """Anything sysmond reports to a person, as one line."""

    exit_code = 1


class UsageError(Error):
    """The request itself is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file says something it must not."""


class TooManySeriesError(UsageError):
    """A path means more series than an answer may have."""


class NotPermittedError(Error):
    """The operating system refused."""

    exit_code = 77


class BusyError(Error):
    """Another process holds what is needed."""


class TooMuchError(Error):
    """Somebody asks for more than he may have at once."""


class CorruptError(Error):
    """A file or frame is truncated or damaged."""


class ForeignError(Error):
    """A file is not ours, or of an incompatible version."""


def refusal(failure: OSError) -> str:
    """What the operating system said, for people: ``"/x: No space left on device"``; a write names no file."""
    what = failure.strerror or str(failure)
    return f"{failure.filename}: {what}" if isinstance(failure.filename, str) else what


def spelled(problem: BaseException) -> str:
    """Spell an exception in one printable line, though even its ``__str__`` may raise."""
    try:
        line = f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001
        line = type(problem).__name__
    if not line.isprintable():
        line = "".join(sign if sign.isprintable() else " " for sign in line)
    return " ".join(line.split())


def nearest(word: str, known: Iterable[str], right: str = "", *, before: str = "") -> str:
    """Ask whether one of the known words was meant: ``"; did you mean a or b?"``, or say nothing at all.

    What the word means to people comes first, then what it begins, then what is spelled nearly so. ``right``: what
    would be right is said besides, ``"; did you mean a? (expected a, b)"`` or ``"; expected a, b"``. ``before``: what
    stands before each word where it is used.
    """
    matches = [f"{before}{name}" for name in _meant(word, sorted(set(known)))]
    if not matches:
        return f"; {right}" if right else ""
    *first, last = matches
    meant = f"{', '.join(first)} or {last}" if first else last
    return f"; did you mean {meant}?" + (f" ({right})" if right else "")


def _meant(word: str, known: Sequence[str]) -> list[str]:
    """Those of the known words, sorted, that may have been meant, the likeliest first; at most three."""
    from difflib import SequenceMatcher  # noqa: PLC0415  only to speak of a mistake, and every part would carry it

    from sysmond.synonyms import MEANT  # noqa: PLC0415  as above

    there, lower = set(known), word.lower()
    if same := [name for name in known if name.lower() in {lower, f"{lower}s", lower.removesuffix("s")}]:
        return same[:SUGGESTED_MAX]
    if synonyms := [name for name in MEANT.get(lower, ()) if name.partition("=")[0] in there]:
        return synonyms[:SUGGESTED_MAX]
    begun = (
        [name for name in known if name.lstrip("'").startswith(lower)]
        if len(lower.lstrip("-")) >= BEGINNING_MIN
        else []
    )
    if begun:
        return sorted(begun, key=len)[:SUGGESTED_MAX]
    letters = sorted(lower)
    likeness = {name: 1.0 if sorted(name) == letters else SequenceMatcher(None, name, word).ratio() for name in known}
    least = max(LIKENESS_MIN, max(likeness.values(), default=0.0) - LIKENESS_SPREAD)
    close = [name for name in known if likeness[name] >= least]
    if not close:
        return [name for name in known if len(name) >= BEGINNING_MIN and lower.startswith(name)][-1:]
    return sorted(close, key=lambda name: -likeness[name])[:SUGGESTED_MAX]


def expected(known: Iterable[str]) -> str:
    """Say what is expected: ``"expected a, b"``."""
    return f"expected {', '.join(known)}"


def listed(known: Sequence[str], command: str) -> str:
    """Say what there is: ``"; there are a, b"``, in that order; of many only what lists them: ``command``."""
    if len(known) > LISTED_MAX:
        return f"; {command!r} lists all {len(known)}"
    return f"; there are {', '.join(known)}" if known else ""
