"""A real browser with a page of mitmweb, and everything that it received."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Response, WebSocket, expect, sync_playwright

from tests.not_tested import skip_for
from tests.web.mitmweb import PASSWORD, Mitmweb

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",  # that of a container is small
)
SECONDS = 60
"""Seconds to wait at most: a machine may be busy."""
expect.set_options(timeout=SECONDS * 1000)


@dataclass
class Browser:
    """A page of mitmweb, and everything that the browser received."""

    page: Page
    responses: list[Response] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("response", lambda response: self.responses.append(response))  # noqa: PLW0108 - playwright marks it
        self.page.on("websocket", self._socket)

    def _socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: self.frames.append(str(frame)))

    def find(self, terms: str) -> Any:
        """Search the list of flows; return the rows that are left."""
        self.page.get_by_role("button", name="Flow List").or_(
            self.page.get_by_text("Flow List")
        ).first.click()
        self.page.get_by_placeholder("Search").fill(terms)
        return self.page.locator("tr:has(td.col-path)")

    def received(self) -> str:
        bodies = [
            found.body().decode(errors="replace") for found in self.responses if found.status == 200
        ]
        return "\n".join([*bodies, *self.frames])


@contextmanager
def browsing(web: Mitmweb, profile: Path) -> Iterator[Browser]:
    """Yield a browser that shows the page of mitmweb. ``profile``: its directory."""
    if CHROMIUM is None:
        skip_for("chromium")
    with sync_playwright() as playwright:
        window = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": 1360, "height": 900},
            timeout=SECONDS * 1000,
        )
        window.set_default_timeout(SECONDS * 1000)
        opened = Browser(window.new_page())
        opened.listen()
        opened.page.goto(f"{web.url}/?token={PASSWORD}")
        yield opened
        window.close()
