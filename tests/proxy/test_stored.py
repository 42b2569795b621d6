"""Objects that a provider stores for forwarded requests belong to the agent that
asked: real proxy, real SDK.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from starlette.responses import JSONResponse, Response

from tests.peers import Provider, Service
from tests.proxy.pod import Pod
from tests.wires.responses import function_call, message, response


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod of two agents without tools, ``one`` and ``two``, and of
    ``desk``, which has one.
    """
    provider = Provider()
    provider.start()
    made = Pod(tmp_path_factory.mktemp("pod"), provider, Service())
    made.agent("one")
    made.agent("two")
    made.service.start()
    made.service.routes["GET", "/balance"] = JSONResponse({"planted": 50})
    made.agent("desk", made.tool("balance"))
    made.start()
    yield made
    made.stop()
    made.service.stop()
    provider.stop()


def kept(response_id: str, **more: Any) -> dict[str, Any]:
    return response(
        message("Hi."),
        **{"id": response_id, "store": True, "tools": [], "tool_choice": "auto", **more},
    )


def streamed(response_id: str) -> Response:
    document = kept(response_id, background=True, status="in_progress", usage=None)
    events = [
        {"type": f"response.{name}", "sequence_number": n, "response": document}
        for n, name in enumerate(["created", "queued"])
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Response(body, media_type="text/event-stream")


@pytest.mark.requirement("responses:paths-rows")
def test_a_forwarded_response_is_its_agents_as_soon_as_it_is_there(pod: Pod) -> None:
    pod.provider.says(
        JSONResponse(kept("resp_1")), JSONResponse(kept("resp_1")), JSONResponse(kept("resp_2"))
    )
    one, two = pod.client("one"), pod.client("two")
    made = one.responses.create(model="gpt-test", input="Hi")
    assert one.responses.retrieve(made.id).output_text == "Hi."
    assert (
        one.responses.create(model="gpt-test", input="And?", previous_response_id=made.id).id
        == "resp_2"
    )
    sent = len(pod.provider.received)
    with pytest.raises(openai.NotFoundError):
        two.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        two.responses.input_items.list(made.id)
    with pytest.raises(openai.BadRequestError, match="resp_1"):
        two.responses.create(model="gpt-test", input="Hi", previous_response_id=made.id)
    assert len(pod.provider.received) == sent


@pytest.mark.requirement("responses:paths-rows")
def test_a_background_response_is_streamed_again_and_cancelled_by_the_id_of_its_first_event(
    pod: Pod,
) -> None:
    one = pod.client("one")
    pod.provider.says(
        streamed("resp_bg"), streamed("resp_bg"), JSONResponse(kept("resp_bg", status="cancelled"))
    )
    (first, *_) = one.responses.create(model="gpt-test", input="Hi", background=True, stream=True)
    assert first.type == "response.created"
    again = list(one.responses.retrieve(first.response.id, stream=True, starting_after=0))
    assert [event.type for event in again] == ["response.created", "response.queued"]
    assert one.responses.cancel("resp_bg").status == "cancelled"
    asked = [f"{sent.method} {sent.path}" for sent in pod.provider.received[-2:]]
    assert asked == [
        "GET /v1/responses/resp_bg?starting_after=0&stream=true",
        "POST /v1/responses/resp_bg/cancel",
    ]


@pytest.mark.requirement("responses:paths-conversation")
def test_a_conversation_is_its_makers(pod: Pod) -> None:
    one, two = pod.client("one"), pod.client("two")
    about = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
    page = {
        "object": "list",
        "data": [message("Hi.")],
        "first_id": "msg_1",
        "last_id": "msg_1",
        "has_more": False,
    }
    pod.provider.says(JSONResponse(about), JSONResponse(about), JSONResponse(page))
    made = one.conversations.create()
    assert one.conversations.retrieve(made.id).id == "conv_1"
    assert [item.id for item in one.conversations.items.list(made.id)] == ["msg_1"]
    with pytest.raises(openai.NotFoundError) as refused:
        two.conversations.retrieve(made.id)
    assert refused.value.param == "conversation"
    with pytest.raises(openai.NotFoundError):
        two.responses.create(model="gpt-test", input="Hi", conversation=made.id)


@pytest.mark.requirement("responses:paths-items")
@pytest.mark.requirement("responses:paths-read")
def test_a_turn_with_a_hidden_round_reads_as_it_was_answered(pod: Pod) -> None:
    echo = [{"type": "function", "name": "desk__balance", "parameters": {}, "strict": False}]
    call = function_call("call_1", "desk__balance", "{}")
    output = {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "call_1",
        "output": "planted",
    }
    asked = {
        "type": "message",
        "id": "in_1",
        "role": "user",
        "content": [{"type": "input_text", "text": "How much?"}],
    }
    last = kept("resp_b", tools=echo)
    page = {
        "object": "list",
        "data": [asked, call, output],
        "first_id": "in_1",
        "last_id": "fco_1",
        "has_more": False,
    }
    made, final, again, items = response(call, id="resp_a", tools=echo), last, last, page
    pod.provider.says(*map(JSONResponse, (made, final, again, items)))
    with pod.client("desk") as desk:
        answer = desk.responses.create(model="gpt-test", input="How much?")
        shown = desk.responses.retrieve(answer.id)
        listed = list(desk.responses.input_items.list(answer.id))
    assert (shown.id, shown.output_text, shown.tools, answer.tools) == ("resp_b", "Hi.", [], [])
    assert [item.id for item in listed] == ["in_1"]
