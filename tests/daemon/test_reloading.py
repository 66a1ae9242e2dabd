# SPDX-License-Identifier: Apache-2.0
"""Reloading: real children as resolvers and real sockets as parts, and all that they may do wrong."""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.daemon import reloading
from sysmond.daemon.reloading import CHANGES_MAX, WAITING_MAX, Reloading
from sysmond.machine import control
from sysmond.machine.control import Later, Order
from sysmond.machine.folders import Folders
from sysmond.plan import plan
from sysmond.plan.plan import Plan, Refusal
from sysmond.plan.settings import Settings
from tests.support.waiting import HANG_S


class Daemon:
    """What has the plan made anew, without being a daemon: its parts are folders with a listener or without."""

    def __init__(self, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runtime = runtime
        self.parts: dict[str, int] = {}
        self.said: list[str] = []
        self.answers: list[tuple[Later, Order]] = []
        self.made: list[Plan] = []
        self.program = "pass"
        self.heard: list[Order] = []
        monkeypatch.setattr(reloading, "resolver_command", self._command)
        self.reloading = Reloading(Settings(Folders("", str(runtime))), Plan(()), self.parts, self.said.append)
        self.reloading.answer = lambda later, answer: self.answers.append((later, answer))
        self.listeners = ExitStack()
        self.listening: dict[str, control.Listener] = {}
        self.obeys: Callable[[Order], Order | Later] = lambda _: {"ok": True}

    def _command(self, _settings: Settings) -> list[str]:
        return [sys.executable, "-I", "-c", self.program]

    def makes(self, made: Plan) -> None:
        """Let the resolver write this plan."""
        plan.write(made, str(self.runtime / "other.json"))
        self.program = f"import os; os.rename({str(self.runtime / 'other.json')!r}, {self.path!r})"

    @property
    def path(self) -> str:
        return str(self.runtime / "plan.json")

    def part(self, name: str, pid: int = 1, *, listens: bool = True) -> None:
        self.parts[name] = pid
        (self.runtime / name).mkdir(exist_ok=True)
        if listens:
            self.listening[name] = self.listeners.enter_context(control.listen(str(self.runtime / name)))

    def until(self, met: Callable[[], object]) -> None:
        """Turn as the daemon does."""
        limit_s = time.monotonic() + HANG_S
        while not met():
            assert time.monotonic() < limit_s
            wait_s = min(max(0.0, self.reloading.due_s() - time.monotonic()), 0.05)
            select.select(self.reloading.descriptors(), [], [], wait_s)
            if made := self.reloading.turn():
                self.made.append(made)
            for listener in self.listening.values():
                listener.serve(self._obey)

    def _obey(self, order: Order) -> Order | Later:
        self.heard.append({key: value for key, value in order.items() if key != "uid"})
        return self.obeys(order)

    def outcome(self, asked: Order | Later) -> Order:
        """Turn until an order is answered."""
        if not isinstance(asked, Later):
            return asked
        found: list[Order] = []

        def look() -> bool:
            found[:] = [answer for later, answer in self.answers if later is asked]
            return bool(found)

        self.until(look)
        assert len(found) == 1
        return found[0]

    def reload(self) -> Order:
        return self.outcome(self.reloading.reload())


@pytest.fixture
def daemon(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    made = Daemon(runtime, monkeypatch)
    before = set(os.listdir("/proc/self/fd"))
    with made.listeners:
        yield made
    made.reloading.close()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_what_a_change_costs_is_said_and_answered_once(daemon: Daemon) -> None:
    often = next(probe for probe in plan.builtin().probes if probe.enabled)._replace(interval_ns=20_000_000)
    daemon.makes(Plan((often,)))
    answer = daemon.reload()
    assert answer == {"ok": True, "remarks": daemon.said}
    assert [said.partition(" is ")[0] for said in daemon.said] == [f"probes.{often.table}.interval: 20ms"]
    daemon.makes(Plan((often,)))
    assert daemon.reload() == {"ok": True}


REFUSED = Refusal("acme", "does not load")


def test_a_new_plan_is_told_to_every_part_and_answered_when_all_follow(daemon: Daemon) -> None:
    daemon.part("sampler")
    daemon.part("archiver")
    daemon.makes(Plan((), (REFUSED,)))
    assert daemon.reload() == {"ok": True}
    assert daemon.made == [Plan((), (REFUSED,))]
    assert daemon.heard == [{"do": "plan"}] * 2
    assert daemon.said == ["refused: acme: does not load"]
    daemon.makes(Plan((), (REFUSED,)))
    assert daemon.reload() == {"ok": True}
    assert len(daemon.said) == 1  # Not said again.
    assert not daemon.reloading.is_busy


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import sys; sys.exit('noise\\nsysmond: first\\nsysmond: f.yaml:1: wrong\\nmore')", "f.yaml:1: wrong"),
        ("import sys; print('sysmond: x' * 100000, file=sys.stderr); sys.exit('sysmond: last')", "last"),
        ("import sys; sys.exit(5)", "the plan could not be made (exit code 5)"),
        ("import os; os.kill(os.getpid(), 9)", "the plan could not be made (SIGKILL)"),
        ("pass", "PLAN: No such file or directory"),
        ("import os; open(PLAN, 'w').write('{')", "plan: not JSON ("),
    ],
)
def test_a_resolver_that_fails_changes_nothing_and_says_why(daemon: Daemon, program: str, problem: str) -> None:
    daemon.part("sampler")
    daemon.program = program.replace("PLAN", repr(daemon.path))
    answer = daemon.reload()
    assert problem.removeprefix("PLAN: ") in str(answer["error"])
    assert daemon.said == [f"not reloaded: {answer['error']}"]
    assert daemon.made == []
    assert daemon.heard == []
    daemon.makes(Plan(()))
    assert daemon.reload() == {"ok": True}


def test_a_resolver_that_hangs_is_killed(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "RESOLVE_S", 0.2)
    daemon.program = "import time; time.sleep(3600)"
    assert daemon.reload() == {"error": "the plan was not made within 0 s"}


def test_a_grandchild_that_keeps_the_pipe_is_not_waited_for(daemon: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "grandchild"
    daemon.program = f"""
import os, sys, time
if grandchild := os.fork():
    open({str(path)!r}, "w").write(str(grandchild))
    sys.exit("sysmond: wrong")
time.sleep(3600)
"""
    assert daemon.reload() == {"error": "wrong"}
    os.kill(int(path.read_text()), signal.SIGKILL)


def test_a_resolver_that_cannot_be_started_is_said(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "resolver_command", lambda _: ["/nowhere/python"])
    assert daemon.reload() == {"error": "the plan could not be made: No such file or directory"}


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 200_000])
def test_what_no_program_can_be_told_is_refused(daemon: Daemon, text: str) -> None:
    asked = daemon.reloading.obey({"do": "set", "key": text, "value": True})
    answer = daemon.outcome(asked)["error"]
    assert answer in {
        "a name or value with a NUL, or with half a character; expected text",
        "the plan could not be made: Argument list too long",
    }
    daemon.makes(Plan(()))
    assert daemon.reload() == {"ok": True}


def test_parts_that_refuse_or_never_answer_are_named(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "FOLLOW_S", 0.5)
    daemon.part("sampler")
    daemon.part("background", listens=False)
    daemon.obeys = lambda _: {"error": "no"}
    daemon.makes(Plan(()))
    assert daemon.reload() == {"ok": True, "behind": {"sampler": "no", "background": "no answer within 0 s"}}
    assert daemon.said == [
        "sampler does not follow the new plan: no",
        "background does not follow the new plan: no answer within 0 s",
    ]


def test_a_part_that_listens_late_is_told_late_and_one_that_dies_not_at_all(daemon: Daemon) -> None:
    daemon.part("sampler", listens=False)
    daemon.part("background", listens=False)
    daemon.makes(Plan(()))
    asked = daemon.reloading.reload()
    daemon.until(lambda: daemon.made)
    daemon.parts["background"] = 2  # Its successor was started with the new plan.
    daemon.part("sampler")
    assert daemon.outcome(asked) == {"ok": True}
    assert daemon.heard == [{"do": "plan"}]


def test_wishes_to_reload_that_wait_are_one_and_changes_are_bounded(daemon: Daemon) -> None:
    counter = daemon.runtime / "count"
    plan.write(Plan(()), daemon.path)
    daemon.program = f"open({str(counter)!r}, 'a').write('x')"
    asked = [daemon.reloading.reload() for _ in range(40)]
    assert {json.dumps(daemon.outcome(each)) for each in asked} == {'{"ok": true}'}
    assert counter.read_text() == "xx"  # The one that ran when the others came, and one for all of them.
    many = [daemon.reloading.reload() for _ in range(WAITING_MAX + 2)]
    assert many[-1] == {"error": f"{WAITING_MAX} wait for the next reload already; try again later"}
    for each in many[:-1]:
        daemon.outcome(each)
    order: Order = {"do": "set", "key": "probes.cpu.enabled", "value": True}
    orders = [daemon.reloading.obey(order) for _ in range(CHANGES_MAX + 1)]
    assert orders[-1] == {"error": f"{CHANGES_MAX} changes wait already; try again later"}
    for each in orders[:-1]:
        daemon.outcome(each)


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        (False, "--set=probes.cpu.enabled=false"),
        ("5s", "--set=probes.cpu.enabled=5s"),
        ("a=b --x", "--set=probes.cpu.enabled=a=b --x"),
        (2.5, "--set=probes.cpu.enabled=2.5"),
        (None, "--unset=probes.cpu.enabled"),
    ],
)
def test_a_change_is_spelled_for_the_resolver(daemon: Daemon, value: object, argument: str) -> None:
    daemon.program = "import sys; sys.exit(f'sysmond: {sys.argv[1:]}')"
    asked = daemon.reloading.obey({"do": "set", "key": "probes.cpu.enabled", "value": value})
    assert daemon.outcome(asked) == {"error": str(["--parent", str(os.getpid()), argument])}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
ORDERS = st.dictionaries(st.sampled_from(["probe", "key", "value", "do", "more"]), JSON) | st.fixed_dictionaries(
    {"do": st.sampled_from(["set", "reload", "sing"])}, optional={"key": JSON, "value": JSON}
)


@given(st.lists(ORDERS, max_size=30))
def test_whatever_is_ordered_is_answered_or_waits_and_what_waits_is_bounded(orders: list[Order]) -> None:
    asked = Reloading(Settings(Folders("", "/nowhere")), Plan(()), {}, print)
    for order in orders:
        answer = asked.obey(order)
        assert isinstance(answer, Later) or set(answer) == {"error"}
    assert len(asked._changes) <= CHANGES_MAX
