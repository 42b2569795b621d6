"""A request that names a stored object is sent to the provider that stores it, with
the key that it was stored with.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from claw_mediate.core.http import Forward
from claw_state.ownership import KeptObject
from tests.mediate.providers.test_routing import CHAIN, Pod
from tests.peers import bad_key
from tests.turns.desk import tool
from tests.wires import Body, responses
from tests.wires.responses import message, response

BUSY = JSONResponse({"error": {"message": "busy"}}, 503)


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    """Yield a mediator with the providers ``openai`` and ``second``, which has two keys."""
    made = Pod(tmp_path, responses, "openai")
    made.open()
    providers = made.home / "auth" / "providers.json"
    file = json.loads(providers.read_text(encoding="utf-8"))
    del file["providers"]["second"]["api_key"]
    file["version"] = 2
    for name, own in file["providers"].items():
        own.pop("api_key", None)
        own["keys"] = [{"id": f"k{number}", "secret": f"sk-{name}-{number}"} for number in (1, 2)]
    providers.write_text(json.dumps(file), encoding="utf-8")
    made.mediator.reread()
    made.agent(CHAIN, tool("balance"))
    yield made
    await made.mediator.close(0)
    made.provider.stop()


def says(pod: Pod, response_id: str) -> None:
    pod.provider.says(JSONResponse(response(message("Hello."), id=response_id, store=True)))


async def goes_on(pod: Pod, host: str | None = None, **more: Any) -> tuple[int, Body]:
    body = {"model": "openai/big", "input": "Go on", "previous_response_id": "resp_1", **more}
    answered: tuple[int, Body] = await pod.answers(json.dumps(body).encode(), host)
    return answered


def asked(pod: Pod) -> list[tuple[str, str]]:
    """Return the model and the key of each request."""
    return [
        (sent.json["model"], sent.headers["authorization"].removeprefix("Bearer "))
        for sent in pod.provider.received
    ]


async def keep(pod: Pod, provider: str, key_label: str) -> None:
    await pod.mediator.state.ownership.save(
        "analyst", KeptObject("resp_1", "resp_1", provider, key_label)
    )


@pytest.mark.requirement("responses:pinned")
async def test_a_chain_stays_with_the_provider_and_key_that_answered_even_if_not_the_first(
    pod: Pod,
) -> None:
    pod.provider.says(BUSY, bad_key())
    says(pod, "resp_1")
    status, _ = await pod.answers(json.dumps({"model": "openai/big", "input": "Hi"}).encode())
    assert (status, asked(pod)[2]) == (200, ("other", "sk-second-2"))
    record = await pod.mediator.state.ownership.find("analyst", "resp_1")
    assert record is not None
    assert (record.provider, record.key_label) == ("second", "k2")
    pod.provider.received.clear()
    says(pod, "resp_2")
    assert (await goes_on(pod))[0] == 200
    assert asked(pod) == [("other", "sk-second-2")]


@pytest.mark.requirement("responses:pinned")
async def test_a_request_that_names_an_id_does_not_fail_over(pod: Pod) -> None:
    await keep(pod, "openai", "k2")
    pod.provider.says(BUSY)
    assert (await goes_on(pod))[0] == 503
    pod.provider.says(Response(b'{"error":{"message":"slow down"}}', 429, {"retry-after": "60"}))
    assert (await goes_on(pod))[0] == 429
    assert (await goes_on(pod))[0] == 503
    assert asked(pod) == [("big", "sk-openai-2")] * 2


@pytest.mark.requirement("responses:pinned")
async def test_where_the_key_is_gone_any_key_of_the_provider_is_used(pod: Pod) -> None:
    await keep(pod, "second", "k9")
    says(pod, "resp_2")
    await goes_on(pod)
    assert asked(pod) == [("other", "sk-second-1")]


@pytest.mark.requirement("responses:pinned")
@pytest.mark.parametrize(("provider", "host"), [("gone", None), ("second", "api.openai.com")])
async def test_an_id_whose_provider_can_not_be_asked_any_more_is_unknown(
    pod: Pod, provider: str, host: str | None
) -> None:
    await keep(pod, provider, "k1")
    status, told = await goes_on(pod, host)
    assert (status, told["error"]["code"], told["error"]["param"]) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
    )
    assert provider in told["error"]["message"]
    assert asked(pod) == []


@pytest.mark.requirement("responses:pinned")
async def test_a_request_that_is_not_mediated_goes_there_with_the_pending_results(
    pod: Pod,
) -> None:
    output = b'{"type":"function_call_output","call_id":"call_1","output":"done"}'
    record = KeptObject("resp_1", "resp_real", "second", "k2", pending_results=output)
    await pod.mediator.state.ownership.save("analyst", record)
    body = {
        "model": "openai/big",
        "input": "Go on",
        "previous_response_id": "resp_1",
        "background": True,
    }
    decision = await pod.sends(json.dumps(body).encode())
    assert isinstance(decision, Forward)
    assert ("authorization", "Bearer sk-second-2") in decision.credential
    assert decision.body is not None
    sent = json.loads(decision.body)
    assert (sent["model"], sent["previous_response_id"]) == ("other", "resp_real")
    assert sent["input"] == [json.loads(output), {"role": "user", "content": "Go on"}]


@pytest.mark.requirement("responses:pinned")
async def test_a_request_that_leans_on_a_provider_of_which_nothing_is_known_has_one_candidate(
    pod: Pod,
) -> None:
    pod.provider.says(BUSY)
    body = {"model": "openai/big", "input": [{"type": "item_reference", "id": "msg_1"}]}
    status, _ = await pod.answers(json.dumps(body).encode())
    assert (status, asked(pod)) == (503, [("big", "sk-openai-1")])
