# SPDX-License-Identifier: Apache-2.0
"""Which key does what on the screen, and what its help says.

The keys are those of below and htop; where they quarrel with vim's, moving in time goes first, for that is what this
screen is for: ``j`` and ``J`` jump, ``t`` and ``T`` step, and down is the arrow, Ctrl-N or Ctrl-E.
"""

from typing import NamedTuple

from sysmon_tools.screen.views import VIEWS


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
    Key("group", ("b",), "put waits together by other columns: wchan,exe", "b"),
)
OTHERS = (
    Key("signal", ("K", "f9"), "send a signal to this process (live)", "K F9"),
    Key("nicer", ("f8",), "let it be nicer to others (live)", "F8"),
    Key("less nice", ("f7",), "let it be less nice (live)", "F7"),
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
ACTIONS = {key: one.action for _, group in GROUPS for one in group for key in one.keys}


def help_lines() -> list[str]:
    """The help, a line a key, below a title each."""
    made = ["Views", "  " + "  ".join(f"{view.key} {view.name}" for view in VIEWS)]
    for title, group in GROUPS:
        made += ["", title]
        made += [f"  {key.shown:8} {key.says}" for key in group if key.shown]
    return made


def footer(*, is_live: bool) -> str:
    """What the last line says: the keys that lead on."""
    pause = "space stops" if is_live else "space goes on with now"
    return f"? help  t T time  [ ] spikes  {pause}  / search  f filter  Enter in  Esc back  q quit"
