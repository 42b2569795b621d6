"""The failure matrix, as data: how each failure of a provider reaches its runner, by phase, as JSON and as a stream.

``python -m tests.failures.table`` prints it as docs/failures.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from tests.failures.provider import FAILURES, Failure, Ours, Passed

TRIES = 3
"""How often a call is made whose failure may pass."""


class Phase(Enum):
    """Where in a turn the provider fails."""

    FIRST = "first call"
    """Nothing has run, and nothing has been sent."""
    OPEN = "first call, headers sent"
    """Nothing has run, but a stream's headers are out, because the provider took its time."""
    LATER = "later round"
    """A tool has run."""
    FINAL = "last word"
    """The turn's rounds are spent, and the model was asked to answer without tools."""


@dataclass(frozen=True)
class Told:
    """How a failure reaches its runner."""

    by: Literal["a response", "an event"]
    status: int
    """Of the response; of an event, the one that history keeps."""
    reason: str
    """The code of the proxy's own error, and of the log's line in any case."""
    own: bool
    """Whether the runner gets the proxy's own error, and not the provider's."""
    tries: int


def told(failure: Failure, phase: Phase, *, stream: bool) -> Told:
    """One cell of the matrix."""
    by: Literal["a response", "an event"] = "a response" if phase is Phase.FIRST or not stream else "an event"
    tries = TRIES if failure.retried and phase is not Phase.FIRST else 1
    match failure.outcome:
        case Ours(code, status):
            return Told(by, 502 if phase is Phase.FINAL else status, code, own=True, tries=tries)
        case Passed(status) if phase is Phase.FINAL:
            return Told(by, 502, f"provider_http_{status}", own=True, tries=tries)
        case Passed(status, shaped):
            own = by == "an event" and not shaped
            return Told(by, status, f"provider_http_{status}", own=own, tries=tries)


def cells(failure: Failure) -> list[tuple[Phase, bool]]:
    """Phase and stream, as far as they can come together."""
    found = [(Phase.FIRST, False), (Phase.FIRST, True), (Phase.OPEN, True)]
    found += [(phase, stream) for phase in (Phase.LATER, Phase.FINAL) for stream in (False, True)]
    return [cell for cell in found if not (cell[0] is Phase.OPEN and failure.until == "never listens")]


_HEAD = """# When a provider fails

This page is printed from the table that the tests hold the proxy to: `python -m tests.failures.table > docs/failures.md`.

Every failure below is played in every phase of a turn, in both dialects, as JSON and as a stream (`tests/failures`). In each
of these cases the runner gets exactly one answer; history has one line for the turn, with the calls that ran; the log has the
turn's `request`, a `tool_call` for each call, and one `error` with the code; and no key, token or address is in any of it.

- **A response** is what a runner gets that did not ask for a stream, or whose stream's headers are not out yet.
- **An event** is what a stream gets after its headers: OpenAI `data: {"error": …}` then `[DONE]`; Anthropic `event: error`.
- **The last word** is the model call without tools at the end of a spent turn. Whatever fails there is a 502.
- *The provider's own* error is passed on with its status, without its secrets, and with its `Retry-After`; all others are the
  proxy's, in the dialect's shape. OpenAI's have the code below; Anthropic's shape has none, so there it is in log and history.
- Calls are **asked** once before anything has cost something. Once a tool has run, or a stream's headers are out, runners
  would take the error as final or repeat the whole turn, so the proxy itself asks again, within the turn's time.
- The time of a whole turn is bounded (`total_timeout_ms`), that of its parts too: nothing waits for ever.

| the provider … | a response | an event | the last word | asked |
|---|---|---|---|---|
"""


def page() -> str:
    """docs/failures.md."""
    return _HEAD + "".join(f"{_row(failure)}\n" for failure in FAILURES)


def _row(failure: Failure) -> str:
    response = told(failure, Phase.LATER, stream=False)
    event = told(failure, Phase.LATER, stream=True)
    final = told(failure, Phase.FINAL, stream=False)
    asked = f"{response.tries} times" if response.tries > 1 else "once"
    cells = [failure.what, _said(response), _said(event, event=True), _said(final), asked]
    return "| " + " | ".join(cells) + " |"


def _said(one: Told, *, event: bool = False) -> str:
    who = f"`{one.reason}`" if one.own else "the provider's own"
    return who if event else f"{one.status}, {who}"


if __name__ == "__main__":
    print(page(), end="")
