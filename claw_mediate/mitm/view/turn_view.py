"""The content view "Turn": a mediated turn as its transcript, from the metadata of its flow alone.

    a runner's flow       the default view of its response, which is the end of the turn
    a hidden request      only if it is chosen: its turn, and what was said
    any other             never by itself

A flow that was loaded from a file is shown like a live one. Its metadata is as hostile as the file
(``docs/spec/inspect.md``).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mitmproxy import contentviews, flow, http

from claw_contract.history import decode_recorded
from claw_contract.transcript import text as said
from claw_contract.transcript.render import render_transcript
from claw_contract.transcript.text import as_line
from claw_mediate.mitm.view import hidden_flows

DIFFERENCES = "claw.differences"
"""Flow metadata of a replay: the differences from the recorded turn, as text."""
_DEFAULT, _ONLY_IF_CHOSEN = 100.0, -1.0


class TurnView(contentviews.Contentview):
    """The view. A script that is reloaded replaces it in mitmproxy's registry."""

    name = "Turn"
    syntax_highlight = "none"

    def render_priority(self, _data: bytes, metadata: contentviews.Metadata) -> float:
        of = metadata.flow
        if not isinstance(of, http.HTTPFlow) or metadata.http_message is not of.response:
            return _ONLY_IF_CHOSEN
        return _DEFAULT if hidden_flows.ENTRY in of.metadata else _ONLY_IF_CHOSEN

    def prettify(self, _data: bytes, metadata: contentviews.Metadata) -> str:
        return describe(metadata.flow)


def describe(of: flow.Flow | None) -> str:
    """Return the transcript of a flow's turn, or why there is none. Never fail."""
    if of is None:
        return "this is no flow of a turn"
    if hidden_flows.PARENT in of.metadata:
        return "\n".join(_describe_hidden(of))
    if hidden_flows.ENTRY not in of.metadata:
        turn_id = as_line(of.metadata.get(hidden_flows.TURN))
        return f"turn {turn_id} is not over" if turn_id else "this flow is no mediated turn"

    transcript = render_transcript(entry(of))
    differences = of.metadata.get(DIFFERENCES)
    if not isinstance(differences, str):
        return transcript
    return f"{said.printable(differences)}\n\n{transcript}"


def entry(of: flow.Flow) -> Any:
    """Return the line of history that a flow carries; None if it has none that can be read."""
    return _json(of.metadata.get(hidden_flows.ENTRY))


def _describe_hidden(of: flow.Flow) -> Iterator[str]:
    """Yield the lines about a hidden request: its turn, and what was said."""
    about = of.metadata
    turn_id = as_line(about.get(hidden_flows.TURN))
    agent_id = as_line(about.get(hidden_flows.AGENT))
    kind = as_line(about.get(hidden_flows.KIND))
    yield f"part of turn {turn_id or '?'} of {agent_id or '?'}"
    yield f"{kind or 'request'}: {' · '.join(_hidden_notes(about))}"
    yield f"the runner's request: ~comment {turn_id} & ~marker llama"
    if not isinstance(of, http.HTTPFlow):
        return

    yield ""
    request, response = _body(of.request), _body(of.response)
    if kind == "model":
        for message in said.request_messages(_json(request))[-1:]:
            yield from said.message_lines(message)
        yield from said.response_lines(_json(response) or response)
    else:
        yield said.printable(request) or "(no body)"
        yield f"{of.response.status_code if of.response else '-'}: {said.printable(response)}"
    if of.error is not None:
        yield f"error: {said.printable(of.error.msg)}"


def _hidden_notes(about: Mapping[str, Any]) -> Iterator[str]:
    """Yield notes of a hidden request by its metadata: who was asked, when, for how long."""
    name = as_line(about.get(hidden_flows.TOOL) or about.get(hidden_flows.PROVIDER))
    if name:
        yield name
    server = as_line(about.get(hidden_flows.SERVER))
    if server:
        yield server
    yield f"round {said.printable(about.get(hidden_flows.ROUND))}"
    latency = about.get(hidden_flows.LATENCY)
    if latency is not None:
        yield f"{said.printable(latency)} ms"
    if about.get(hidden_flows.DUPLICATE):
        yield "a repeat"
    if about.get(hidden_flows.REPLAYED):
        yield "known of an earlier attempt"


def _body(message: http.Message | None) -> str:
    if message is None:
        return ""
    return (message.raw_content or b"").decode(errors="replace")


def _json(text: object) -> Any:
    try:
        return decode_recorded(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
