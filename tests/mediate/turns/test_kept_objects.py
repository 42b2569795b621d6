"""Requests for stored objects by id: each agent reads only its own objects, and
nothing that was hidden from it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_state.ownership import KeptObject
from claw_state.url import StoreError
from tests.mediate.turns.kept.kept_pod import (
    FIRST,
    MANAGED,
    NATIVE,
    SECOND,
    SHOWN,
    KeptPod,
    filled_pod,
    ids,
    kept_response,
)
from tests.wires.responses import function_call, message


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[KeptPod]:
    async with filled_pod(tmp_path) as made:
        yield made


SPELLINGS = (
    "/v1/responses/resp_A",
    "/v1/responses/resp_A/",
    "/V1/Responses/resp_A",
    "/v1//responses///resp_A",
    "/v1/%72esponses/%72esp_A",
    "/v1/responses/resp_P/../resp_A",
    "/v1/responses/resp_P/%2e%2e/resp_A",
    "/v1/responses/resp_P%2F..%2Fresp_A",
    "/v1/responses;x/resp_A;y",
    "/v1\\responses\\resp_A",
    "/v1/responses/resp_A%3fstream=true",
    "/v1/responses/resp_A?api-version=1",
    "/v1/responses/resp_A/input_items",
    "/v1/responses/resp_A/input_items?after=x&order=asc",
    "/v1/responses/resp_A?stream=true&starting_after=0",
    "/v1/conversations/conv_A",
    "/v1/conversations/conv_A/items",
    "/v1/conversations/conv_A/items/fc_call_1",
    "/v1/responses",
    "/v1/conversations/",
    "/v1/responses/resp_%2541",
)


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize("host", [None, "api.openai.com"])
@pytest.mark.parametrize("path", SPELLINGS)
async def test_another_agents_object_is_not_found_in_any_spelling_and_nothing_is_sent(
    pod: KeptPod, path: str, host: str | None
) -> None:
    for method in ("GET", "DELETE", "HEAD", "PUT", "PATCH"):
        status, answer = await pod.asks(method, path, "clerk", host=host)
        code = "conversation_not_found" if "conv" in path else "response_not_found"
        assert (status, answer["error"]["code"]) == (404, code)
    assert answer["error"]["param"] == ("conversation" if "conv" in path else "response_id")
    assert pod.asked == []
    assert (await pod.asks("GET", "/v1/responses/resp_A"))[0] == 200


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/models%3F/../responses/resp_A",
        "/v1/chat/completions%3f/../../responses/resp_A/cancel",
        "/v1/responses%23/..;x/responses/resp_A/cancel",
        "/v1/conversations#\\..\\conversations/conv_A/items",
    ],
)
async def test_a_path_that_reaches_another_one_behind_an_encoded_mark_is_refused(
    pod: KeptPod, path: str
) -> None:
    for method in ("GET", "POST"):
        request = Request(method, path, [("authorization", f"Bearer {pod.token('clerk')}")], b"{}")
        refused = pod.mediator.admit(request)
        assert isinstance(refused, RunnerResponse)
        assert refused.status == 400


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/responses/resp_A/cancel"),
        ("POST", "/v1/conversations/conv_A"),
        ("POST", "/v1/conversations/conv_A/items"),
        ("DELETE", "/v1/conversations/conv_A/items/fc_call_1"),
    ],
)
async def test_another_agents_object_can_not_be_changed(
    pod: KeptPod, method: str, path: str
) -> None:
    assert (await pod.asks(method, path, "clerk", body=b"{}"))[0] == 404
    assert pod.asked == []


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses/resp_A/output_items",
        "/v1/responses/resp_A/input_items/x",
        "/v1/responses/resp_A/x/input_items",
        "/v1/responses/resp A",
        "/v1/conversations/conv_A/items/a/b",
        "/v1/conversations/conv_A/responses/resp_B",
    ],
)
async def test_a_part_that_is_not_known_is_refused_to_its_owner_too(
    pod: KeptPod, path: str
) -> None:
    assert (await pod.asks("GET", path))[0] == 404
    assert pod.asked == []


@pytest.mark.requirement("responses:paths-read")
async def test_a_response_repeats_what_the_runner_asked_and_no_managed_tool(pod: KeptPod) -> None:
    choice = {"type": "function", "name": "desk.balance"}
    kept = KeptObject(
        "resp_early", "resp_B", "openai", "other", previous="resp_0", managed_names=("desk__balance",),
        tool_choice=json.dumps(choice).encode(), instructions=9,
    )  # fmt: skip
    await pod.keeps(kept)
    status, shown = await pod.asks(
        "GET", "/v1/responses/resp_early?include%5B%5D=message.output_text.logprobs"
    )
    wanted = {
        "id": "resp_early",
        "previous_response_id": "resp_0",
        "tools": [NATIVE],
        "tool_choice": choice,
    }
    assert (status, shown) == (
        200,
        pod.api.responses["resp_B"][0] | wanted | {"instructions": "Be brief."},
    )
    assert pod.asked == ["GET /v1/responses/resp_B?include%5B%5D=message.output_text.logprobs"]
    (sent,) = pod.api.received
    assert (sent.headers["authorization"], sent.headers["x-of-the-runner"]) == (
        "Bearer sk-other",
        "kept",
    )


@pytest.mark.requirement("responses:paths-read")
async def test_a_response_whose_offers_are_not_known_hides_every_tool_of_the_agents(
    pod: KeptPod,
) -> None:
    await pod.keeps(KeptObject("resp_A", "resp_A", "openai", "first"))
    called = [function_call("call_1", "desk__balance", "{}"), message("Fifty.")]
    pod.api.responses["resp_A"] = kept_response("resp_A", output=called), []
    _, shown = await pod.asks("GET", "/v1/responses/resp_A")
    assert (shown["tools"], [item["type"] for item in shown["output"]]) == ([NATIVE], ["message"])


@pytest.mark.requirement("responses:paths-read")
async def test_a_turn_that_a_tool_ended_is_read_as_it_was_delivered(pod: KeptPod) -> None:
    await pod.keeps(
        KeptObject(
            "resp_early",
            "resp_A",
            "openai",
            "first",
            delivered=b'{"id":"resp_A","output":[{"id":"msg_1"}]}',
        )
    )
    assert await pod.asks("GET", "/v1/responses/resp_early") == (
        200,
        {"id": "resp_early", "output": [{"id": "msg_1"}]},
    )
    assert pod.asked == []


@pytest.mark.requirement("responses:paths-read")
@pytest.mark.parametrize("query", ["stream=true", "Stream=TRUE&starting_after=3", "a=b&strea%6d=1"])
async def test_a_plain_response_is_streamed_again_by_its_own_key_and_a_mediated_one_never(
    pod: KeptPod, query: str
) -> None:
    status, answer = await pod.asks("GET", f"/v1/responses/resp_A?{query}")
    assert (status, answer["error"]["param"]) == (400, "stream")
    assert pod.asked == []
    await pod.keeps(KeptObject("resp_P", "resp_P", "second", is_plain=True))
    decision = await pod.decides("GET", f"/v1/x/../responses//resp_P?{query}")
    assert isinstance(decision, Forward)
    assert decision.base_url + decision.target == f"{pod.second.url}/v1/responses/resp_P?{query}"
    assert decision.credential == [("authorization", "Bearer sk-second")]


@pytest.mark.requirement("responses:paths-read")
@pytest.mark.parametrize(
    "path",
    ["/v1/responses/resp_A", "/v1/responses/resp_A/input_items", "/v1/conversations/conv_A/items"],
)
@pytest.mark.parametrize(
    "body",
    [
        b'event: x\ndata: {"desk__balance": 1}\n\n',
        b'["desk__balance"]',
        b'{"data":"desk__balance"',
        b"",
        b'{"id":"\xff"}',
    ],
)
async def test_an_answer_that_can_not_be_read_is_not_shown(
    pod: KeptPod, path: str, body: bytes
) -> None:
    pod.api.instead = Response(body, media_type="application/json")
    status, answer = await pod.asks("GET", path)
    assert (status, answer["error"]["code"]) == (502, "provider_bad_response")


@pytest.mark.requirement("responses:paths-read")
async def test_an_error_of_the_provider_is_passed_and_one_of_the_connection_is_told(
    pod: KeptPod,
) -> None:
    pod.api.instead = JSONResponse(
        {"error": {"message": "slow down sk-first"}}, 429, {"retry-after": "7"}
    )
    status, answer = await pod.asks("GET", "/v1/responses/resp_A")
    assert (status, "sk-first" in str(answer)) == (429, False)
    pod.api.stop()
    status, answer = await pod.asks("GET", "/v1/responses/resp_A")
    assert (status, answer["error"]["code"]) == (502, "provider_unreachable")
    assert {event["status_code"] for event in pod.events if event["type"] == "error"} == {429, 502}


@pytest.mark.requirement("responses:paths-delete")
async def test_a_deleted_response_takes_the_hidden_ones_of_its_turn_and_its_row_along(
    pod: KeptPod,
) -> None:
    await pod.keeps(
        KeptObject(
            "resp_early", "resp_A", "openai", "first", hidden_responses=("resp_gone", "resp_hidden")
        )
    )
    status, answer = await pod.asks("DELETE", "/v1/responses/resp_early")
    assert (status, answer) == (
        200,
        {"id": "resp_early", "object": "response.deleted", "deleted": True},
    )
    assert set(pod.api.responses) == {"resp_B", "resp_P"}
    assert pod.asked == [
        f"DELETE /v1/responses/{name}" for name in ("resp_gone", "resp_hidden", "resp_A")
    ]
    assert (await pod.asks("DELETE", "/v1/responses/resp_early"))[0] == 404
    assert len(pod.asked) == 3
    await pod.asks("DELETE", "/v1/conversations/conv_A")
    assert (await pod.asks("GET", "/v1/conversations/conv_A"))[0] == 404


@pytest.mark.requirement("responses:paths-delete")
async def test_a_response_that_the_provider_does_not_delete_stays_the_agents(
    pod: KeptPod,
) -> None:
    pod.api.instead = JSONResponse({"error": {"message": "busy"}}, 503)
    assert (await pod.asks("DELETE", "/v1/responses/resp_A"))[0] == 503
    pod.api.instead = None
    assert (await pod.asks("GET", "/v1/responses/resp_A"))[0] == 200


@pytest.mark.requirement("responses:paths-read")
async def test_a_cancel_is_passed_and_its_answer_is_shown_like_the_response(pod: KeptPod) -> None:
    status, shown = await pod.asks("POST", "/v1/responses/resp_A/cancel")
    assert (status, shown["tools"], pod.asked) == (
        200,
        [NATIVE],
        ["POST /v1/responses/resp_A/cancel"],
    )


@pytest.mark.requirement("responses:paths-conversation")
async def test_a_conversation_is_its_agents_and_is_listed_without_hidden_items(
    pod: KeptPod,
) -> None:
    assert await pod.asks("GET", "/v1/conversations/conv_A") == (
        200,
        {"id": "conv_A", "object": "conversation"},
    )
    left = ids([FIRST[0], *SHOWN, SECOND[-1]])
    _, page = await pod.asks("GET", "/v1/conversations/conv_A/items?order=asc")
    assert ids(page["data"]) == left
    assert await pod.asks("GET", "/v1/conversations/conv_A/items/msg_fifty") == (200, SHOWN[-1])
    for hidden in ("fc_call_1", "fco_call_1", "rs_hidden", "fc_call_2", "nothing"):
        status, answer = await pod.asks("GET", f"/v1/conversations/conv_A/items/{hidden}")
        assert (status, answer["error"]["code"]) == (404, "item_not_found")
    assert (await pod.asks("POST", "/v1/conversations/conv_A", body=b'{"metadata":{}}'))[0] == 200
    assert pod.api.received[-1].body == b'{"metadata":{}}'
    assert (await pod.asks("POST", "/v1/conversations/conv_A", body=b'{"model":"m"}'))[0] == 400


@pytest.mark.requirement("responses:paths-owner")
async def test_without_the_state_nothing_that_is_named_by_its_id_is_read(
    pod: KeptPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(pod.mediator.state.ownership, "find", fails)
    for path in ("/v1/responses/resp_A", "/v1/conversations/conv_A/items"):
        status, answer = await pod.asks("GET", path)
        assert (status, answer["error"]["code"]) == (503, "state_unavailable")
    assert pod.asked == []


@pytest.mark.requirement("responses:paths-owner")
async def test_where_any_id_is_allowed_an_unknown_object_hides_the_agents_tools(
    tmp_path: Path,
) -> None:
    pod = KeptPod(tmp_path)
    pod.open(stored_ids="any")
    pod.api.responses = {"resp_A": (kept_response("resp_A"), FIRST)}
    _, shown = await pod.asks("GET", "/v1/responses/resp_A")
    assert shown["tools"] == [NATIVE]
    _, page = await pod.asks("GET", "/v1/responses/resp_A/input_items")
    assert ids(page["data"]) == ids(FIRST[:1])
    pod.agent("analyst")
    assert (await pod.asks("GET", "/v1/responses/resp_A"))[1]["tools"] == [NATIVE, MANAGED]
    await pod.close()


@pytest.mark.requirement("responses:paths-rows")
async def test_a_row_is_found_while_it_is_saved_and_gone_if_it_can_not_be(
    pod: KeptPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits(*given: Any, **how: Any) -> bool:
        await may_go_on.wait()
        return await save(*given, **how)

    async def fails(*_: Any, **__: Any) -> bool:
        raise StoreError("full")

    may_go_on = asyncio.Event()
    save = pod.mediator.state.ownership.save
    monkeypatch.setattr(pod.mediator.state.ownership, "save", waits)
    decision = await pod.decides(
        "POST", "/v1/responses", body=b'{"model":"m","input":"Hi","tool_choice":"none"}'
    )
    assert isinstance(decision, Forward)
    pod.mediator.passthrough.note_id(decision.handle, "resp_B")  # type: ignore[arg-type]
    asked = asyncio.ensure_future(pod.asks("GET", "/v1/responses/resp_B"))
    assert (await pod.asks("GET", "/v1/responses/resp_B", "clerk"))[0] == 404
    may_go_on.set()
    assert (await asked)[0] == 200

    monkeypatch.setattr(pod.mediator.state.ownership, "save", fails)
    pod.mediator.passthrough.note_id(decision.handle, "resp_C")  # type: ignore[arg-type]
    assert (await pod.asks("GET", "/v1/responses/resp_C"))[0] == 404
    assert [event["error"] for event in pod.events if event["type"] == "error"] == [
        "ownership_not_written"
    ]


@pytest.mark.requirement("responses:paths-rows")
async def test_what_is_forwarded_is_owned_by_the_id_that_comes_back(pod: KeptPod) -> None:
    pod.agent("analyst")
    body = b'{"model":"m","input":"Hi","previous_response_id":"resp_A"}'
    decision = await pod.decides("POST", "/v1/responses", body=body)
    assert isinstance(decision, Forward)
    pod.mediator.passthrough.note_id(decision.handle, "resp_N")  # type: ignore[arg-type]
    pod.api.responses["resp_N"] = (
        kept_response("resp_N", tools=[NATIVE, MANAGED]),
        [*FIRST, *SHOWN],
    )
    assert (await pod.asks("GET", "/v1/responses/resp_N", "clerk"))[0] == 404
    assert (await pod.asks("GET", "/v1/responses/resp_N"))[1]["tools"] == [NATIVE, MANAGED]
    _, page = await pod.asks("GET", "/v1/responses/resp_N/input_items?order=asc")
    assert ids(page["data"]) == ids([FIRST[0], *SHOWN])
    owned = await pod.mediator.state.ownership.find("analyst", "resp_N")
    assert owned == KeptObject(
        "resp_N", "resp_N", "openai", "first", previous="resp_A", is_plain=True
    )


NESTED = {"type": "function", "function": {"name": "desk__balance", "parameters": {}}}


@pytest.mark.requirement("responses:paths-read")
async def test_a_tool_that_the_provider_repeats_in_another_form_is_not_shown(
    pod: KeptPod,
) -> None:
    kept = kept_response(
        "resp_A",
        tools=[NATIVE, MANAGED, NESTED],
        input_messages=["planted"],
        output_messages=[NESTED],
    )
    pod.api.responses["resp_A"] = kept, FIRST
    _, shown = await pod.asks("GET", "/v1/responses/resp_A")
    assert (shown["tools"], shown["input_messages"], shown["output_messages"]) == (
        [NATIVE],
        None,
        None,
    )
