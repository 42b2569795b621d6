"""Names that look like a granted tool's, calls that are made twice, and agents that
share a service.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from claw_contract.names import hashed_alias
from tests import raw
from tests.failures.clocked_pod import TOKEN, ClockedPod, tool
from tests.wires import MadeCall, anthropic, openai

NAMES = [
    "Desk__balance",
    "DESK.BALANCE",
    "desk__balance ",
    " desk__balance",
    "desk__balanc",
    "desk__balance_",
    "desk__balance__x",
    "desk.balance.x",
    "desk_balance",
    "desk..balance",
    "desk__bal\u0430nce",
    "desk\u200b__balance",
    "desk/balance",
    "balance",
    "desk",
    "desk.secret",
    "desk__secret",
    "other.balance",
    hashed_alias("desk.balance"),
    "functions.desk__balance",
    "",
]
"""Tool names that were neither granted nor offered."""


@pytest.mark.requirement("attack:names")
@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_was_not_offered_runs_nothing(pod: ClockedPod, name: str) -> None:
    async with pod.open() as mediator:
        wire = pod.dialect
        pod.provider.script = [
            raw.answers(200, wire.reply("", [MadeCall("c1", name, "{}")], {})),
            raw.answers(200, wire.reply("Sorry.", (), {})),
        ]
        pod.service.script = [raw.answers(200, b"{}")]
        seen = await pod.ask(mediator, pod.request())
    assert seen.to_service == []
    request = _asked(seen.to_provider[1])
    ((_, content),) = wire.answers(request["messages"])
    assert json.loads(content)["error"]["code"] == "unknown_tool"
    assert wire.said(wire.assembled(seen.body)).text == "Sorry."


@pytest.mark.requirement("attack:double-execution")
async def test_a_call_that_is_made_twice_runs_once_and_another_one_runs_too(
    pod: ClockedPod,
) -> None:
    one, equal, other = (
        '{"symbol": "NVDA", "n": 1}',
        '{"n": 1.0, "symbol": "NVDA"}',
        '{"symbol": "NVDA", "n": 2}',
    )
    async with pod.open() as mediator:
        wire = pod.dialect
        batch = [
            MadeCall(f"c{at}", "desk__trade", text)
            for at, text in enumerate([one, one, equal, other])
        ]
        again = [MadeCall(f"d{at}", "desk.trade", text) for at, text in enumerate([equal, other])]
        pod.provider.script = [
            raw.answers(200, wire.reply("", batch, {})),
            raw.answers(503, json.dumps(wire.error("busy", "busy")).encode()),
            raw.answers(200, wire.reply("", again, {})),
            raw.answers(200, wire.reply("Done.", (), {})),
        ]
        pod.service.script = [raw.answers(200, b"{}")]
        seen = await pod.ask(mediator, pod.request())
    sent = [_asked(one) for one in seen.to_service]
    assert sent == [{"symbol": "NVDA", "n": 1}, {"symbol": "NVDA", "n": 2}]
    (entry,) = seen.history
    codes = [
        call["result"].get("error", {}).get("code")
        for past in entry["tool_trace"]
        for call in past["tool_calls"]
    ]
    assert codes == [None, *["duplicate_tool_call"] * 2, None, *["duplicate_tool_call"] * 2]


@pytest.mark.requirement("attack:two-protocols")
@pytest.mark.parametrize("fails", [True, False], ids=["after-a-failure", "after-an-answer"])
async def test_a_turn_of_one_protocol_is_never_resumed_in_another(
    tmp_path: Path, fails: bool
) -> None:
    pod = ClockedPod(tmp_path, openai)
    async with pod.open() as mediator:
        pod.service.script = [raw.answers(200, b"{}")]
        pod.provider.script = [
            raw.answers(200, openai.reply("", [MadeCall("c1", "desk__balance", "{}")], {})),
            raw.answers(400 if fails else 200, openai.reply("Done.", (), {})),
            raw.answers(200, anthropic.reply("Hi.", (), {})),
        ]
        assert (await pod.ask(mediator, pod.request())).status == (400 if fails else 200)
        pod.dialect = anthropic
        seen = await pod.ask(mediator, pod.request())
    assert (seen.status, anthropic.said(seen.body).text) == (200, "Hi.")
    assert [len(pod.dialect.parts(_asked(sent)["messages"])) for sent in seen.to_provider[2:]] == [
        1
    ]


def _asked(sent: bytes) -> Any:
    return json.loads(sent.partition(b"\r\n\r\n")[2])


@pytest.mark.requirement("attack:shared-service")
async def test_agents_that_share_a_service_share_no_credential_identity_or_result(
    pod: ClockedPod,
) -> None:
    """The turns of both agents interleave: each service call waits until the other
    agent's is under way.
    """
    mixed = asyncio.Barrier(2)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = pod.service.received[-1].decode()
        agent = next(
            line[11:] for line in head.split("\r\n") if line.lower().startswith("x-claw-id: ")
        )
        await mixed.wait()
        await raw.answers(200, json.dumps({"of": agent}).encode())(reader, writer)

    async def think(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Make a call in each of two rounds, then answer with the results that the
        model was sent.
        """
        request = _asked(pod.provider.received[-1])
        told = [
            json.loads(content)["data"]["of"]
            for _, content in pod.dialect.answers(request["messages"])
        ]
        made = [MadeCall(f"c{len(told)}", "desk__balance", f'{{"n": {len(told)}}}')]
        reply = (
            pod.dialect.reply("", made, {})
            if len(told) < 2
            else pod.dialect.reply(",".join(told), (), {})
        )
        await raw.answers(200, reply)(reader, writer)

    async with pod.open() as mediator:
        pod.grant(
            "clerk",
            "clerk:secret-of-the-clerk",
            tool(pod.service, "balance", token="token-of-the-clerk"),
        )
        pod.provider.script, pod.service.script = [think], [answer]
        requests = [pod.request(), pod.request(token="clerk:secret-of-the-clerk")]
        analyst, clerk = await asyncio.gather(*(pod.ask(mediator, request) for request in requests))
    assert TOKEN.startswith("analyst:")
    texts = [pod.dialect.said(pod.dialect.assembled(seen.body)).text for seen in (analyst, clerk)]
    assert texts == ["analyst,analyst", "clerk,clerk"]
    assert len(clerk.to_service) == 4
    for sent in clerk.to_service:
        of_the_clerk = b"x-claw-id: clerk" in sent
        assert (b"Bearer token-of-the-clerk" in sent) is of_the_clerk
        assert (b"Bearer planted/tool" in sent) is not of_the_clerk
    assert {entry["claw_id"] for entry in clerk.history} == {"clerk"}
