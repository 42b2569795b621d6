"""Lists of stored items: all that the runner knows of a chain or a conversation, in pages, and
nothing that was hidden.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from claw_mediate.turns import kept_objects
from claw_state.ownership import KeptObject
from tests.mediate.turns.kept.kept_pod import (
    FIRST,
    NATIVE,
    SECOND,
    SHOWN,
    KeptPod,
    filled_pod,
    ids,
    user,
)
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[KeptPod]:
    async with filled_pod(tmp_path) as made:
        yield made


@pytest.mark.requirement("responses:paths-items")
@pytest.mark.parametrize("page_size", [1, 3, 100])
async def test_items_are_listed_without_the_chains_hidden_calls_in_pages_of_the_rest(
    pod: KeptPod, page_size: int
) -> None:
    pod.api.page_size = page_size
    await pod.keeps(
        KeptObject("resp_B", "resp_B", "openai", "first", previous="resp_A", hidden_ids=("call_2",))
    )
    left = ids([FIRST[0], *SHOWN, SECOND[-1]])
    status, whole = await pod.asks("GET", "/v1/responses/resp_B/input_items?order=asc")
    assert (status, ids(whole["data"]), whole["has_more"]) == (200, left, False)
    assert (whole["first_id"], whole["last_id"]) == (left[0], left[-1])
    assert not any(
        word in json.dumps(whole) for word in ("desk__", "planted", "call_1", "call_2", '"of"')
    )
    for order, wanted in (("asc", left), ("desc", left[::-1])):
        got: list[str] = []
        more = True
        while more:
            after = f"&after={got[-1]}" if got else ""
            _, page = await pod.asks(
                "GET", f"/v1/responses/resp_B/input_items?limit=2&order={order}{after}"
            )
            got, more = got + ids(page["data"]), page["has_more"]
        assert got == wanted
    assert (await pod.asks("GET", "/v1/responses/resp_B/input_items?x=\udcff%ff"))[0] == 200
    _, page = await pod.asks(
        "GET", f"/v1/responses/resp_B/input_items?before={left[2]}&order=asc&include%5B%5D=x"
    )
    assert ids(page["data"]) == left[:2]
    assert "include%5B%5D=x" in pod.asked[-1]


@pytest.mark.requirement("responses:paths-items")
@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        f"limit={'1' * 5000}",
        "order=up",
        "after=fc_call_1",
        "before=nothing",
    ],
)
async def test_a_page_that_there_is_not_is_refused(pod: KeptPod, query: str) -> None:
    assert (await pod.asks("GET", f"/v1/responses/resp_A/input_items?{query}"))[0] == 400


@pytest.mark.requirement("responses:paths-items")
async def test_where_a_part_of_the_chain_is_forgotten_managed_names_hide_its_calls(
    pod: KeptPod,
) -> None:
    await pod.keeps(
        KeptObject("resp_B", "resp_B", "openai", "first", previous="resp_A", hidden_ids=("call_2",))
    )
    await pod.mediator.state.ownership.delete("analyst", "resp_A")
    _, page = await pod.asks("GET", "/v1/responses/resp_B/input_items?order=asc")
    assert ids(page["data"]) == ids([FIRST[0], *SHOWN, SECOND[-1]])


@pytest.mark.requirement("responses:paths-items")
async def test_a_list_without_end_is_cut_off(pod: KeptPod) -> None:
    pod.api.instead = JSONResponse(
        {"data": [user("Hi")] * 30_000, "has_more": True, "last_id": "msg_Hi"}
    )
    assert (await pod.asks("GET", "/v1/responses/resp_A/input_items"))[0] == 200
    assert len(pod.asked) == 2, "the same page again is the end"


@pytest.mark.requirement("responses:paths-items")
async def test_a_list_that_is_longer_than_is_read_is_not_shown(
    pod: KeptPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_objects, "_MAX_BYTES", 1000)
    pod.api.page_size = 1
    status, answer = await pod.asks("GET", "/v1/responses/resp_B/input_items")
    assert (status, answer["error"]["code"]) == (404, "response_not_found")
    await pod.keeps(KeptObject("resp_B", "resp_B", "openai"))
    status, answer = await pod.asks("GET", "/v1/responses/resp_B/input_items")
    assert (status, answer["error"]["code"]) == (502, "provider_response_too_large")


CALL = function_call("call_9", "desk__balance", '{"planted": 1}')
AGAIN = function_call("call_10", "desk__balance", '{"planted": 2}')


async def turns(pod: KeptPod, *asked: Body) -> list[Body]:
    """Run turns of the analyst's, each behind the one before; return the answers."""
    answers: list[Body] = []
    for more in asked:
        before = {"previous_response_id": answers[-1]["id"]} if answers else {}
        body = {"model": "m", "input": "Hi", "tools": [NATIVE], **before, **more}
        status, answer = await pod.asks("POST", "/v1/responses", body=json.dumps(body).encode())
        assert status == 200, answer
        answers.append(answer)
    return answers


@pytest.mark.requirement("responses:paths-read")
@pytest.mark.requirement("responses:paths-items")
async def test_a_chain_of_turns_with_hidden_rounds_reads_as_the_runner_knows_it(
    pod: KeptPod,
) -> None:
    pod.api.responses.clear()
    aside = message("I look it up.", "msg_aside")
    pod.api.script = [
        [reasoning("Which?"), aside, CALL],
        [message("Fifty.", "msg_1")],
        [AGAIN],
        [message("Still.", "msg_3")],
    ]
    choice = {"type": "function", "name": "desk.balance"}
    first, second = await turns(pod, {"instructions": "Be brief.", "tool_choice": choice}, {})
    assert [first["id"], second["id"]] == ["resp_1", "resp_3"]
    for answer in (first, second):
        _, shown = await pod.asks("GET", f"/v1/responses/{answer['id']}")
        assert shown == {**answer, "usage": shown["usage"]}
    assert (shown["previous_response_id"], shown["tools"]) == ("resp_1", [NATIVE])
    _, page = await pod.asks("GET", "/v1/responses/resp_3/input_items?order=asc")
    assert [item["content"] for item in page["data"]] == ["Hi", message("Fifty.")["content"], "Hi"]
    stored_there = json.dumps(pod.api.responses)
    assert all(word in stored_there for word in ("desk__balance", "planted", "I look it up."))
    assert (await pod.asks("DELETE", "/v1/responses/resp_3"))[0] == 200
    assert sorted(pod.api.responses) == ["resp_0", "resp_1"]


@pytest.mark.requirement("responses:paths-items")
async def test_hidden_rounds_that_were_woven_into_a_kept_request_are_not_listed(
    pod: KeptPod,
) -> None:
    pod.api.responses.clear()
    pod.api.script = [
        [CALL],
        [message("You have fifty, which I have just looked up for you at the desk.")],
        [message("Bye.")],
    ]
    (first,) = await turns(pod, {})
    history = [
        {"role": "user", "content": "Hi"},
        *first["output"],
        {"role": "user", "content": "Thanks"},
    ]
    await turns(pod, {"input": history})
    sent = pod.api.received[-1].json["input"]
    assert [item.get("type") for item in sent] == [
        None,
        "function_call",
        "function_call_output",
        "message",
        None,
    ]
    _, page = await pod.asks("GET", "/v1/responses/resp_2/input_items?order=asc")
    assert [item["type"] for item in page["data"]] == ["message"] * 3


@pytest.mark.requirement("responses:paths-read")
async def test_a_chain_behind_a_terminal_tool_shows_what_the_model_said_with_it(
    pod: KeptPod,
) -> None:
    pod.api.responses.clear()
    pod.agent("analyst", pod.tool(**{"x-claw.terminalOnSuccess": True}))
    pod.api.script = [[message("On it.", "msg_said"), CALL], [message("Welcome.")]]
    first, _ = await turns(pod, {}, {})
    assert await pod.asks("GET", f"/v1/responses/{first['id']}") == (200, first)
    _, page = await pod.asks("GET", "/v1/responses/resp_1/input_items?order=asc")
    assert [item["id"] for item in page["data"]] == ["in_resp_0_0", "msg_said", "in_resp_1_1"]
