"""A real browser, driven over its own protocol: pages are opened, pointed at, typed to, looked at.

Chromium takes commands as JSON from one pipe and answers on another, so nothing but the standard
library is needed. One process serves many pages.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 50) for end in sys.argv[1:3]]
for number, end in enumerate(ends, 3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Starts the browser, which reads descriptor 3 and writes descriptor 4, whatever ours are."""
KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip


class Browser:
    """One Chromium with one tab."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilesmith_browser_")
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        profile = f"--user-data-dir={self._folder.name}"
        ends = [str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", START, *ends, str(BROWSER), *FLAGS, profile],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = ours_out, ours_in
        self._buffer, self._number, self._session = b"", 0, ""
        self.errors: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        found = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait(timeout=20)
        self._folder.cleanup()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has gone"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        if message.get("method") == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.errors.append(f"asks for {url}")
        return message

    def open(
        self, page: Path, width: int = 1400, height: int = 1000, *, is_dark: bool = False
    ) -> float:
        """Show a page; seconds until it is ready."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self.errors.clear()
        start = time.perf_counter()
        self._ask("Page.navigate", url=page.as_uri())
        is_here = f"document.readyState === 'complete' && location.href === {page.as_uri()!r}"
        while not self.run(is_here):
            assert time.perf_counter() - start < 30, "the page does not load"
        return time.perf_counter() - start

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """The middle of the first element that a selector finds, brought into view."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({selector!r});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.x + Math.min(b.width, 120) / 2, b.y + b.height / 2]; })()"
        )
        return place[0], place[1]

    def point(self, selector: str) -> None:
        """Move the mouse there."""
        x, y = self.centre(selector)
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Move the mouse there, press and release."""
        x, y = self.centre(selector)
        self._ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            code = KEYS.get(key, 0)
            for kind in ("keyDown", "keyUp"):
                text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
                self._ask(
                    "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                    windowsVirtualKeyCode=code, **text,
                )  # fmt: skip

    def shoot(self, path: Path, *, is_whole: bool = False) -> None:
        """A screenshot as PNG; of the whole page where that is asked for."""
        shot = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(shot["data"]))
