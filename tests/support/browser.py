# SPDX-License-Identifier: Apache-2.0
"""A page in a headless Chromium, asked and operated as a person does: by pointer, wheel and keys, over its pipe."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
_ANSWER_BYTES_MAX = 1 << 24
_OPENED = "document.readyState === 'complete' && location.href !== 'about:blank'"
_NEXT_FRAME = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class BrowserPage:
    """A page that is open."""

    def __init__(self, orders: int, answers: int) -> None:
        """``orders``, ``answers``: descriptors of the pipe of the browser."""
        self._orders, self._answers = orders, answers
        self._number = 0
        self._fingers = 0
        self._waiting = b""
        self._session = ""
        targets = self.order("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def order(self, method: str, **values: object) -> dict[str, Any]:
        """Send an order of the DevTools protocol, and give its result."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": values}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, address: str) -> None:
        """Go to an address, and wait until all of it is there."""
        self.order("Page.navigate", url=address)
        while not self.ask(_OPENED):
            pass

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.order("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.order("Input.dispatchKeyEvent", type=kind, key=key)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the button of the mouse at a place, and let it go at another."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.order("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def wheel(self, x: float, y: float, turned: float, *, has_control: bool) -> None:
        """Turn the wheel at a place, downwards if ``turned`` is positive."""
        how: dict[str, object] = {"deltaX": 0, "deltaY": turned, "modifiers": 2 if has_control else 0}
        self.order("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, **how)

    def touch(self, *places: tuple[float, float]) -> None:
        """Put fingers on these places, or move those that are there; none lifts them."""
        kind = "touchEnd" if not places else "touchMove" if self._fingers == len(places) else "touchStart"
        self._fingers = len(places)
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
        self.order("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        self.order("Runtime.evaluate", expression=_NEXT_FRAME, awaitPromise=True)  # Moves come with a frame.

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            piece = os.read(self._answers, 1 << 16)
            assert piece, "the browser ended"
            self._waiting += piece
            assert len(self._waiting) < _ANSWER_BYTES_MAX
        first, _, self._waiting = self._waiting.partition(b"\0")
        answer: dict[str, Any] = json.loads(first)
        return answer


@contextmanager
def opened(address: str, folder: Path) -> Iterator[BrowserPage]:
    """Open a page, with a profile below a folder; the browser ends with the block."""
    theirs_in, orders = os.pipe()
    answers, theirs_out = os.pipe()
    # Chromium reads its orders from descriptor 3, and answers to 4.
    command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    how = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--window-size=1200,900"]
    words = ["bash", "-c", command, str(BROWSER), *how, f"--user-data-dir={folder}/profile", "about:blank"]
    with subprocess.Popen(words, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL) as browser:
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            page = BrowserPage(orders, answers)
            page.open(address)
            yield page
        finally:
            os.close(orders)
            os.close(answers)
            browser.terminate()
