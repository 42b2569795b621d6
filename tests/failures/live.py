"""The failures of turns that stream live, as data: what a runner gets, and what its next request
finds (docs/spec/live.md section 9).

Each row names the requirements whose tests show it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LiveFailure:
    what: str
    runner: str
    """The runner's answer."""
    again: str
    """The state that the same request finds afterwards."""
    shown_by: tuple[str, ...]
    """Ids of requirements."""


_ON = "it goes on at this reply; the replies before it are shown again"
_IN_VAIN = "keepalives; an error event if two more tries fail, too"

LIVE_FAILURES = (
    LiveFailure(
        "a reply fails before any content, and no headers are out",
        "the status that the error means, once all keys and candidates have failed; or 502",
        "a new turn, or the rounds so far",
        ("live:failure-unshown", "live:failure-failover"),
    ),
    LiveFailure(
        "the same behind the headers, or in a later round",
        _IN_VAIN,
        "it goes on at this reply",
        ("live:failure-by-time", "live:failure-unshown-later"),
    ),
    LiveFailure(
        "a reply breaks off of which only calls have come",
        _IN_VAIN,
        "it goes on at this reply; no call of it has run",
        ("live:failure-unshown-later",),
    ),
    LiveFailure(
        "the provider tells an error behind content",
        "that error as an event, without secrets and names of managed tools",
        _ON,
        ("live:failure-error-event", "live:failure-shown-is-final"),
    ),
    LiveFailure(
        "a reply breaks off, falls silent or flows too long behind content",
        "a cut; an error event over HTTP/1.0",
        _ON,
        ("live:failure-cut", "live:failure-idle", "live:max", "live:failure-resumed"),
    ),
    LiveFailure(
        "a reply can't be read behind content",
        "an error event",
        _ON,
        ("live:failure-unreadable",),
    ),
    LiveFailure(
        "a reply flows past the turn's time, and ends with calls",
        "nothing: the calls are answered `tool_budget_exhausted`, and the last model call follows",
        "–",
        ("live:last-word",),
    ),
    LiveFailure(
        "the last model call fails, or asks for tools",
        "an error event behind what was shown",
        "it goes on: that call is made again",
        ("live:last-call-fails",),
    ),
    LiveFailure(
        "a tool fails, or is rejected",
        "nothing: the model is told",
        "–",
        ("live:failure-tool",),
    ),
    LiveFailure(
        "the runner leaves",
        "–",
        "a read is dropped, a write under way is finished and recorded; then it goes on",
        ("live:leaves", "live:leaves-a-write"),
    ),
    LiveFailure(
        "the runner reads slowly",
        "nothing: the provider is read no further than about 1 MiB ahead, and no limit counts that",
        "–",
        ("live:back-pressure", "live:read-ahead", "live:max"),
    ),
    LiveFailure(
        "the runner takes nothing for `cllama_live_max_ms`",
        "a cut: its connection is closed",
        "it goes on at the reply that was under way, if the turn was not over",
        ("live:unread",),
    ),
    LiveFailure(
        "the same request comes while the turn runs",
        "everything from the beginning, then what comes",
        "–",
        ("live:joins",),
    ),
    LiveFailure(
        "the same request reaches another process while the turn runs",
        "after `cllama_live_first_ms` headers and keepalives, then the answer or an error event",
        "–",
        ("live:elsewhere", "live:elsewhere-bounded", "live:elsewhere-id"),
    ),
    LiveFailure(
        "tools, script or settings change",
        "nothing: the turn keeps those that it began with",
        "–",
        ("live:reloaded", "live:old-settings"),
    ),
    LiveFailure(
        "the proxy is stopped",
        "the rest, in the time of the drain; then a cut, or 503 `shutting_down` if nothing was "
        "shown",
        "it goes on at the next proxy",
        ("live:drain",),
    ),
    LiveFailure(
        "the proxy is killed",
        "a cut",
        "it goes on at the next proxy; a reply that was not whole is asked for again",
        ("live:killed-proxy", "live:killed"),
    ),
    LiveFailure(
        "the runner sends what it has of the answer, behind its request",
        "what it has not got",
        "–",
        ("live:continuation", "live:goes-on-elsewhere"),
    ),
    LiveFailure(
        "it sends that, and new words of the user's",
        "the answer of a new turn, whose transcript has what ran",
        "–",
        ("live:settled", "live:settled-answered", "live:goes-on-elsewhere"),
    ),
    LiveFailure(
        "it sends new words behind reasoning alone, or behind nothing of the answer",
        "the same",
        "–",
        ("live:continuation-thought", "live:settled-answered"),
    ),
    LiveFailure(
        "a kill, a cut, an end, an error or a runner that leaves, behind each kind of event of each "
        "reply (random trials)",
        "every word that was recorded and shown, once, however it goes on",
        "it goes on; no write is made twice, and the transcript has each call once",
        ("live:trials", "crash:at-most-once"),
    ),
)
