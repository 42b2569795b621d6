"""Hidden rounds and tool calls in mitmweb, while they happen and afterwards."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import calls, text
from tests.proxy.looking import peopled, told
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.web.mitmweb import Mitmweb


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pod, Mitmweb]]:
    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        pod.environment["CLLAMA_KEEP_FLOWS"] = "30"
        pod.own_script()
        web = Mitmweb()
        web.start(pod)
        yield pod, web


def ask(pod: Pod, words: str = "How am I doing?", **more: Any) -> Any:
    return pod.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": words}], **more
    )


@pytest.mark.requirement("hidden:live")
def test_mitmweb_shows_what_is_asked_while_it_is_not_answered(shown: tuple[Pod, Mitmweb]) -> None:
    pod, web = shown
    go = threading.Event()

    async def slow(_request: Request) -> Response:
        await asyncio.to_thread(go.wait, 30)
        return JSONResponse({"usd": 1})

    pod.service.routes["GET", "/balance"] = slow
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    with ThreadPoolExecutor() as pool:
        asks = pool.submit(ask, pod)
        call = eventually(lambda: web.commented("claw desk.balance round 1"), "it is shown")[0]
        parent = web.commented("of analyst")[0]
        assert "status_code" not in (call.get("response") or {})
        assert parent["request"]["port"] == pod.provider.port
        pod.script.touch()  # reload the script meanwhile
        go.set()
        assert asks.result().choices[0].message.content == "Done."
    assert len(web.commented(call["comment"].split(" of ")[1])) == 3
    assert told(web.everything()) == []


@pytest.mark.requirement("hidden:never-again")
def test_a_hidden_request_is_not_sent_again_and_no_flow_has_a_credential(
    shown: tuple[Pod, Mitmweb],
) -> None:
    pod, web = shown
    pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1}, status_code=201)
    pod.provider.says(calls(("c1", "desk__trade", {})), text("Bought."))
    ask(pod, "Buy.")
    call = web.commented("claw desk.trade round 1")[-1]
    turn = call["comment"].split()[5]
    model, parent = (
        web.commented(f"claw model round 2 of {turn}")[0],
        web.commented(f"claw {turn} of")[0],
    )
    services, providers = len(pod.service.received), len(pod.provider.received)
    for flow in (call, model, parent):
        web.fetch(f"/flows/{flow['id']}/replay", method="POST")
        eventually(lambda flow=flow: _status(web, flow) in {401, 403}, "it is refused")
    assert (len(pod.service.received), len(pod.provider.received)) == (services, providers)


def _status(web: Mitmweb, flow: dict[str, Any]) -> int:
    now = next(each for each in web.flows() if each["id"] == flow["id"])
    return int((now.get("response") or {}).get("status_code") or 0)


@pytest.mark.requirement("hidden:bounded")
def test_the_oldest_turns_go_with_their_hidden_flows_but_no_marked_one(
    shown: tuple[Pod, Mitmweb],
) -> None:
    pod, web = shown
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Marked."))
    ask(pod)
    turn = pod.history("analyst")[-1]["turn_id"]
    first = web.commented(f"claw {turn} of")[0]
    web.fetch(f"/flows/{first['id']}", method="PUT", body={"marked": ":default:"})
    for number in range(20):
        pod.provider.says(calls(("c1", "desk__balance", {})), text("Hi."))
        ask(pod, str(number))
    flows = web.flows()
    assert len(flows) <= 30
    assert sum(turn in flow["comment"] for flow in flows) == 4
    named = [re.findall("turn_[0-9a-f]+", flow["comment"]) for flow in flows]
    assert set(Counter(each[0] for each in named if each).values()) == {
        4
    }  # all flows of a turn, or none
