"""The agent that may name a kept response or conversation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from claw_mediate.core.http import Forward, RunnerResponse
from claw_state.ownership import KeptObject
from tests.mediate.turns.kept.chains import asked, chains, once, refused, says
from tests.mediate.turns.kept.kept_pod import KeptPod, filled_pod
from tests.state.server import shared_state
from tests.turns.desk import Desk
from tests.wires import Body
from tests.wires.responses import message


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[KeptPod]:
    async with filled_pod(tmp_path) as made:
        yield made


THEIRS = KeptObject("resp_theirs", "resp_theirs", "openai")


REFERENCES: list[tuple[Body, int, str]] = [
    ({"previous_response_id": "resp_theirs"}, 400, "previous_response_not_found"),
    ({"previous_response_id": "resp_nobodys"}, 400, "previous_response_not_found"),
    (
        {"previous_response_id": "resp_theirs", "background": True},
        400,
        "previous_response_not_found",
    ),
    (
        {"previous_response_id": "resp_theirs", "tool_choice": "none", "input": None},
        400,
        "previous_response_not_found",
    ),
    (
        {"previous_response_id": "resp_theirs", "input": [{"type": "compaction_trigger"}]},
        400,
        "previous_response_not_found",
    ),
    ({"conversation": "resp_theirs"}, 404, "conversation_not_found"),
    ({"conversation": {"id": "resp_theirs"}}, 404, "conversation_not_found"),
]


@once
@pytest.mark.requirement("responses:owner-only")
@pytest.mark.parametrize("tools", ["granted", "none"])
@pytest.mark.parametrize(("more", "status", "code"), REFERENCES)
async def test_what_another_agent_owns_is_refused_before_anything_is_sent(
    codex: Desk, tools: str, more: Body, status: int, code: str
) -> None:
    await codex.mediator.state.ownership.save("another", THEIRS)
    if tools == "none":
        codex.grant()
    exchange = await asked(codex, {"model": "gpt-test", "input": "Hi", **more})
    assert isinstance(exchange, RunnerResponse)
    told = json.loads(b"".join([chunk async for chunk in exchange.chunks]))["error"]
    assert (exchange.status, told["code"], told["param"]) == (status, code, next(iter(more)))
    assert codex.model.bodies == []
    assert codex.interventions() == ["stored_id_refused"]


@once
@pytest.mark.requirement("responses:owner-only")
async def test_with_any_the_provider_alone_decides_about_an_id(codex: Desk) -> None:
    codex.settings = replace(codex.settings, stored_ids="any")
    codex.open()
    codex.model_refuses(400, "previous_response_not_found")
    assert await chains(codex, "Hi", "resp_from_before") == snapshot("""\

cllama → model    the runner's request
model  → cllama   status 400
cllama → runner   400 previous_response_not_found
""")


@once
@pytest.mark.requirement("responses:chain-unkept")
async def test_a_response_that_the_provider_was_told_not_to_keep_can_not_be_named(
    codex: Desk,
) -> None:
    codex.model_says("Hello.", id="resp_1")
    await codex.asks("Hi", store=False)
    assert "400 previous_response_not_found" in await refused(codex, "resp_1")


@once
@pytest.mark.requirement("responses:named-once")
@pytest.mark.parametrize(
    "named",
    [
        b'"previous_response_id":"resp_theirs","previous_response_id":null',
        b'"previous_response_id":"resp_theirs","previous_response\\u005fid":"resp_mine"',
        b'"conversation":"conv_theirs","conversation":null',
        b'"conversation":{"id":"conv_theirs","id":"conv_mine"}',
        b'"conversation":{"name":"x"}',
        b'"previous_response_id":["resp_theirs"]',
        b'"previous_response_id":"resp_\\ud800"',
        b'"conversation":"conv_\\ud800"',
    ],
)
@pytest.mark.parametrize("tools", ["granted", "none"])
async def test_an_id_that_two_readers_could_read_differently_is_a_bad_request(
    codex: Desk, named: bytes, tools: str
) -> None:
    if tools == "none":
        codex.grant()
    exchange = await asked(codex, b'{"model":"gpt-test","input":"Hi",%b}' % named)
    assert isinstance(exchange, RunnerResponse)
    assert exchange.status == 400


@once
@pytest.mark.requirement("responses:state-down")
async def test_without_a_readable_state_a_named_id_is_503_and_all_else_works(
    codex: Desk,
) -> None:
    codex.remembers()
    with closing(sqlite3.connect(codex.home / "state.db")) as other:
        other.execute("DROP TABLE owned")
    assert "503 state_unavailable" in await refused(codex, "resp_1")
    says(codex, "resp_2", message("Hello."))
    assert "'Hello.'" in await codex.asks("Hi", store=True)
    assert {event["error"] for event in codex.told("error")} == {"state_unusable"}


@pytest.mark.requirement("responses:chain-and-conversation")
@once
async def test_a_chain_and_a_conversation_of_the_agents_own_are_the_providers_to_refuse(
    codex: Desk,
) -> None:
    for own in ("resp_1", "conv_1"):
        await codex.mediator.state.ownership.save(codex.agent, KeptObject(own, own, "openai"))
    body = {
        "model": "gpt-test",
        "input": "Hi",
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
    }
    codex.model_refuses(400, "invalid_request_error")
    exchange = await asked(codex, body)
    assert isinstance(exchange, Forward) or exchange.status == 400
    both = {"previous_response_id": "resp_1", "conversation": "conv_theirs"}
    theirs = await asked(codex, {"model": "gpt-test", "input": "Hi", **both})
    assert isinstance(theirs, RunnerResponse)
    assert theirs.status == 404


@pytest.mark.requirement("responses:owned-ids")
@once
async def test_a_chain_goes_on_at_another_proxy_and_stops_while_their_server_is_gone(
    codex: Desk, tmp_path: Path
) -> None:
    with shared_state(tmp_path / "server") as server:
        codex.settings = replace(codex.settings, state=server.place)
        codex.open()
        says(codex, "resp_1", message("Hello."))
        await codex.asks("Hi", store=True)
        codex.open()
        says(codex, "resp_2", message("Again."))
        assert "'Again.'" in await chains(codex, "And?", "resp_1")
        codex.admits("another")
        assert "400 previous_response_not_found" in await refused(codex, "resp_2")
        server.kill()
        assert "503 state_unavailable" in await refused(codex, "resp_2")
        says(codex, "resp_3", message("Alone."))
        codex.messages = []
        assert "'Alone.'" in await codex.asks("Hi", store=True)


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize(
    "named",
    [
        "\ud800",
        "resp_A\x00",
        "resp_A ",
        " resp_A",
        "RESP_A",
        "resp_\uff21",
        "r" * 1_000_000,
        "'",
        "%",
    ],
)
async def test_an_id_in_another_spelling_is_nobodys(pod: KeptPod, named: str) -> None:
    for agent in ("analyst", "clerk"):
        for member in (
            {"previous_response_id": named},
            {"conversation": named},
            {"conversation": {"id": named}},
        ):
            for end in ("", "/compact", "/input_tokens"):
                body: Body = {"model": "gpt-test", "input": "Go on", **member}
                status, _ = await pod.asks(
                    "POST", "/v1/responses" + end, agent, body=json.dumps(body).encode()
                )
                assert status in {400, 404}
    assert pod.asked == []
