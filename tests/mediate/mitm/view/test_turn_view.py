"""The Turn view: the transcript of a flow, from metadata that may be any file's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import contentviews, flow, http
from mitmproxy.test import tflow

from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.turn_view import DIFFERENCES, TurnView, describe

TURN = {hidden_flows.TURN: "turn-1", hidden_flows.AGENT: "analyst"}


def of(body: bytes = b"", **metadata: Any) -> http.HTTPFlow:
    """Return a flow with a response, and with metadata by its names without ``claw.``."""
    made = tflow.tflow(resp=True)
    made.request.content = body
    made.metadata |= {f"claw.{name}": value for name, value in metadata.items()}
    return made


@pytest.mark.requirement("web:turn-view")
@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "this is no flow of a turn"),
        (of(), "this flow is no mediated turn"),
        (of(turn="turn-1"), "turn turn-1 is not over"),
    ],
)
def test_a_flow_without_a_transcript_says_why(seen: flow.Flow | None, said: str) -> None:
    assert describe(seen) == said


@pytest.mark.requirement("web:turn-view")
def test_a_hidden_call_says_what_it_is_part_of_and_what_was_said() -> None:
    call = of(
        b'{"symbol": "X"}',
        parent="a",
        turn="turn-1",
        agent="analyst",
        kind="tool",
        tool="desk.trade",
        server="desk 1.0",
        round=2,
        latency_ms=7,
        duplicate=True,
        replayed=False,
    )
    call.error = flow.Error("cllama: it \x1b[2J broke off")
    assert describe(call).splitlines() == [
        "part of turn turn-1 of analyst",
        "tool: desk.trade · desk 1.0 · round 2 · 7 ms · a repeat",
        "the runner's request: ~comment turn-1 & ~marker llama",
        "",
        '{"symbol": "X"}',
        "200: message",
        r"error: cllama: it \x1b[2J broke off",
    ]


@pytest.mark.requirement("web:turn-view")
def test_the_differences_of_a_replay_come_before_its_transcript() -> None:
    replayed = of(entry="{}")
    transcript = describe(replayed)
    replayed.metadata[DIFFERENCES] = "nothing differs"
    assert describe(replayed) == f"nothing differs\n\n{transcript}"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
NAMES = ("parent", "turn", "agent", "kind", "tool", "server", "round", "latency_ms", "entry")


@pytest.mark.requirement("web:turn-view")
@given(st.dictionaries(st.sampled_from([*NAMES, "differences"]), ANYTHING), st.binary())
def test_metadata_of_a_hostile_file_raises_nothing(metadata: dict[str, Any], body: bytes) -> None:
    assert isinstance(describe(of(body, **metadata)), str)


@pytest.mark.requirement("web:turn-view")
def test_it_is_the_default_only_for_the_answer_of_a_turn_that_is_over() -> None:
    turn, running = of(entry="{}"), of(turn="turn-1")

    def priority(seen: http.HTTPFlow, message: http.Message | None) -> float:
        metadata = contentviews.Metadata(flow=seen, http_message=message)
        return TurnView().render_priority(b"", metadata)

    assert priority(turn, turn.response) > 0
    assert priority(turn, turn.request) < 0
    assert priority(running, running.response) < 0
