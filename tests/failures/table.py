"""The failure matrix: the response to a runner for each failure of a provider, by
phase, as JSON and as a stream.

``python -m tests.failures.table`` prints docs/failures.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from tests.failures.live import LIVE_FAILURES
from tests.failures.provider import FAILURES, Failure, OwnError, PassedAnswer

TRIES = 3
"""Attempts of a model call whose failure may be temporary."""


class Phase(Enum):
    """Part of a turn in which the provider fails."""

    FIRST = "first call"
    """No tool has run, and nothing was sent to the runner."""
    OPEN = "first call, headers sent"
    """No tool has run, but a stream's headers were sent, because the provider was slow."""
    LATER = "later round"
    """A tool has run."""
    FINAL = "final call"
    """The rounds of the turn are spent, and the model was asked to answer without tools."""


@dataclass(frozen=True)
class FailureReport:
    """Report of a failure to the runner."""

    by: Literal["a response", "an event"]
    status: int
    """Status of the response, or for an event the status in history."""
    reason: str
    """Code in the log, and in the error if it is the proxy's own."""
    own: bool
    """True if the runner gets the proxy's own error instead of the provider's."""
    tries: int


def told(failure: Failure, phase: Phase, *, stream: bool) -> FailureReport:
    """Return one cell of the matrix."""
    by: Literal["a response", "an event"] = (
        "a response" if phase is Phase.FIRST or not stream else "an event"
    )
    tries = TRIES if failure.retried and phase is not Phase.FIRST else 1
    match failure.outcome:
        case OwnError(code, status):
            return FailureReport(
                by, 502 if phase is Phase.FINAL else status, code, own=True, tries=tries
            )
        case PassedAnswer(status) if phase is Phase.FINAL:
            return FailureReport(by, 502, f"provider_http_{status}", own=True, tries=tries)
        case PassedAnswer(status, shaped):
            own = by == "an event" and not shaped
            return FailureReport(by, status, f"provider_http_{status}", own=own, tries=tries)


def cells(failure: Failure) -> list[tuple[Phase, bool]]:
    """Return the possible combinations of phase and stream."""
    found = [(Phase.FIRST, False), (Phase.FIRST, True), (Phase.OPEN, True)]
    found += [(phase, stream) for phase in (Phase.LATER, Phase.FINAL) for stream in (False, True)]
    return [
        cell for cell in found if not (cell[0] is Phase.OPEN and failure.until == "never listens")
    ]


_HEAD = """# When a provider fails

This page lists what a runner gets when a provider fails.
It is generated from the table that the tests use: `python -m tests.failures.table > docs/failures.md`.

The tests (`tests/failures`) play every failure in every phase of a turn, in both dialects, as JSON and as a stream.
In each case:

- the runner gets exactly one response;
- history has one line for the turn, with the calls that ran;
- the log has the turn's `request`, a `tool_call` for each call, and one `error` with the code;
- none of these contains a key, a token or an address.

The columns:

- **Response**: the runner did not ask for a stream, or the stream's headers were not sent yet.
- **Event**: the stream's headers were sent already.
  OpenAI's form is `data: {"error": …}` and then `[DONE]`; Anthropic's is `event: error`.
- **Final call**: the model call without tools after the turn's rounds are spent. Every failure there is a 502.
- **Attempts**: how often the proxy makes the call if a tool has run or a stream's headers were sent.
  Runners take such an error as final or repeat the whole turn, so the proxy itself tries again, within the turn's time.
  Before that point it makes each call once.

*The provider's own* error is passed on with its status and its `Retry-After`, with secrets removed.
All other errors are the proxy's, in the dialect's form.
OpenAI's form contains the code below; Anthropic's has no code, so it is only in the log and in history.

The table is about turns that are buffered.
In a turn that streams live, it holds until the runner has something of the reply; [below](#in-a-turn-that-streams-live) is what differs.

The time of a turn is limited (`total_timeout_ms`), and so is the time of each part: no request waits forever.

| the provider … | response | event | final call | attempts |
|---|---|---|---|---|
"""


_LIVE_HEAD = """
## In a turn that streams live

A reply of which the runner has something is not asked for again: another one would not begin with the same words.
Nothing is written twice: what ran is recorded before its result is used.
[The specification](./spec/live.md#9-failures) has the rules.
Each row is shown by the tests of the requirements that `tests/failures/live.py` names.

| what fails | what the runner gets | what the same request finds |
|---|---|---|
"""


def page() -> str:
    """Return the text of docs/failures.md."""
    rows = "".join(f"{_row(failure)}\n" for failure in FAILURES)
    live = "".join(f"| {row.what} | {row.runner} | {row.again} |\n" for row in LIVE_FAILURES)
    return _HEAD + rows + _LIVE_HEAD + live


def _row(failure: Failure) -> str:
    response = told(failure, Phase.LATER, stream=False)
    event = told(failure, Phase.LATER, stream=True)
    final = told(failure, Phase.FINAL, stream=False)
    attempts = str(response.tries)
    cells = [failure.what, _said(response), _said(event, event=True), _said(final), attempts]
    return "| " + " | ".join(cells) + " |"


def _said(one: FailureReport, *, event: bool = False) -> str:
    who = f"`{one.reason}`" if one.own else "the provider's own"
    return who if event else f"{one.status}, {who}"


if __name__ == "__main__":
    print(page(), end="")
