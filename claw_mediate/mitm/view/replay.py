"""Replay of a turn in the view: from its flows, into a new flow (``claw.replay``).

The new flow is a copy of the runner's, with the response that it would get now. Its comment names
the original, and its Turn view begins with the differences (``docs/spec/inspect.md``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mitmproxy import http

from claw_contract.base import JsonObject
from claw_contract.transcript.diff import diff_entries
from claw_contract.transcript.text import as_line, as_object
from claw_contract.whole_numbers import whole_number
from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import find_endpoint
from claw_mediate.dialects.base import Dialect, UnreadableRequestError
from claw_mediate.dialects.endpoints import DIALECTS
from claw_mediate.mitm.view import hidden_flows, turn_view
from claw_mediate.telemetry.event_log import encode_json
from claw_mediate.turns.replay import RecordedResponse, RecordedTurn, ReplayOutcome, replay_turn

REPLAY_OF = "claw.replay_of"
MARK = ":repeat:"


class NotReplayableError(ValueError):
    """A turn can't be replayed; the message says why in one line."""


class ReplayResult(NamedTuple):
    """A replay: its flow, and the differences as text."""

    flow: http.HTTPFlow
    report: str


async def replay(
    of: http.HTTPFlow, flows: Iterable[http.HTTPFlow], agents: AgentDirectory
) -> ReplayResult:
    """Replay the turn of this flow; ``flows`` are all that there are.

    Raise ``NotReplayableError``.
    """
    flows = list(flows)
    parent = _parent(of, flows)
    entry = as_object(turn_view.entry(parent))
    if not entry:
        raise NotReplayableError("this flow is no finished turn: it has no line of history")
    if entry.get("delivery") == "native":
        raise NotReplayableError("this is a call that the runner made itself: no model was asked")

    agent_id = as_line(entry.get("claw_id"))
    try:
        agent = agents.find(agent_id)
    except UnreadableDirectoryError as error:
        raise NotReplayableError(str(error)) from error
    if agent is None:
        raise NotReplayableError(
            f"no agent {agent_id!r} can be read in the context directory (cllama_context)"
        )

    path = parent.request.path
    replies, results = _hidden(_children(parent, flows))
    recorded = RecordedTurn(entry, path, _content(parent.request), replies, results)
    if lost := recorded.missing():
        raise NotReplayableError(f"the recording is not complete: it lacks {', '.join(lost)}")

    try:
        again = await replay_turn(recorded, agent, _dialect(path))
    except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
        raise NotReplayableError(f"the runner's request can't be read: {error}") from error
    except Exception as error:  # a file may hold anything
        raise NotReplayableError(
            f"the recording can't be played: {type(error).__name__}"
        ) from error
    return _result(parent, entry, again)


def _result(parent: http.HTTPFlow, entry: JsonObject, again: ReplayOutcome) -> ReplayResult:
    """Return the replay's flow, and the differences from the recorded entry."""
    lines = [f"replay of {parent.id}, turn {as_line(entry.get('turn_id'))}"]
    recorded_under, replayed_under = entry.get("digest"), again.entry.get("digest")
    if recorded_under != replayed_under:
        lines.append(
            f"recorded under {as_line(recorded_under)[:12]}, replayed under "
            f"{as_line(replayed_under)[:12]}"
        )
    lines += [f"not recorded: {what}" for what in again.missing]

    differing = diff_entries(entry, again.entry)
    lines += differing
    lines.append(f"{len(differing)} lines differ" if differing else "nothing differs")
    report = "\n".join(lines)

    flow = parent.copy()
    flow.response = http.Response.make(
        again.status, again.body, {"content-type": "application/json"}
    )
    flow.error = None
    flow.marked = MARK
    flow.comment = f"replay of {parent.id}: {lines[-1]}"
    flow.metadata |= {
        REPLAY_OF: parent.id,
        turn_view.DIFFERENCES: report,
        hidden_flows.ENTRY: encode_json(again.entry).decode(),
    }
    return ReplayResult(flow, report)


def _parent(of: http.HTTPFlow, flows: Sequence[http.HTTPFlow]) -> http.HTTPFlow:
    """Return the runner's flow: of a hidden request and of a replay, the flow of their turn."""
    wanted = of.metadata.get(hidden_flows.PARENT) or of.metadata.get(REPLAY_OF)
    if wanted is None:
        return of

    for flow in flows:
        if flow.id == wanted:
            return flow

    raise NotReplayableError("the runner's request that this flow is part of is not there")


def _children(parent: http.HTTPFlow, flows: Sequence[http.HTTPFlow]) -> list[http.HTTPFlow]:
    """Return the hidden flows of a runner's flow.

    One that joined a turn has none of its own: those of the turn are returned.
    """
    own = [flow for flow in flows if flow.metadata.get(hidden_flows.PARENT) == parent.id]
    if own:
        return own

    turn_id = parent.metadata.get(hidden_flows.TURN)
    hidden = [flow for flow in flows if hidden_flows.PARENT in flow.metadata]
    return [flow for flow in hidden if flow.metadata.get(hidden_flows.TURN) == turn_id]


def _hidden(
    children: Iterable[http.HTTPFlow],
) -> tuple[Mapping[int, RecordedResponse], Mapping[tuple[int, str], Sequence[RecordedResponse]]]:
    """Return the model's responses by their round, and those of services by round and tool."""
    replies: dict[int, RecordedResponse] = {}
    results: dict[tuple[int, str], list[RecordedResponse]] = {}
    for child in children:
        about = child.metadata
        number = about.get(hidden_flows.ROUND)
        tool = about.get(hidden_flows.TOOL)
        was_made = child.request.host != hidden_flows.NOT_MADE
        if not was_made or not isinstance(number, int) or not _is_whole(child):
            continue

        if about.get(hidden_flows.KIND) == "model":
            replies[number] = _recorded(child)
        elif isinstance(tool, str):
            results.setdefault((number, tool), []).append(_recorded(child))

    return replies, results


def _is_whole(child: http.HTTPFlow) -> bool:
    """Return whether enough was kept.

    That is all of a model's reply, or the beginning of a service's response.
    """
    is_tool = child.metadata.get(hidden_flows.KIND) == "tool"
    if child.response is None or is_tool:
        return True
    return _size(child.response) <= len(_content(child.response))


def _recorded(child: http.HTTPFlow) -> RecordedResponse:
    latency = child.metadata.get(hidden_flows.LATENCY)
    milliseconds = latency if isinstance(latency, int) else 0
    if child.response is None:
        why = child.error.msg if child.error is not None else "no response"
        reason = why.removeprefix(hidden_flows.FAILED).encode(errors="replace")
        return RecordedResponse(None, "", reason, 0, milliseconds)

    response = child.response
    body = _content(response)
    content_type = response.headers.get("content-type", "")
    is_tool = child.metadata.get(hidden_flows.KIND) == "tool"
    was_known = is_tool and child.metadata.get(hidden_flows.REPLAYED) is True
    return RecordedResponse(
        response.status_code, content_type, body, _size(response), milliseconds, was_known
    )


def _size(response: http.Response) -> int:
    """Return the length that the head declares, or else that of what was kept."""
    declared = whole_number(response.headers.get("content-length", ""))
    return len(_content(response)) if declared is None else declared


def _content(message: http.Message) -> bytes:
    return message.get_content(strict=False) or b""


def _dialect(path: str) -> Dialect:
    end = find_endpoint(path)
    if end is None or DIALECTS[end].only_counts:
        raise NotReplayableError(
            "this request was forwarded as it was: there was nothing to decide"
        )
    return DIALECTS[end].dialect
