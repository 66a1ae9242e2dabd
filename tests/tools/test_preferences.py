# SPDX-License-Identifier: Apache-2.0
"""What somebody prefers on the screen: a file that is right, and each way in which one is wrong; columns by a key."""

import argparse
import asyncio
import os
from pathlib import Path

import pytest
from textual import keys as textual_keys

from sysmon_tools import sysmon
from sysmon_tools.moment import View
from sysmon_tools.screen import keys, preferences
from sysmon_tools.screen.app import SysmonApp
from sysmon_tools.screen.look import Look
from sysmon_tools.screen.preferences import Preferences
from sysmon_tools.screen.views import SheetColumns
from sysmond.errors import Error, UsageError
from sysmond.history import Archive
from sysmond.machine.folders import Folders
from tests.support import screens
from tests.support.stall import STALL_NS, stuck
from tests.support.waiting import HANG_S

WHOLE = b"""
[keys]
down = ["j", "down"]   # vim's
jump = "J"
"next spike" = "]"
processes = ["P", "f12"]

[columns]
"processes/general" = ["comm:60", "rss", "cpu_percent"]
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return stuck(tmp_path_factory.mktemp("preferred"), "")


def test_a_file_says_which_keys_and_columns(tmp_path: Path) -> None:
    file = tmp_path / "screen.toml"
    file.write_bytes(WHOLE)
    made = preferences.read(str(file))
    assert [made.keys.actions[key] for key in ("j", "down", "J", "P", "f12")] == [
        "down",
        "down",
        "jump",
        "processes",
        "processes",
    ]
    # What a key did before, another does; and what had other keys beside has those that were named alone.
    assert not {"ctrl+n", "p"} & set(made.keys.actions)
    assert made.keys.actions["right_square_bracket"] == "next spike"
    assert made.keys.views["processes"] == "P f12"
    assert "  j down   the row below" in keys.help_lines(made.keys)
    assert made.columns == {"processes/general": SheetColumns(("comm", "rss", "cpu_percent"), {"comm": 60})}


def test_without_a_file_all_is_as_it_is(tmp_path: Path) -> None:
    assert preferences.read(str(tmp_path / "none")) == preferences.default()
    assert preferences.place({"XDG_CONFIG_HOME": "/x"}) == "/x/sysmond/screen.toml"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[keys", "not valid TOML: Expected ']'"),
        (b"\xff", "not valid TOML: 'utf-8' codec"),
        (b"[colours]", "[colours]: no such section; expected keys or columns"),
        (b"keys = 5", "keys: 5 is not a section; expected [keys]"),
        (b"[keys]\ndwon = 'j'", "there is no action 'dwon'; did you mean down"),
        (b"[keys]\ndown = 5", "keys: down: 5 is wrong; expected a text, or a list"),
        (b"[keys]\ndown = []", "keys: down: [] is wrong; expected a text, or a list"),
        (b"[keys]\ndown = ['j', '']", "is wrong; expected a text, or a list"),
        (b"[keys]\ndown = 'j'\nup = 'j'", "keys: up: j already belongs to 'down'; expected another key"),
        (b"[keys]\ndown = 'ctrl+c'", "keys: down: ctrl+c already belongs to 'quit'"),
        (b"[keys]\ndown = 'page down'", "expected a character, or a name such as ctrl+p"),
        (b'[keys]\ndown = "\\u0007"', "expected a character, or a name such as ctrl+p"),
        (b"[columns]\n'processes/genral' = ['rss']", "no sheet 'processes/genral'; did you mean processes/general"),
        (b"[columns]\n'processes/general' = 'rss:x'", "column 'rss:x': expected NAME or NAME:WIDTH"),
        (b"[columns]\n'processes/general' = 'rss:0'", "column 'rss:0': expected NAME or NAME:WIDTH"),
        (b"[columns]\n'processes/general' = ['rss', 'rss']", "column 'rss': expected a name, and each once"),
        (b"a" * (64 * 1024 + 1), "larger than 65536 bytes"),
        (b"a=" + b"[" * 50_000, "not valid TOML"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "screen.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError) as refusal:
        preferences.read(str(file))
    assert str(refusal.value).startswith(f"{file}: ")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_pipe_is_not_waited_for_and_a_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert preferences.read(str(tmp_path / "pipe")) == preferences.default()
    with pytest.raises(Error, match="expected a file that can be read"):
        preferences.read(str(tmp_path))


@pytest.mark.parametrize("sign", list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ §€a5"))
def test_signs_are_called_as_textual_calls_them(sign: str) -> None:
    assert keys.key_of(sign) == textual_keys._character_to_key(sign)


async def seen(archive: Archive, preferred: Preferences | None, keyed: str, *typed: str, shows: str = "") -> str:
    """What is seen of a view once its key was pressed and something typed, as soon as it shows that."""
    app = SysmonApp(archive, Look(View(STALL_NS)), argparse.Namespace(), now=lambda: screens.NOW_NS,
                    preferred=preferred)  # fmt: skip
    async with app.run_test(size=(120, 30)) as pilot:
        await screens.settled(pilot)
        await pilot.press(keyed)
        await screens.settled(pilot)
        await pilot.press(*typed)
        async with asyncio.timeout(HANG_S):
            while shows not in screens.seen(app):
                await pilot.pause(0.05)
        return screens.seen(app)


def test_columns_are_typed_and_go_back_to_their_own(folders: Folders) -> None:
    def typed(text: str, shows: str, preferred: Preferences | None = None) -> str:
        words = ("f2", "ctrl+u", *text, "enter")
        return asyncio.run(seen(Archive(folders), preferred, "p", *words, shows=shows))

    shown = typed("rss,comm", 'as "processes/general" below [columns]')
    heading = next(line for line in shown.splitlines() if "pid" in line)
    assert heading.split()[:3] == ["pid", "rss", "comm"]
    assert "username" not in shown
    preferred = Preferences(keys.mapped({}), {"processes/general": SheetColumns(("rss",))})
    assert "username" in typed("", "username", preferred)
    assert "did you mean comm" in typed("cmm", "there is no column 'cmm'")


def test_what_a_file_prefers_is_what_the_screen_of_a_terminal_shows(folders: Folders) -> None:
    preferred = preferences.parsed(b"[keys]\nprocesses = 'P'\n[columns]\n'processes/general' = ['comm:4', 'rss']")
    lines = asyncio.run(seen(Archive(folders), preferred, "P")).splitlines()
    heading = next(line for line in lines if line.startswith("pid") or " pid" in line)
    assert heading.split() == ["pid", "comm", "rss"]
    assert any("upd…" in line for line in lines)
    assert any(" P processes" in line for line in lines)


def test_a_file_that_is_wrong_is_said_on_the_screen(
    tmp_path: Path, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sysmond").mkdir()
    (tmp_path / "sysmond/screen.toml").write_text("[keys]\ndwon = 'j'\n")
    said: list[str] = []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(SysmonApp, "run", lambda app: said.append(app._said))
    sysmon._draw(Archive(folders), argparse.Namespace(at_ns=STALL_NS, state_dir=None), "")
    [line] = said
    assert line.startswith(
        f"{tmp_path}/sysmond/screen.toml: keys: there is no action 'dwon'; did you mean down? (expected "
    )


def test_what_is_typed_before_the_line_has_the_focus_is_not_typed_over(folders: Folders) -> None:
    async def typed() -> str:
        app = SysmonApp(Archive(folders), Look(View(STALL_NS)), argparse.Namespace(), now=lambda: screens.NOW_NS)
        async with app.run_test(size=(120, 30)) as pilot:
            await screens.settled(pilot)
            app._press("slash")  # What a key does; the focus comes with the next message.
            app._input.insert_text_at_cursor("h")
            await pilot.press("i")
            return app._input.value

    assert asyncio.run(typed()) == "hi"
