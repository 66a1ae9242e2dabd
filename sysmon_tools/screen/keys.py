# SPDX-License-Identifier: Apache-2.0
"""Which key does what on the screen, and what its help says.

The keys are those of below and htop; where they quarrel with vim's, moving in time goes first, for that is what this
screen is for: ``j`` and ``J`` jump, ``t`` and ``T`` step, and down is the arrow, Ctrl-N or Ctrl-E. ``i`` is
htop's. ``F`` freezes: htop follows a process by it, and our cursor always does. ``U`` undoes that: here are no tags.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sysmon_tools.screen.views import BY_NAME, VIEWS
from sysmond.errors import UsageError, expected, nearest


class Key(NamedTuple):
    """``keys``: as textual names them, the first as people see it. ``action``: what it leads to."""

    action: str
    keys: tuple[str, ...]
    says: str
    shown: str = ""


TIME = (
    Key("later", ("t", "right"), "later, by the time that is shown", "t →"),
    Key("earlier", ("T", "left"), "earlier", "T ←"),
    Key("jump", ("j", "J"), "jump: to 14:05, yesterday, -10min, +1h", "j J"),
    Key("pause", ("space",), "stop at this moment; go on with now", "space"),
    Key("closer", ("plus", "equals_sign"), "show a shorter time", "+"),
    Key("wider", ("minus",), "show a longer time", "-"),
    Key("next spike", ("right_square_bracket",), "go to the next spike of a curve", "]"),
    Key("previous spike", ("left_square_bracket",), "go to the previous one", "["),
    Key("next event", ("right_curly_bracket",), "go to the next event", "}"),
    Key("previous event", ("left_curly_bracket",), "go to the previous one", "{"),
)
ROWS = (
    Key("up", ("up", "k", "ctrl+p", "ctrl+y"), "the row above", "↑ k"),
    Key("down", ("down", "ctrl+n", "ctrl+e"), "the row below", "↓"),
    Key("page up", ("pageup", "ctrl+u", "ctrl+b"), "a page up", "PgUp ^U"),
    Key("page down", ("pagedown", "ctrl+d", "ctrl+f"), "a page down", "PgDn ^D"),
    Key("top", ("home", "g"), "the first row", "g Home"),
    Key("bottom", ("end", "G"), "the last row", "G End"),
    Key("sideways", ("greater_than_sign",), "columns further right", ">"),
    Key("back sideways", ("less_than_sign",), "columns further left", "<"),
    Key("inward", ("enter", "z"), "into this row: what a process waited for, a cgroup's processes", "Enter z"),
    Key("outward", ("escape", "backspace"), "go back; drop a filter", "Esc"),
    Key("next sheet", ("tab",), "the next columns of this view", "Tab"),
    Key("previous sheet", ("shift+tab",), "the columns before", ""),
    Key("order left", ("comma",), "sort by the column to the left", ","),
    Key("order right", ("full_stop", "f6"), "sort by the column to the right", ". F6"),
    Key("reverse", ("S", "I"), "turn the order round", "S I"),
    Key("by cpu", ("P", "C"), "sort by CPU", "P C"),
    Key("by memory", ("M",), "sort by memory", "M"),
    Key("by disk", ("D",), "sort by disk", "D"),
    Key("tree", ("v", "f5"), "as a tree, or as a list", "v F5"),
    Key("search", ("slash", "f3"), "search in the rows; n N: next, previous", "/ F3"),
    Key("filter", ("f", "f4", "backslash"), "only rows where: cpu_percent > 5 and comm ~ fire", "f F4"),
    Key("columns", ("f2", "O"), "choose the columns of this sheet: comm,cpu_percent,command:60", "F2 O"),
    Key("group", ("b",), "put waits together by other columns: wchan,exe", "b"),
)
OTHERS = (
    Key("signal", ("K", "f9"), "send a signal to this process, or to all of this unit or cgroup (live)", "K F9"),
    Key("nicer", ("f8",), "let it be nicer to others (live)", "F8"),
    Key("less nice", ("f7",), "let it be less nice (live)", "F7"),
    Key("ionice", ("i",), "change whose turn it is at the disk (live)", "i"),
    Key("freeze", ("F",), "freeze this unit or cgroup, for ten minutes at most (live)", "F"),
    Key("thaw", ("U",), "thaw it (live)", "U"),
    Key("mark", ("m",), "mark now: type a note (live)", "m"),
    Key("pin", ("B",), "keep what these curves show as it was recorded: say why", "B"),
    Key("snapshot", ("W",), "write what these curves show into a file, to send or to keep", "W"),
    Key("copy", ("y", "Y"), "copy this row to the clipboard of the terminal", "y"),
    Key("journal", ("l",), "the journal around this moment", "l"),
    Key("palette", ("colon",), "everything there is, by name", ":"),
    Key("help", ("question_mark", "f1"), "show or hide this help", "? F1"),
    Key("quit", ("q", "f10", "ctrl+c"), "end", "q F10"),
)
# While rows are searched, these go from one to the next.
SEARCHING = {"n": 1, "N": -1}
GROUPS = (("Time", TIME), ("Rows", ROWS), ("More", OTHERS))
# This one ends, whatever else somebody prefers.
_ALWAYS = "ctrl+c"
# Between a key and its name, where a line must not be folded.
JOINED = "\N{NO-BREAK SPACE}"
# How textual calls signs, where it does not by their names in Unicode.
_SIGNS = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}


class KeyMap(NamedTuple):
    """Which key does what. ``actions``: by key, an action or a view; ``views``: the key of each, as people see it."""

    groups: Sequence[tuple[str, Sequence[Key]]]
    views: Mapping[str, str]
    actions: Mapping[str, str]


def mapped(chosen: Mapping[str, Sequence[str]]) -> KeyMap:
    """The keys; of actions and views that somebody chose others for, those alone. A key goes to who chose it.

    :raises UsageError: for an action that there is not, a key that is none, or one that two were given.
    """
    usual = {key: one.action for _, group in GROUPS for one in group for key in one.keys}
    usual |= {view.key: view.name for view in VIEWS}
    names = sorted(set(usual.values()))
    given: dict[str, str] = {}
    for action, texts in chosen.items():
        if action not in names:
            raise UsageError(f"keys: there is no action {action!r}{nearest(action, names, expected(names))}")
        for key in map(key_of, texts):
            owner = "quit" if key == _ALWAYS else given.setdefault(key, action)
            if owner != action:
                raise UsageError(f"keys: {action}: {key} already belongs to {owner!r}; expected another key")
    actions = {key: action for key, action in usual.items() if action not in chosen or key == _ALWAYS} | given
    groups = [(title, [_shown_as(one, chosen.get(one.action)) for one in group]) for title, group in GROUPS]
    views = {view.name: " ".join(chosen.get(view.name, [view.key])) for view in VIEWS}
    return KeyMap(groups, views, actions)


def key_of(text: str) -> str:
    """A key as textual names it: a character is itself, or has the name of its sign; others as ``ctrl+p`` or ``f5``.

    :raises UsageError: where it is no key.
    """
    if len(text) == 1 and not text.isalnum():
        name = unicodedata.name(text, "").lower().replace("-", "_").replace(" ", "_")
        text = _SIGNS.get(name, name)
    if not text or not text.isprintable() or any(map(str.isspace, text)):
        raise UsageError("keys: a key without a name; expected a character, or a name such as ctrl+p, f5, pageup")
    return text


def _shown_as(key: Key, texts: Sequence[str] | None) -> Key:
    return key if texts is None else key._replace(keys=tuple(map(key_of, texts)), shown=" ".join(texts))


def help_lines(keys: KeyMap) -> list[str]:
    """The help, a line a key, below a title each; it may be folded at spaces, not at ``JOINED``."""
    made = ["Views", "  " + "  ".join(f"{keys.views[name]}{JOINED}{name}" for name in BY_NAME)]
    for title, group in keys.groups:
        made += ["", title]
        made += [f"  {key.shown:8} {key.says}" for key in group if key.shown]
    return made


def view_line(keys: KeyMap, shown: str, width: int) -> list[tuple[str, str, str]]:
    """The views as one line has room for them: of each its name, its key, and as much of the name as fits.

    ``shown``: the view whose name is whole in any case.
    """
    line: list[tuple[str, str, str]] = []
    for letters in (max(map(len, BY_NAME)), *range(9, -1, -1)):
        line = [(name, keys.views[name], name if name == shown else name[:letters]) for name in BY_NAME]
        if sum(len(key) + len(text) + 2 for _, key, text in line) <= width:
            break
    return line


def footer(keys: KeyMap, *, is_live: bool, is_snapshot: bool = False) -> str:
    """What the last line says: the keys that lead on."""
    key = {one.action: one.shown.split()[0] for _, group in keys.groups for one in group if one.shown}
    parts = (
        f"{key['help']} help",
        f"{key['later']} {key['earlier']} time",
        f"{key['previous spike']} {key['next spike']} spikes",
        f"{key['pause']} {'goes to its end' if is_snapshot else 'stops' if is_live else 'returns to now'}",
        f"{key['search']} search",
        f"{key['filter']} filter",
        f"{key['inward']} in",
        f"{key['outward']} back",
        f"{key['quit']} quit",
    )
    return "  ".join(parts)
