# SPDX-License-Identifier: Apache-2.0
"""What ordinary users can do to units, with the systemd, the polkit and the bus of a Debian that is booted.

``joe`` has no rights; ``ann`` is let do it by the rule of polkit that docs/sysmon.md has for her, and reads all that is
recorded. Both are in sessions of logind, as after a login. What is checked is what the screen calls, mostly by
``sysmonctl``, and the screen itself in tmux. ``service.py`` boots the container and runs these.
"""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from sysmon_tools.unit_deeds import timer_of
from tests.lab.service import RESIDENTS, Container, wait_for

GUIDE = Path(__file__).resolve().parents[2] / "docs/sysmon.md"
# Asked before all others.
NO_RULES = "/etc/polkit-1/rules.d/10-no.rules"
NO_RULE = 'polkit.addRule(function(action, subject) { if (subject.user == "joe") { return polkit.Result.NO; } });'
RULES = "/etc/polkit-1/rules.d/50-ann.rules"
USERS = ("joe", "ann")
UNIT = "lab-runaway.service"
COUNT = "/run/lab-runaway"
# It counts, and ends neither by SIGHUP nor by itself.
RUNAWAY = f"trap 'touch {COUNT}.hup' HUP; i=0; while :; do i=$((i+1)); echo $i >{COUNT}; sleep 0.05; done"
# sshd has port 22 of a network of its own: the container has none.
ALONE = "/run/systemd/system/ssh.service.d/alone.conf"
SEND = """
import asyncio, signal, sys
from sysmon_tools import unit_deeds
from sysmon_tools.targets import GroupTarget
from sysmond.errors import Error
try:
    print(asyncio.run(unit_deeds.send(GroupTarget(sys.argv[1]), signal.Signals[sys.argv[2]])))
except Error as problem:
    print(problem)
    sys.exit(problem.exit_code)
"""
NOT_PERMITTED = 77
# The unit below the heading, where the cursor is; its column is as wide as there is room.
ROW = r"^(?:instance|unit) .*\n(?: .*\n)?(?:/system\.slice/)?lab-runaw"
SHORT_S = 3
# So much later than it should a thaw may come here, where others use the processors as well.
LATE_S = 8.0
# When the client is killed: so long after its timer was there.
KILLED_AFTER_S = (0.0, 0.01, 0.02, 0.04, 0.06, 0.1, 0.3)
KILL = """
until systemctl is-active --quiet "$1"; do sleep 0.005; done
sleep "$2"
pkill -KILL -u ann -f 'sysmonctl freeze' && echo killed
"""
VITAL = (
    *("dbus.service", "polkit.service", "systemd-logind.service", "systemd-journald.service", "ssh.service"),
    *("init.scope", "system.slice", "user.slice", "-.slice"),
)
OWN = r"s|^0::.*/\([^/]*\)$|\1|p"


def _ready(made: Container) -> None:
    """Make the users, the rule and the unit, where they are not there yet."""
    for user in USERS:
        if made.run("id", user, check=False).startswith("id:"):
            made.run("useradd", "--create-home", user)
    made.run("usermod", "-aG", "sysmond", "ann")
    (rule,) = re.findall(r"```js\n// (\S+)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert rule[0] == RULES, rule[0]
    if made.run("cat", RULES, check=False) != rule[1]:
        made.run("sh", "-c", f'printf %s "$1" >{RULES}', "sh", rule[1])
        made.run("systemctl", "restart", "polkit.service")
    if made.run("systemctl", "is-active", UNIT, check=False).strip() != "active":
        made.run("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "sh", "-c", RUNAWAY)
    wait_for("it counts", lambda: _counts(made))


def _as(user: str, *command: str, waits: bool = True) -> tuple[str, ...]:
    """The command line by which a user has something run, in a session of his own."""
    how = ("--quiet", "--collect", *(("--wait", "--pipe") if waits else ()))
    session = (f"--property=User={user}", "--property=PAMName=login", "--setenv=LC_ALL=C.UTF-8")
    return ("systemd-run", *how, *session, "--", *command)


def _told(made: Container, user: str, *command: str) -> tuple[int, str]:
    """What a user is told, and the exit code."""
    words = made.words(*(_as(user, *command) if user != "root" else command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, (done.stdout + done.stderr).strip()


def _state(made: Container, unit: str = UNIT) -> str:
    return made.run("systemctl", "show", "--value", "--property=FreezerState", "--", unit).strip()


def _leftovers(made: Container) -> str:
    """The units that were made to freeze and to thaw."""
    return made.run("systemctl", "list-units", "--all", "--no-legend", "--plain", "sysmon-*").strip()


def _counts(made: Container) -> bool:
    """Whether the unit goes on."""
    with suppress(AssertionError):
        before = made.file(COUNT)
        time.sleep(0.5)
        return made.file(COUNT) != before
    return False


def _runs_and_nothing_is_left(made: Container) -> bool:
    return _state(made) == "running" and not _leftovers(made)


def _is_refused(made: Container, user: str, words: tuple[str, ...], code: int, why: str) -> None:
    told = _told(made, user, *words)
    assert told[0] == code, (user, words, told)
    assert "\n" not in told[1], told
    assert len(told[1]) <= 200, told
    assert re.search(why, told[1]), (user, words, told)


def who_has_no_rights_is_refused_in_one_line(made: Container) -> None:
    """By the rights that polkit has for units, whatever he asks for; nothing is left of it."""
    _ready(made)
    why = f"{UNIT}: no permission: polkit wants a password, and no agent is here to ask for it$"
    for words in (
        ("sysmonctl", "freeze", UNIT, "--for=5s"),
        ("sysmonctl", "thaw", UNIT),
        ("python3", "-I", "-c", SEND, UNIT, "SIGHUP"),
    ):
        _is_refused(made, "joe", words, NOT_PERMITTED, why)
    made.run("sh", "-c", f"printf %s '{NO_RULE}' >{NO_RULES} && systemctl restart polkit.service")
    try:
        for words in (("sysmonctl", "freeze", UNIT), ("python3", "-I", "-c", SEND, UNIT, "SIGHUP")):
            _is_refused(made, "joe", words, NOT_PERMITTED, f"{UNIT}: no permission: polkit does not let you$")
    finally:
        made.run("sh", "-c", f"rm {NO_RULES} && systemctl restart polkit.service")
    assert "No such file" in made.run("ls", f"{COUNT}.hup", check=False)
    assert _runs_and_nothing_is_left(made)
    assert _counts(made)


def whom_polkit_lets_freezes_thaws_and_kills(made: Container) -> None:
    """By the rule of the guide; each freeze and each thaw is an event of the recording."""
    _ready(made)
    assert _told(made, "ann", "sysmonctl", "freeze", UNIT, "--for=5min") == (0, f"froze {UNIT} for 5min")
    assert _state(made) == "frozen"
    assert not _counts(made)
    assert made.run("systemctl", "is-active", timer_of(UNIT)).strip() == "active"
    _is_refused(made, "ann", ("sysmonctl", "freeze", UNIT), 1, "already frozen$")
    _is_refused(made, "joe", ("sysmonctl", "thaw", UNIT), NOT_PERMITTED, "no permission")
    assert _told(made, "ann", "sysmonctl", "thaw", UNIT) == (0, f"thawed {UNIT}")
    assert _runs_and_nothing_is_left(made), _leftovers(made)
    assert _counts(made)
    for what in (f"froze {UNIT} for 5min", f"thawed {UNIT}"):
        wait_for(f"an event: {what}", partial(_is_marked, made, what))
    assert _told(made, "ann", "python3", "-I", "-c", SEND, UNIT, "SIGHUP") == (0, f"sent SIGHUP to all of {UNIT}")
    wait_for("the signal is there", lambda: "No such" not in made.run("ls", f"{COUNT}.hup", check=False))
    assert _told(made, "ann", "python3", "-I", "-c", SEND, UNIT, "SIGKILL")[0] == 0
    wait_for("it is killed", lambda: made.run("systemctl", "is-active", UNIT, check=False).strip() != "active")


def _is_marked(made: Container, what: str) -> bool:
    return what in made.run("sysmon-extract", "event", "--from=-5min", "--where=kind = mark", check=False)


def a_client_that_is_killed_leaves_nothing_frozen(made: Container) -> None:
    """At whatever moment SIGKILL comes."""
    _ready(made)
    killed = frozen = 0
    for after_s in KILLED_AFTER_S:
        killer = made.words("timeout", "30", "sh", "-c", KILL, "sh", timer_of(UNIT), str(after_s))
        with subprocess.Popen(killer, stdout=subprocess.PIPE, text=True) as process:
            made.run(*_as("ann", "sysmonctl", "freeze", UNIT, f"--for={SHORT_S}s", waits=False))
            killed += "killed" in process.communicate()[0]
        time.sleep(0.3)  # What was asked for by then is done.
        frozen += _state(made) == "frozen"
        wait_for(f"thawed, killed after {after_s} s", partial(_runs_and_nothing_is_left, made), SHORT_S + LATE_S)
        assert _counts(made), after_s
    print(f"lab: of {len(KILLED_AFTER_S)} clients {killed} were killed, and {frozen} units were frozen then")
    assert killed, "too late each time"
    assert frozen, "too early each time"


def what_must_go_on_is_not_frozen(made: Container) -> None:
    """Neither by whom polkit lets, nor by root; nor what is around it, or around whoever asks."""
    _ready(made)
    made.run("sh", "-c", f"mkdir -p {ALONE.rpartition('/')[0]} && printf '[Service]\\nPrivateNetwork=yes\\n' >{ALONE}")
    made.run("systemctl", "daemon-reload")
    made.run("systemctl", "start", "ssh.service")
    made.run("systemctl", "start", "sysmond-bus.service")  # It is there for a minute after it was asked.
    units = (*VITAL, *(f"sysmond-{part}.service" for part in RESIDENTS))
    try:
        for user in ("ann", "root"):
            for unit in units:
                if user == "ann" or unit in {"dbus.service", "system.slice", "sysmond-sampler.service"}:
                    words = ("sysmonctl", "freeze", "--for=2s", "--", unit)
                    _is_refused(made, user, words, 1, f"{unit} was not frozen: (process|it is the root)")
                assert _state(made, unit) == "running", unit
        own = f"sysmonctl freeze --for=2s \"$(sed -n '{OWN}' /proc/self/cgroup)\""
        _is_refused(made, "ann", ("sh", "-c", own), 1, r"^sysmonctl: session-\w+\.scope was not frozen: process")
        number = made.run("id", "-u", "ann").strip()
        for unit in (f"user-{number}.slice", f"user@{number}.service"):
            _is_refused(made, "ann", ("sysmonctl", "freeze", "--for=2s", unit), 1, "was not frozen: process")
        assert not _leftovers(made)
    finally:
        made.run("systemctl", "stop", "ssh.service")
        made.run("sh", "-c", f"rm {ALONE} && systemctl daemon-reload")


class _Screen:
    """The screen of a user in tmux."""

    def __init__(self, made: Container, user: str) -> None:
        self._made = made
        self._tmux = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "tmux", "-L", "lab")

    def tmux(self, *words: str) -> str:
        """Have tmux do something."""
        return self._made.run(*self._tmux, *words, check=False)

    def shows(self, pattern: str) -> None:
        """Wait until it shows a text."""
        shown = ""

        def is_there() -> bool:
            nonlocal shown
            shown = self.tmux("capture-pane", "-p")
            return re.search(pattern, shown, re.MULTILINE) is not None

        try:
            wait_for(f"the screen shows {pattern!r}", is_there)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; it shows:\n{shown.rstrip()}") from None

    def press(self, *keys: str) -> None:
        """Press keys."""
        self.tmux("send-keys", *keys)

    def asks(self, key: str, question: str, answer: str) -> None:
        """Press the key of an action, and answer what it asks for in place of what it suggests."""
        self.press(key)
        self.shows(question)
        self.press(answer)
        self.shows(f"{answer} *$")
        self.press("Enter")


@contextmanager
def _screen(made: Container, user: str, view: str, condition: str) -> Iterator[_Screen]:
    """The screen of a user, with the cursor on the unit in a view."""
    screen = _Screen(made, user)
    made.run(*_as(user, "tmux", "-L", "lab", "-D", waits=False))
    try:
        wait_for("tmux", lambda: "error" not in screen.tmux("list-sessions"))
        screen.tmux("new-session", "-d", "-x", "150", "-y", "40", "sysmon")
        screen.shows(r"\? help")
        screen.press(view, "f")
        screen.tmux("send-keys", "-l", condition)
        screen.press("Enter")
        screen.shows(ROW)
        yield screen
    finally:
        screen.tmux("kill-server")


def the_screen_freezes_thaws_and_kills(made: Container) -> None:
    """As ann by its keys; and what it froze is thawed though it is killed. Joe reads why he may not."""
    _ready(made)
    of_groups, of_units = ("c", f"instance ~ {UNIT}"), ("u", f"unit = {UNIT}")
    with _screen(made, "joe", *of_groups) as screen:
        screen.asks("F", f"freeze {UNIT}", "5s")
        screen.shows(f"{UNIT}: no permission: polkit wants a password")
        screen.asks("K", UNIT, "HUP")
        screen.shows(f"{UNIT}: no permission: polkit wants a password")
    assert _runs_and_nothing_is_left(made)
    with _screen(made, "ann", *of_units) as screen:
        screen.asks("F", f"freeze {UNIT}", "1min")
        screen.shows(f"froze {UNIT} for 1min")
        assert _state(made) == "frozen"
        screen.asks("U", f"thaw {UNIT}", "yes")
        screen.shows(f"thawed {UNIT}")
        assert _runs_and_nothing_is_left(made), _leftovers(made)
        screen.asks("F", f"freeze {UNIT}", f"{SHORT_S}s")
        wait_for("it is frozen", lambda: _state(made) == "frozen")
        made.run("pkill", "-KILL", "-u", "ann", "-f", "/usr/bin/sysmon$")
        wait_for("thawed by the timer", partial(_runs_and_nothing_is_left, made), SHORT_S + LATE_S)
        assert not made.run("pgrep", "-u", "ann", "-f", "/usr/bin/sysmon$", check=False)
    wait_for("an event", partial(_is_marked, made, f"froze {UNIT} for 1min"))
    with _screen(made, "ann", *of_units) as screen:
        screen.asks("K", UNIT, signal.SIGKILL.name)
        screen.shows(f"sent SIGKILL to all of {UNIT}")
    wait_for("it is killed", lambda: made.run("systemctl", "is-active", UNIT, check=False).strip() != "active")


CHECKS = (
    who_has_no_rights_is_refused_in_one_line,
    whom_polkit_lets_freezes_thaws_and_kills,
    a_client_that_is_killed_leaves_nothing_frozen,
    what_must_go_on_is_not_frozen,
    the_screen_freezes_thaws_and_kills,
)
