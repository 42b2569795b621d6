"""Turns in a file of mitmdump: shown in mitmweb without a pod, and replayed without
asking any peer.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from inline_snapshot import snapshot
from mitmproxy import http

from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.mitm.view import turn_view
from claw_mediate.mitm.view.hidden_flows import KIND, PARENT, ROUND, TOOL
from claw_mediate.mitm.view.replay import NotReplayableError, replay
from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN
from tests.waiting import eventually, free_port
from tests.web.conftest import RecordedTurns

ANSWERS = ["assistant: Bought. \\x1b[2J 49,000 are left.", "assistant: 50,000 are left."]
LATER = ['error: {"message": "no"}', "assistant: It is bought.", "assistant: 50,000 are there."]
BOTH = pytest.mark.parametrize("number", [0, 1], ids=["openai", "anthropic"])


@BOTH
@pytest.mark.requirement("web:turn-view")
def test_the_turn_view_is_the_default_of_a_turns_response(
    recorded: RecordedTurns, number: int
) -> None:
    shown = recorded.web.view(recorded.web.turns()[number])
    assert shown["view_name"] == "Turn"
    assert shown["text"].splitlines()[-1] == f"  │ {ANSWERS[number]}"
    assert recorded.web.view(recorded.web.turns()[number], message="request")["view_name"] == "JSON"


@pytest.mark.requirement("responses:governed")
def test_a_turn_over_responses_is_shown_with_its_hidden_requests(recorded: RecordedTurns) -> None:
    turn = recorded.web.turns()[4]
    lines = recorded.web.view(turn)["text"].splitlines()
    assert "  │ user: What is there?" in lines
    assert lines[-1] == "  │ assistant: 50,000 are there."
    second = [flow for flow in recorded.web.flows() if " round 2 of " in flow["comment"]][-1]
    shown = recorded.web.view(second, "turn")["text"].splitlines()
    assert shown[-2].startswith("result of c1: ")
    assert shown[-1] == "assistant: 50,000 are there."


@pytest.mark.requirement("web:turn-view")
def test_a_hidden_request_is_shown_as_what_it_says_and_as_a_part_of_its_turn_when_that_is_chosen(
    recorded: RecordedTurns,
) -> None:
    hidden = [flow for flow in recorded.web.flows() if " round 1 of " in flow["comment"]]
    assert recorded.web.view(hidden[0])["view_name"] == "JSON"
    turn_id = recorded.web.view(hidden[0], "turn")["text"].split()[3]
    parts = [
        recorded.web.view(flow, "turn")["text"].replace(turn_id, "ID").split("\n")
        for flow in hidden[:3]
    ]
    assert [[line for line in lines if " ms" not in line] for lines in parts] == snapshot(
        [
            [
                "part of turn ID of analyst",
                "the runner's request: ~comment ID & ~marker llama",
                "",
                "user: Buy one, and say what is left.",
                "assistant: calls desk__balance {}",
                'assistant: calls desk__trade {"symbol": "X"}',
            ],
            [
                "part of turn ID of analyst",
                "the runner's request: ~comment ID & ~marker llama",
                "",
                "(no body)",
                '200: {"usd":50000}',
            ],
            [
                "part of turn ID of analyst",
                "the runner's request: ~comment ID & ~marker llama",
                "",
                '{"symbol":"X"}',
                '201: {"order":7}',
            ],
        ]
    )


@pytest.mark.requirement("web:turn-view")
def test_what_is_no_turn_is_shown_as_it_was(recorded: RecordedTurns) -> None:
    ready = next(flow for flow in recorded.web.flows() if flow["request"]["path"] == "/ready")
    assert recorded.web.view(ready)["view_name"] == "JSON"
    assert recorded.web.view(ready, "turn")["text"] == "this flow is no mediated turn"


@pytest.mark.requirement("web:commands")
def test_a_turn_is_told_of_its_flow_and_of_each_hidden_request_of_it(
    recorded: RecordedTurns,
) -> None:
    parent = recorded.web.turns()[0]
    told = recorded.web.command("claw.turn", f"@{parent['id']}")
    assert "cllama → desk → model: " in told
    assert told.endswith(ANSWERS[0])
    hidden = [
        flow for flow in recorded.web.flows() if parent["comment"].split()[1] in flow["comment"]
    ]
    assert len(hidden) == 7
    assert {recorded.web.command("claw.turn", f"@{flow['id']}") for flow in hidden} == {told}


@pytest.mark.requirement("web:commands")
def test_agents_are_told_with_their_tools_and_problems_and_no_secret(
    recorded: RecordedTurns,
) -> None:
    pod, broken = recorded.pod, recorded.pod.home / "context" / "broken"
    broken.mkdir()
    (broken / "metadata.json").write_text('{"token": 5}', encoding="utf-8")
    pod.agent("clerk", pod.tool("quote"), pod.tool("odd", transport="carrier-pigeon"))
    told = recorded.web.command("claw.agents")
    for agent_id in ("broken", "clerk"):
        shutil.rmtree(pod.home / "context" / agent_id)
    told_of = [
        "analyst · 2 tools",
        "  desk.trade · write",
        "broken · refused",
        "  problem: metadata.json: ",
        "clerk · 1 tool",
    ]
    told_of.append("  problem: tool desk.odd: ")
    assert [line for line in told_of if f"\n{line}" not in f"\n{told}"] == []
    assert [secret for secret in (SECRET, TOOL_TOKEN) if secret in told] == []


@pytest.mark.requirement("web:commands")
def test_what_is_not_there_is_said_in_a_line(recorded: RecordedTurns) -> None:
    assert recorded.web.command("claw.reload") == {
        "error": "nothing is governed here: there is no server (-n)"
    }
    ready = next(flow for flow in recorded.web.flows() if flow["request"]["path"] == "/ready")
    assert recorded.web.command("claw.replay", f"@{ready['id']}") == {
        "error": "this flow is no finished turn: it has no line of history"
    }


@pytest.mark.parametrize(
    "number", range(5), ids=["openai", "anthropic", "failed", "resumed", "responses"]
)
@pytest.mark.requirement("web:replay")
def test_a_turn_is_played_again_from_its_file_and_nothing_differs(
    recorded: RecordedTurns, number: int
) -> None:
    parent, asked = recorded.web.turns()[number], len(recorded.pod.provider.received)
    told = recorded.web.command("claw.replay", f"@{parent['id']}")
    assert told.splitlines()[0].startswith(f"replay of {parent['id']}, turn turn_")
    assert told.splitlines()[1:] == ["nothing differs"]
    new = next(
        flow
        for flow in recorded.web.flows()
        if flow["comment"].startswith(f"replay of {parent['id']}")
    )
    assert new["comment"] == f"replay of {parent['id']}: nothing differs"
    assert recorded.web.view(new)["text"] == told + "\n\n" + _as_now(recorded.web.view(new)["text"])
    assert told_of_answer(recorded, new) == [*ANSWERS, *LATER][number]
    assert len(recorded.pod.provider.received) == asked


def told_of_answer(recorded: RecordedTurns, flow: dict[str, Any]) -> str:
    return str(recorded.web.view(flow)["text"].splitlines()[-1].removeprefix("  │ "))


def _as_now(text: str) -> str:
    return text.partition("\n\n")[2]


@pytest.mark.requirement("web:guarded")
def test_a_server_that_is_opened_where_a_file_is_looked_at_governs_as_ever(
    recorded: RecordedTurns,
) -> None:
    proxy, base = free_port(), free_port()
    addresses = {"cllama_listen": f"127.0.0.1:{base}", "cllama_proxy": f"127.0.0.1:{proxy}"}
    recorded.web.ask("/options", {"server": True, **addresses}, method="PUT")

    def refused() -> int:
        try:
            with httpx2.Client(proxy=f"http://127.0.0.1:{proxy}", trust_env=False) as client:
                return client.get("http://api.openai.com/v1/models").status_code
        except httpx2.ConnectError:
            return 0

    assert eventually(refused, "the forward proxy is open") in {403, 503}
    recorded.web.ask("/options", {"server": False}, method="PUT")


@pytest.mark.requirement("web:replay")
def test_mitmweb_without_a_pod_holds_no_secret(recorded: RecordedTurns) -> None:
    everything = recorded.file.read_bytes().decode(errors="replace") + json.dumps(
        recorded.web.flows()
    )
    assert [
        key for key in (SECRET, TOOL_TOKEN, PROVIDER_KEY, ANTHROPIC_KEY) if key in everything
    ] == []


def flows(recorded: RecordedTurns) -> list[http.HTTPFlow]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mitmproxy's parser is deprecated
        from mitmproxy.io import FlowReader
    with recorded.file.open("rb") as file:
        return [flow for flow in FlowReader(file).stream() if isinstance(flow, http.HTTPFlow)]


def parents(kept: list[http.HTTPFlow]) -> list[http.HTTPFlow]:
    return [
        flow for flow in kept if flow.metadata.get("claw.entry") and PARENT not in flow.metadata
    ]


@pytest.fixture
def granting(
    recorded: RecordedTurns, tmp_path: Path
) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """Return a function that makes a context directory like the recording's, with a
    changed manifest.
    """

    def make(change: Callable[[dict[str, Any]], None]) -> Path:
        context = tmp_path / "context"
        shutil.copytree(recorded.pod.home / "context", context)
        file = context / "analyst" / "tools.json"
        manifest = json.loads(file.read_bytes())
        change(manifest)
        file.write_text(json.dumps(manifest), encoding="utf-8")
        return context

    return make


@pytest.mark.requirement("web:replay")
async def test_a_replay_is_under_the_present_manifest_and_says_what_differs(
    recorded: RecordedTurns, granting: Callable[..., Path]
) -> None:
    kept = flows(recorded)
    agents = AgentDirectory(granting(lambda manifest: manifest["tools"].pop()))
    again = await replay(parents(kept)[0], kept, agents)
    *_, said = again.report.splitlines()
    assert again.flow.comment == f"replay of {parents(kept)[0].id}: {said}"
    assert [line[:64] for line in again.report.splitlines() if line[0] in "+-"] == snapshot(
        [
            "-  offers desk__balance, desk__trade",
            "+  offers desk__balance",
            "-model → cllama: desk.trade",
            "+model → cllama: desk__trade",
            "-cllama → desk → model: 0 ms · HTTP 201 · ok",
            '-  │ {"order": 7}',
            "+cllama → model: unknown_tool; nothing ran",
            "+  intervention: unknown_tool_rejected:desk__trade",
            '+  │ {"code": "unknown_tool", "message": "There is no tool named',
            "-model → cllama: desk.trade",
            "+model → cllama: desk__trade",
            "-cllama → model: duplicate_tool_call; nothing ran",
            "-  intervention: duplicate_managed_tool_call:desk.trade",
            "-  a repeat of the call of round 1",
            '-  │ {"code": "duplicate_tool_call", "message": "This call was m',
            "+cllama → model: unknown_tool; nothing ran",
            "+  intervention: unknown_tool_rejected:desk__trade",
            '+  │ {"code": "unknown_tool", "message": "There is no tool named',
        ]
    )


@pytest.mark.requirement("web:replay")
async def test_a_replay_that_goes_another_way_ends_where_nothing_was_recorded(
    recorded: RecordedTurns, granting: Callable[..., Path]
) -> None:
    def repeatable(manifest: dict[str, Any]) -> None:
        manifest["tools"][1]["annotations"]["x-claw.repeatable"] = True
        manifest["tools"][1]["annotations"]["idempotent"] = True

    kept = flows(recorded)
    agents = AgentDirectory(granting(repeatable))
    again = await replay(parents(kept)[0], kept, agents)
    assert "not recorded: what desk.trade answers in round 2" in again.report.splitlines()
    assert again.flow.response is not None
    assert again.flow.response.status_code == 502


def is_trade(flow: http.HTTPFlow) -> bool:
    return flow.metadata.get(TOOL) == "desk.trade" and flow.metadata[ROUND] == 1


def is_second_reply(flow: http.HTTPFlow) -> bool:
    return flow.metadata.get(KIND) == "model" and flow.metadata[ROUND] == 2


@pytest.mark.requirement("web:replay")
@pytest.mark.parametrize(
    ("lost", "what"),
    [
        (is_trade, "what desk.trade answered in round 1"),
        (is_second_reply, "the model's reply of round 2"),
        (
            lambda flow: is_trade(flow) or is_second_reply(flow),
            "what desk.trade answered in round 1, the model's reply of round 2",
        ),
    ],
    ids=["a tool's answer", "a reply", "both"],
)
async def test_a_recording_that_is_not_complete_says_what_is_missing(
    recorded: RecordedTurns, lost: Callable[[http.HTTPFlow], bool], what: str
) -> None:
    kept = flows(recorded)
    agents = AgentDirectory(recorded.pod.home / "context")
    with pytest.raises(
        NotReplayableError, match=f"the recording is not complete: it lacks {what}$"
    ):
        await replay(parents(kept)[0], [flow for flow in kept if not lost(flow)], agents)


@pytest.mark.requirement("web:replay")
@pytest.mark.parametrize("junk", [None, 7, ["x"], "[[["], ids=str)
async def test_a_file_that_was_altered_costs_the_replay_and_nothing_else(
    recorded: RecordedTurns, junk: Any
) -> None:
    agents = AgentDirectory(recorded.pod.home / "context")
    turn, *kept = [flow for flow in flows(recorded) if "claw.turn" in flow.metadata][:8]
    for flow in (turn, *kept):
        for name, value in flow.metadata.items():
            flow.metadata[name] = junk
            assert turn_view.describe(flow)
            with contextlib.suppress(NotReplayableError):
                assert (await replay(turn, kept, agents)).report
            flow.metadata[name] = value


@pytest.mark.requirement("web:replay")
async def test_text_of_a_file_that_is_no_unicode_is_played_and_shown_so_that_it_can_be_saved(
    recorded: RecordedTurns,
) -> None:
    agents = AgentDirectory(recorded.pod.home / "context")
    kept = flows(recorded)
    turn = parents(kept)[0]
    odd = {"path": "/\udcff", "response": {"format": "\udcff"}}
    turn.metadata["claw.entry"] = json.dumps(json.loads(turn.metadata["claw.entry"]) | odd)
    again = await replay(turn, kept, agents)
    shown = json.loads(again.flow.metadata["claw.entry"].encode())
    assert (shown["path"], shown["response"]["format"]) == ("/\\udcff", "\\udcff")
