# SPDX-License-Identifier: Apache-2.0
"""The screen on a terminal: the program that puts its parts together, asks an archive and obeys keys.

A question is answered in a thread beside, one at a time, so that keys are obeyed meanwhile.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from sysmon_tools import moment_page
from sysmon_tools.key_values import spelled_line
from sysmon_tools.moment import last_view
from sysmon_tools.screen import acting, frozen, heap, keys, preferences, subjects
from sysmon_tools.screen.frozen import Frozen
from sysmon_tools.screen.lines import Lines, TableLines, folded
from sysmon_tools.screen.look import (
    Around,
    Look,
    at,
    bucket,
    inward,
    lacks,
    moved,
    opened,
    ordered,
    outward,
    renewed,
    spike_from,
)
from sysmon_tools.screen.preferences import Preferences
from sysmon_tools.screen.question import Questions, ScreenPage, SheetRows, asked_for, span_of
from sysmon_tools.screen.subjects import PAST, ProcessRow, Subject
from sysmon_tools.screen.views import BY_NAME, EVENTS_VIEW, VIEWS, WAITS
from sysmon_tools.show import Text, console
from sysmon_tools.signs import ASCII_SIGNS, SIGNS
from sysmon_tools.targets import GroupTarget
from sysmond.base.clock import SECOND_NS, Relation
from sysmond.base.terminal import printable
from sysmond.base.timespec import format_time, parse_moment
from sysmond.errors import Error, UsageError
from sysmond.history import Archive

if TYPE_CHECKING:
    from textual.timer import Timer

# Of the time between two readings so much is spent on asking, at most.
BUSY_SHARE = 0.1
LIVE_S = 1.0
JOURNAL_S = 120
# Below so many lines there is one curve, and below so few none.
_SMALL, _TINY = 16, 8
_HELP_COLUMN = 60
# Behind so many signs a line of the help says what its keys do.
_KEYS_WIDTH = 11
# In so many lines the text of an event is shown whole.
_WHOLE = 6
# By how many lines these move the help.
_SCROLLING = {"up": -1, "down": 1, "page up": -10, "page down": 10}


class Prompt(NamedTuple):
    """What is asked for in the last line, and what the answer is for."""

    action: str
    says: str
    text: str = ""


PROMPTS = {
    "jump": Prompt("jump", "jump to (14:05, yesterday, -10min, +1h)"),
    "search": Prompt("search", "search"),
    "filter": Prompt("filter", "only where"),
    "columns": Prompt("columns", "the columns of this sheet, each with a width where it needs one: comm,command:60"),
    "group": Prompt("group", "put together by"),
    subjects.SIGNAL: Prompt(subjects.SIGNAL, "signal for {}", "TERM"),
    subjects.IONICE: Prompt(
        subjects.IONICE, "turn at the disk (idle, 0 first to 7 last, realtime 0 to 7) of {}", "idle"
    ),
    subjects.FREEZE: Prompt(subjects.FREEZE, "freeze {}, for (at most 10min)", "2min"),
    subjects.THAW: Prompt(subjects.THAW, "thaw {} (Esc: leave it)", "yes"),
    "mark": Prompt("mark", "mark this moment with"),
    "pin": Prompt("pin", "keep the time of these curves, because"),
    "snapshot": Prompt("snapshot", "write the time of these curves to"),
}


class SysmonApp(App[None]):
    """The screen of an archive."""

    CSS = """
    Screen { layout: vertical; }
    #top { height: 1; } #said, #curves { height: auto; } #views { height: auto; }
    #rows { height: 1fr; scrollbar-size: 1 1; overflow-x: hidden; } #lists { height: 1fr; }
    #whole { height: auto; } #foot { height: 1; }
    #prompt { height: 1; border: none; padding: 0; display: none; background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "press('tab')", priority=True, show=False),
        Binding("shift+tab", "press('shift+tab')", priority=True, show=False),
        Binding("ctrl+c", "quit", priority=True, show=False),
    ]
    AUTO_FOCUS = None
    COMMAND_PALETTE_BINDING = "ctrl+backslash"

    def __init__(self, archive: Archive, look: Look, where: argparse.Namespace, introduction: str = "",
                 now: Callable[[], int] = time.time_ns, preferred: Preferences | None = None) -> None:  # fmt: skip
        """Begin with a look; ``where``: which recorder marks are for; ``introduction``: whose it is; ``now``: in ns."""
        super().__init__(ansi_color=True)
        is_ascii = console().options.ascii_only
        self._signs = ASCII_SIGNS if is_ascii else SIGNS
        self._archive = archive
        self._last = last_view(archive)
        preferred = preferred or preferences.default()
        self._keys = preferred.keys
        self._questions = Questions(archive, is_ascii=is_ascii, chosen=preferred.columns)
        self._look = look
        self._page: ScreenPage | None = None
        self._said = introduction
        self._problem = ""
        self._where = where
        self._now = now
        self._timer: Timer | None = None
        self._is_help = False
        self._help_at = 0
        self._prompt: Prompt | None = None
        self._subject: Subject | None = None
        self._wanted = asyncio.Event()
        # One for all questions: what a thread used of memory stays with it.
        self._asking = ThreadPoolExecutor(max_workers=1)
        self._top, self._curves, self._views = Lines("top"), Lines("curves"), Lines("views")
        self._remarks, self._lists, self._foot = Lines("said"), Lines("lists"), Lines("foot")
        self._whole = Lines("whole")
        self._rows = TableLines("rows")
        self._rows.is_ascii = is_ascii
        self._input = Input(id="prompt")
        self._frozen = Frozen()
        self._deeds = self._done()

    def compose(self) -> ComposeResult:
        """Put the parts below each other."""
        yield from (self._top, self._remarks, self._curves, self._views, self._rows, self._lists)
        yield from (self._whole, self._foot, self._input)

    def on_mount(self) -> None:
        """Draw what is known, and ask."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self._draw()
        self.run_worker(self._answer())
        self._wanted.set()
        self.set_interval(LIVE_S, self._draw_head)  # How long ago the moment was.

    def on_resize(self) -> None:
        """Lay out anew, and fill what there is room for then."""
        self._draw()
        self.call_after_refresh(self._draw)

    # --- asking ---------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Answer one look after the other, the newest first; live ones again and again."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            began_s = time.process_time()
            self._look = asked = renewed(self._look, self._now())
            try:
                page = await asyncio.get_running_loop().run_in_executor(
                    self._asking, self._questions.page, asked, self._now()
                )
            except (Error, OSError) as problem:
                self._problem = str(problem)
                self._draw()
            else:
                self._problem = ""
                self._take(asked, page)
            heap.settle(is_live=asked.is_live)
            if self._look.is_live and not self._wanted.is_set():
                cost_s = time.process_time() - began_s
                if self._timer is not None:  # A key asked meanwhile: one answer is due, not two.
                    self._timer.stop()
                self._timer = self.set_timer(max(LIVE_S, cost_s / BUSY_SHARE), self._wanted.set)

    def _take(self, asked: Look, page: ScreenPage) -> None:
        """Show an answer, unless something else is meant by now."""
        if self._look is not asked:
            return
        self._look, self._page = page.look, page
        chosen = self._questions.chosen.get(self._sheet_name())
        self._rows.lengths = chosen.widths if chosen else {}
        self._frozen.forget()
        self._rows.note = self._note if page.look.is_live and page.look.view in frozen.VIEWS else None
        self._rows.draw(page.rows)
        self._draw()

    def _note(self, cells: Mapping[str, str | None]) -> str:
        return frozen.NOTE if self._frozen.by(self._look, cells) else ""

    def _go(self, look: Look) -> None:
        if look != self._look:
            is_other = (look.view, look.sheet) != (self._look.view, self._look.sheet)
            if (look.by, look.is_reversed, look.condition) != (
                self._look.by,
                self._look.is_reversed,
                self._look.condition,
            ):
                self._rows.home()
            self._look = look
            self._said = ""
            if is_other:
                self._rows.searched = ""
                self._rows.draw(SheetRows((), ()))
            self._wanted.set()
        self._draw()

    # --- drawing --------------------------------------------------------------------------------------

    def _draw(self) -> None:
        """Lay out what is known for the terminal as it is now."""
        width, height = self.size
        page, look = self._page, self._look
        scene = page.scene if page else None
        is_small = height < _SMALL
        self._draw_head()
        said = [
            *(moment_page.remarks(scene) if scene else ()),
            *(Text(line, "yellow") for line in (self._said, self._thaw_line(), self._problem) if line),
        ]
        self._fill(self._remarks, said[: 1 if is_small else 3])
        labels = look.shown.curves if look.asked or is_small else None
        curves = moment_page.curve_lines(scene, width, self._signs, labels[:1] if is_small and labels else labels) \
            if scene and height > _TINY and not self._is_help else []  # fmt: skip
        self._fill(self._curves, curves)
        self._fill(self._views, [self._names(), *self._sheets()])
        has_rows = look.asked is not None and not self._is_help
        says = page.says if page and page.look.view == look.view else ""
        self._rows.display = has_rows and not says
        self._lists.display = not self._rows.display
        self._lists.draw(self._instead(width, height, says))
        is_cut = self._rows.display and look.view == EVENTS_VIEW and not is_small
        self._fill(self._whole, folded(self._rows.cut_text(), width, _WHOLE) if is_cut else [])
        footer = keys.footer(self._keys, is_live=look.is_live, is_snapshot=self._archive.is_snapshot)
        self._foot.draw([Text(footer if self._prompt is None else self._prompt.says, "dim")])

    def _draw_head(self) -> None:
        """Say of which moment the rest is, and how long ago that is by now."""
        page = self._page
        if page is None:
            self._top.draw([Text("sysmon  reading …")])
            return
        span = span_of(page.look, page.look.asked) if page.look.asked else None
        scene = page.scene._replace(now_ns=max(self._now(), page.scene.now_ns))
        head = moment_page.head(scene, is_live=self._look.is_live, span=span)
        head.truncate(self.size.width, overflow="ellipsis")
        self._top.draw([head])

    def _thaw_line(self) -> str:
        """That what the row below the cursor is about is frozen, and what thaws it."""
        if self._rows.note is None:
            return ""
        key = next(one.shown for _, group in self._keys.groups for one in group if one.action == subjects.THAW)
        return self._frozen.says(self._look, self._rows.cells(), key)

    def _instead(self, width: int, height: int, says: str) -> list[Text]:
        """What stands where rows would: the help, why there are none, or the overview's lists."""
        if self._is_help:
            room = self._lists.size.height or height - _SMALL // 4
            lines = _help_page(keys.help_lines(self._keys), width, room)
            self._help_at = max(0, min(self._help_at, len(lines) - room))
            return lines[self._help_at :]
        if says:
            return [Text(says, "yellow")]
        if self._page is None or self._look.asked:
            return []
        return moment_page.lists(self._page.scene, width, max(1, self._lists.size.height or height - 14))

    @staticmethod
    def _fill(lines: Lines, drawn: Sequence[Text]) -> None:
        lines.styles.height = len(drawn)
        lines.draw(drawn)

    def _names(self) -> Text:
        """The views, and which one it is."""
        line = Text()
        for name, key, shown in keys.view_line(self._keys, self._look.view, self.size.width):
            line.append(f" {key} ", "dim")
            line.append(shown, "bold reverse" if name == self._look.view else "")
        return line

    def _sheets(self) -> list[Text]:
        """The sheets of the view, how one came there, which rows are shown; no line where there is nothing to say."""
        look = self._look
        line = Text()
        for number, one in enumerate(look.shown.sheets if len(look.shown.sheets) > 1 else ()):
            line.append(f" {one.name} ", "bold reverse" if number == look.sheet else "dim")
        for step in look.steps:
            line.append(f"  in {step.says}", "cyan")
        if look.where:
            line.append(f"  where {look.where}", "cyan")
        return [line] if line else []

    # --- obeying --------------------------------------------------------------------------------------

    def action_press(self, key: str) -> None:
        """Obey a key that textual would use itself."""
        self._press(key)

    async def on_key(self, event: events.Key) -> None:
        """Obey a key, unless somebody types: what was typed before the line was there belongs to it."""
        if self._prompt is None:
            self._press(event.key)
        elif event.key == "escape":
            self._ask_for(None)
        elif event.key == "enter":
            await self._input.action_submit()
        elif event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)

    def _press(self, key: str) -> None:
        if self._rows.searched and key in keys.SEARCHING:
            self._rows.search(self._rows.searched, keys.SEARCHING[key])
        elif key in self._keys.actions:
            self._obey(self._keys.actions[key])

    def _obey(self, action: str) -> None:
        if self._is_help and action in _SCROLLING:
            self._help_at += _SCROLLING[action]
            self._draw()
            return
        self._is_help, self._help_at = action == "help" and not self._is_help, 0
        if action in BY_NAME:
            self._go(opened(self._look, action))
        elif action in self._deeds:
            self._deeds[action]()
        elif action in PROMPTS:
            self._ask_for(PROMPTS[action])
        else:
            around = Around(self._page.scene.curves, self._page.scene.events) if self._page else Around((), ())
            is_end = action == "pause" and self._archive.is_snapshot
            look = moved(self._look, action, around, self._now())
            if is_end and self._last:
                look = at(self._look, self._last.at_ns, self._now())
            if look == self._look and action in {"next event", "previous event"}:
                self._said = (
                    f"no {'later' if action == 'next event' else 'earlier'} event in sight; - shows a longer time"
                )
            before = self._look.moment
            self._go(look)
            if column := lacks(self._look, action):
                self._said = f"these rows have no {column}; , and . sort by the columns that they have"
            if action in {"next spike", "previous spike"}:
                self._said = moment_page.spike_line(spike_from(before, action, around), before.step_ns)
            if is_end:
                self._said = "a snapshot: nothing is known of what came after"
        self._draw()

    def _done(self) -> dict[str, Callable[[], None]]:
        """What actions do that lead to no other moment."""
        rows = self._rows
        return {
            "up": lambda: rows.move(-1),
            "down": lambda: rows.move(1),
            "page up": lambda: rows.move(-rows.page_rows()),
            "page down": lambda: rows.move(rows.page_rows()),
            "top": lambda: rows.go(0),
            "bottom": lambda: rows.go(len(rows.rows.order)),
            "sideways": lambda: rows.aside(1),
            "back sideways": lambda: rows.aside(-1),
            "inward": self._enter,
            "outward": self._back,
            "order left": lambda: self._go(ordered(self._look, self._columns(), -1)),
            "order right": lambda: self._go(ordered(self._look, self._columns(), 1)),
            "nicer": lambda: self._renice(1),
            "less nice": lambda: self._renice(-1),
            "palette": self.action_command_palette,
            "journal": self._show_journal,
            "copy": self._copy,
            "quit": self.exit,
        }

    def _sheet_name(self) -> str:
        """How preferences call the sheet that is shown."""
        return f"{self._look.view}/{self._look.asked.name if self._look.asked else ''}"

    def _choose(self, text: str) -> None:
        """Give the sheet other columns, as long as this program runs; its own again where none are named."""
        if (sheet := self._look.asked) is None:
            return
        name, chosen = self._sheet_name(), self._questions.chosen
        if text:
            chosen[name] = preferences.chosen_columns(text, [known for known, *_ in self._archive.columns(sheet.table)])
            self._said = f'to keep them, write them into {preferences.FILE}, as "{name}" below [columns]'
        else:
            chosen.pop(name, None)
        self._wanted.set()

    def _columns(self) -> list[str]:
        return [field.name for field in self._rows.rows.fields]

    def _enter(self) -> None:
        """Go into a row; of an event, to its moment."""
        look = inward(self._look, self._rows.cells())
        if self._look.view == EVENTS_VIEW and self._rows.rows.order:
            look = at(self._look, self._rows.rows.started_ns(self._rows.at), self._now())
        if look == self._look:
            self._said = "there is nothing further in from here"
        self._go(look)

    def _back(self) -> None:
        """Drop the search; where there is none, go back."""
        if self._rows.searched:
            self._rows.search("")
        else:
            self._go(outward(self._look))

    def _ask_for(self, prompt: Prompt | None) -> None:
        """Have somebody type; None when he is done."""
        if prompt is not None and prompt.action == "mark" and not self._look.is_live:
            self._said = PAST
            self._draw()
            return
        if prompt is not None and "{}" in prompt.says:
            self._subject = self._meant(prompt.action)
            if self._subject is None:
                self._draw()
                return
            prompt = prompt._replace(says=prompt.says.format(printable(self._subject.name)))
        if prompt is not None and prompt.action == "columns":
            if (sheet := self._look.asked) is None:
                self._said = "the overview has no columns; expected another view"
                self._draw()
                return
            chosen = self._questions.chosen.get(self._sheet_name())
            view = self._look.view
            hidden = self._questions.hidden(view, sheet)
            names = [name for name in self._questions.columns(view, sheet) if name not in hidden]
            widths = chosen.widths if chosen else {}
            prompt = prompt._replace(
                text=",".join(f"{name}:{widths[name]}" if name in widths else name for name in names)
            )
        if prompt is not None and prompt.action == "snapshot":
            from sysmon_tools.snapshot import file_name  # noqa: PLC0415  tar: few write one

            prompt = prompt._replace(text=file_name(self._look.moment.at_ns))
        self._prompt = prompt
        self._input.display = prompt is not None
        if prompt is None:
            self.set_focus(None)
        else:
            self._input.value = self._look.where if prompt.action == "filter" else prompt.text
            # The focus comes a moment later: what was typed by then is not to be typed over.
            self._input.select_on_focus = bool(self._input.value)
            self.set_focus(self._input)  # At once: what is typed next is for it.
        self._draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while somebody types."""
        if self._prompt is not None and self._prompt.action == "search":
            self._rows.search(event.value, 0)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what was asked for."""
        prompt, text = self._prompt, event.value.strip()
        self._ask_for(None)
        if prompt is None or (not text and prompt.action not in {"filter", "columns"}):
            return
        try:
            await self._submit(prompt.action, text)
        except Error as problem:
            self._said = str(problem)
        self._draw()

    async def _submit(self, action: str, text: str) -> None:
        now_ns = self._now()
        match action:
            case "jump":
                self._go(at(self._look, _jumped(self._look, text, self._archive.now()), now_ns))
            case "search":
                if not self._rows.search(text, 0):
                    self._said = f"{text!r}: not in these rows"
            case "filter":
                self._go(self._look._replace(where=text))
            case "columns":
                self._choose(text)
            case "group":
                columns = [name for name, *_ in self._archive.columns("thread_state")]
                waits = self._look if self._look.view == WAITS else opened(self._look, WAITS)
                self._go(waits._replace(sheet=0, group_by=asked_for(text, columns), steps=()))
            case subjects.SIGNAL | subjects.FREEZE | subjects.THAW | subjects.IONICE:
                self._act(action, text)
            case "pin":
                start_ns, end_ns = self._curves_ns()
                await self._order("Pin", "xxsa{sv}", start_ns, end_ns, text, {})
                self._said = f"pinned {format_time(start_ns)} to {format_time(end_ns)}"
            case "snapshot":
                self._said = f"{text}: being written"
                self.run_worker(self._write(text))
            case _:
                await self._order("Mark", "sa{sv}", text, {})
                self._said = f"marked {text!r}"

    async def _order(self, member: str, signature: str, *body: object) -> None:
        """Have the recorder do something."""
        from sysmon_tools import connecting  # noqa: PLC0415  D-Bus, for the few who ask for it

        async with connecting.connect(self._where) as recorder:
            await recorder.call(member, signature, *body)

    def _curves_ns(self) -> tuple[int, int]:
        """Of what time the curves are, as far as it has been."""
        view = self._look.moment
        return view.start_ns, min(view.end_ns, self._now())

    async def _write(self, file: str) -> None:
        """Have a program of its own write a snapshot, and say what it said last."""
        place, (start_ns, end_ns) = self._archive.place, self._curves_ns()
        words = [f"--state-dir={place.state}", f"--runtime-dir={place.runtime}", f"--output-file={file}"]
        words += [f"--from={format_time(start_ns)}", f"--to={format_time(end_ns)}"]
        command = [sys.executable, "-P", "-m", "sysmon_tools.sysmon", "snapshot", *words]
        done = await asyncio.to_thread(subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True)
        lines = (done.stderr if done.returncode else done.stdout).decode("utf-8", "replace").splitlines()
        self._said = printable(lines[-1]) if lines else f"{file}: nothing was written"
        self._draw()

    def _copy(self) -> None:
        """Put the row below the cursor into the clipboard, by what terminals know as OSC 52."""
        if cells := self._rows.cells():
            self.copy_to_clipboard(spelled_line((name, text or "") for name, text in cells.items()).decode().rstrip())
            self._said = "this row is in the clipboard, if the terminal allows it"

    def _meant(self, action: str) -> Subject | None:
        """What an action is to be done to; where it is nothing, that is said."""
        try:
            return subjects.subject(action, self._look, self._rows.cells(), self._rows.started_ns())
        except Error as problem:
            self._said = str(problem)
            return None

    def _renice(self, by: int) -> None:
        """Change the priority of the process below the cursor, and say what came of it."""
        subject = self._meant(subjects.NICE)
        if isinstance(subject, ProcessRow):
            try:
                self._said = acting.renice(subject.pid, subject.started_ns, by)
            except Error as problem:
                self._said = str(problem)

    def _act(self, action: str, text: str) -> None:
        """Do what was asked for to what was meant then.

        :raises Error: where a process cannot have it.
        """
        subject = self._subject
        if isinstance(subject, ProcessRow) and action == subjects.IONICE:
            self._said = acting.ionice(subject.pid, subject.started_ns, text)
        elif isinstance(subject, ProcessRow):
            self._said = acting.send(subject.pid, subject.started_ns, acting.signal_of(text))
        elif subject is not None:
            self._said = f"{action} {subject.name} …"
            self.run_worker(self._act_on_group(subject, action, text))  # Somebody may be asked for a password.

    async def _act_on_group(self, target: GroupTarget, action: str, text: str) -> None:
        """Have systemd, or the kernel, do it; say what came of it, and mark that it was done."""
        done = ""
        try:
            done = self._said = await _done_to(target, action, text)
            self._draw()
            await self._order("Mark", "sa{sv}", done, {})
        except (Error, OSError) as problem:
            self._said = f"{done}; not marked: {problem}" if done else str(problem)
        self._draw()

    def _show_journal(self) -> None:
        """Have journalctl show the journal around the moment, with the rights of who looks."""
        at_s = self._look.moment.at_ns // SECOND_NS
        words = ["journalctl", "--no-hostname", f"--since=@{at_s - JOURNAL_S}", f"--until=@{at_s + JOURNAL_S}"]
        try:
            with self.suspend():
                subprocess.run(words, check=False, env={**os.environ, "SYSTEMD_LESS": "RSXMK"})  # noqa: S603  no shell
        except OSError as problem:
            self._said = f"journalctl: {problem.strerror}"

    def on_lines_pointed(self, event: Lines.Pointed) -> None:
        """Go to the moment, or the view, to which somebody pointed."""
        if event.lines is self._curves:
            number = moment_page.bucket_at(self._page.scene, event.column, self.size.width) if self._page else None
            if number is not None:
                self._go(bucket(self._look, number, self._now()))
        elif event.lines is self._views and not event.line:
            end = 0
            for name, key, shown in keys.view_line(self._keys, self._look.view, self.size.width):
                end += len(key) + 2 + len(shown)
                if event.column < end:
                    self._go(opened(self._look, name))
                    return
        elif event.lines is self._views:
            self._obey("next sheet")

    def on_table_lines_chosen(self, event: TableLines.Chosen) -> None:
        """Order by a column, or go into a row."""
        if event.column:
            is_same = event.column == self._rows.rows.by
            self._go(self._look._replace(by=event.column, is_reversed=is_same and not self._look.is_reversed))
        else:
            self._obey("inward")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything there is, by name, for the palette."""
        del screen
        for view in VIEWS:
            yield SystemCommand(view.name, f"the view {self._keys.views[view.name]}", lambda n=view.name: self._open(n))
        for _, group in self._keys.groups:
            for key in group:
                if key.action != "palette":
                    yield SystemCommand(key.action, key.says, lambda action=key.action: self._obey(action))

    def _open(self, name: str) -> None:
        self._go(opened(self._look, BY_NAME[name].name))


def _help_page(spoken: Sequence[str], width: int, room: int) -> list[Text]:
    """The help in lines of that width; in two columns where one has more lines than there is room for."""
    are_two = len(spoken) > room and width >= 2 * _HELP_COLUMN
    column = width // 2 - 2 if are_two else width
    folded_lines = [
        part.replace(keys.JOINED, " ")
        for line in spoken
        for part in textwrap.wrap(line, column, subsequent_indent=" " * _KEYS_WIDTH) or [""]
    ]
    if not are_two:
        return [Text(line) for line in folded_lines]
    half = (len(folded_lines) + 1) // 2
    left, right = folded_lines[:half], [*folded_lines[half:], ""]
    return [Text(f"{one:{column}}    {other}") for one, other in zip(left, right, strict=False)]


async def _done_to(target: GroupTarget, action: str, text: str) -> str:
    """Do something to a unit or a control group; gives what was done.

    :raises Error: where it was not.
    """
    from sysmon_tools import unit_deeds  # noqa: PLC0415  D-Bus, for the few who ask for it

    if action == subjects.SIGNAL:
        return await unit_deeds.send(target, acting.signal_of(text))
    if action == subjects.FREEZE:
        return await unit_deeds.freeze(target, unit_deeds.freezing_time_s(text))
    if text.casefold() not in {"y", "yes"}:
        raise UsageError(f"{target.name}: not thawed; expected yes")
    return await unit_deeds.thaw(target)


def _jumped(look: Look, text: str, now: Relation) -> int:
    """Read where to: a length with a sign is from the moment that is shown, all else is a time."""
    if text[0] in "+-":
        back_ns = now.realtime_ns - parse_moment(f"-{text[1:].strip()}", now)
        return look.moment.at_ns + (back_ns if text[0] == "+" else -back_ns)
    return parse_moment(text, now)
