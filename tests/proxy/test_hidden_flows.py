"""Hidden rounds and tool calls as flows of their own, for an operator who looks on."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from claw_mediate.core.observer import NO_OBSERVER, Subject
from claw_mediate.mitm.addon_state import AddonState, BuiltinAddons
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.redaction import RedactionAddon
from claw_mediate.telemetry.event_log import EventLog
from tests.peers import calls, text
from tests.proxy.looking import (
    SavingPod,
    dumper,
    peopled,
    save,
    savehar,
    taddons,
    tflow,
    told,
    view,
)
from tests.proxy.pod import Pod
from tests.waiting import eventually

HI: Any = [{"role": "user", "content": "How am I doing?"}]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SavingPod]:
    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        pod.start("-w", str(pod.home / "flows"), "--set", "flow_detail=3")
        yield SavingPod(pod)


def ask(pod: Pod, words: str = "How am I doing?", **more: Any) -> Any:
    return pod.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": words}], **more
    )


def about(flow: Any) -> tuple[Any, ...]:
    return flow.metadata["claw.kind"], flow.metadata["claw.round"], flow.metadata.get("claw.tool")


@pytest.mark.requirement("hidden:flows")
@pytest.mark.parametrize("stream", [False, True])
def test_each_hidden_round_and_call_is_a_flow_that_names_its_parent(
    looked_at: SavingPod, stream: bool
) -> None:
    pod = looked_at.pod
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
    again = ("desk__balance", {})
    pod.provider.says(calls(("c1", *again)), calls(("c2", *again)), text("Rich."))
    answer = ask(pod, stream=stream)
    if stream:
        list(answer)
    parent, children = looked_at.last_turn(5)
    assert [about(child) for child in children] == [
        ("model", 1, None),
        ("tool", 1, "desk.balance"),
        ("model", 2, None),
        ("tool", 2, "desk.balance"),
        ("model", 3, None),
    ]
    assert {(child.metadata["claw.turn"], child.metadata["claw.agent"]) for child in children} == {
        (parent.metadata["claw.turn"], "analyst")
    }
    assert all(child.metadata["claw.latency_ms"] >= 0 for child in children)
    run, duplicate = (child for child in children if child.metadata["claw.kind"] == "tool")
    assert (run.request.url, run.response and run.response.json()) == (
        f"{pod.service.url}/balance",
        {"usd": 50_000},
    )
    assert (duplicate.metadata["claw.duplicate"], duplicate.response) == (True, None)
    assert duplicate.id in [flow.id for flow in looked_at.found("~meta duplicate.*True")]
    assert duplicate.error is not None
    assert (
        json.loads(parent.metadata["claw.entry"])["tool_trace"][1]["tool_calls"][0]["duplicate"]
        is True
    )
    assert json.loads(parent.metadata["claw.entry"]) == pod.history("analyst")[-1]


@pytest.mark.requirement("hidden:filters")
def test_filters_find_what_was_asked_for_a_turn(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Poor."))
    ask(pod)
    _, children = looked_at.last_turn(3)
    turn = children[0].metadata["claw.turn"]
    assert len(looked_at.found(f'~comment "model round [12] of {turn} by analyst"')) == 2
    assert len(looked_at.found(f"~marker robot & ~meta {turn}")) == 2
    assert len(looked_at.found(f"~marker wrench & ~comment desk.balance & ~meta {turn}")) == 1
    assert len(looked_at.found(f"~marker llama & ~meta {turn}")) == 1


@pytest.mark.requirement("hidden:destination")
def test_a_request_at_the_base_url_is_shown_with_the_provider_that_was_asked(
    looked_at: SavingPod,
) -> None:
    pod = looked_at.pod
    pod.provider.says(text("Hi."))
    ask(pod)
    parent, children = looked_at.last_turn(1)
    assert (
        parent.request.pretty_url
        == children[0].request.pretty_url
        == f"{pod.provider.url}/v1/chat/completions"
    )
    assert children[0].metadata["claw.provider"] == "openai"


@pytest.mark.requirement("hidden:failures")
def test_what_fails_is_a_flow_with_its_error_and_each_try_is_one(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.service.routes["GET", "/balance"] = JSONResponse({"why": "tired"}, status_code=500)
    busy = JSONResponse({"error": {"message": "busy"}}, status_code=503)
    pod.provider.says(calls(("c1", "desk__balance", {})), busy, text("No idea."))
    ask(pod)
    _, children = looked_at.last_turn(4)
    assert [
        (*about(child)[:2], child.response and child.response.status_code) for child in children
    ] == [
        ("model", 1, 200),
        ("tool", 1, 500),
        ("model", 2, 503),
        ("model", 2, 200),
    ]


@pytest.mark.requirement("hidden:failures")
def test_a_runner_that_leaves_ends_its_hidden_requests_and_its_turn_is_told(
    looked_at: SavingPod,
) -> None:
    pod = looked_at.pod
    asked = threading.Event()

    async def never(_request: Request) -> Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    pod.service.routes["GET", "/balance"] = never
    pod.provider.says(calls(("c1", "desk__balance", {})))
    body = json.dumps({"model": "gpt-test", "messages": HI}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {pod.token()}\r\n"
    )
    with socket.create_connection(("127.0.0.1", pod.port)) as runner:
        runner.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert asked.wait(30)
    call = eventually(
        lambda: looked_at.found("~marker wrench & ~e & ~comment desk.balance & ~u /balance"),
        "it is over",
    )
    parent = eventually(lambda: looked_at.found("~marker llama & ~e"), "the parent is saved")[-1]
    assert call[-1].metadata["claw.parent"] == parent.id
    assert json.loads(parent.metadata["claw.entry"])["status_code"] == 499


@pytest.mark.requirement("hidden:failures")
def test_what_an_earlier_attempt_did_is_shown_as_recorded(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 7})
    no = JSONResponse({"error": {"message": "no"}}, status_code=400)
    pod.provider.says(calls(("c1", "desk__balance", {})), no, text("Seven."))
    with pytest.raises(openai.BadRequestError):
        ask(pod, "How many?")
    assert ask(pod, "How many?").choices[0].message.content == "Seven."
    turn = pod.history("analyst")[-1]["turn_id"]
    found = eventually(
        lambda: flows if len(flows := looked_at.found(f"~meta {turn}")) == 8 else None,
        "all is saved",
    )
    recorded = [flow for flow in found if flow.metadata.get("claw.replayed")]
    assert [(*about(flow)[:2], flow.request.host) for flow in recorded] == [
        ("model", 1, "recorded.invalid"),
        ("tool", 1, "recorded.invalid"),
    ]
    assert [flow.response is not None and "usd" in flow.response.text for flow in recorded] == [
        False,
        True,
    ]


@pytest.mark.requirement("hidden:flows")
def test_a_runner_that_joins_a_turn_is_shown_with_it(looked_at: SavingPod) -> None:
    pod, go = looked_at.pod, threading.Event()

    async def slow(_request: Request) -> Response:
        await asyncio.to_thread(go.wait, 30)
        return JSONResponse({"usd": 8})

    pod.service.routes["GET", "/balance"] = slow
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Eight."))
    with ThreadPoolExecutor() as pool:
        runners = [pool.submit(ask, pod, "How many now?") for _ in range(2)]
        eventually(lambda: [each for each in pod.log() if each["type"] == "join"], "one has joined")
        go.set()
        assert {each.result().choices[0].message.content for each in runners} == {"Eight."}
    turn = pod.history("analyst")[-1]["turn_id"]
    both = eventually(
        lambda: (
            flows if len(flows := looked_at.found(f"~marker llama & ~meta {turn}")) == 2 else None
        ),
        "saved",
    )
    assert {json.loads(flow.metadata["claw.entry"])["turn_id"] for flow in both} == {turn}
    assert len(looked_at.found(f"! ~marker llama & ~meta {turn}")) == 3


@pytest.mark.requirement("hidden:flows")
def test_a_tool_that_a_model_invents_moves_nobodys_cursor(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.provider.says(calls(("c1", "\x1b[2Jno\nsuch" + "x" * 500, {})), text("Oh."))
    ask(pod, "Invent!")
    _, children = looked_at.last_turn(3)
    invented = children[1]
    assert (invented.request.host, invented.error is not None) == ("not-made.invalid", True)
    assert invented.metadata["claw.tool"].isprintable()
    assert invented.comment.isprintable()
    assert len(invented.comment) < 300


@pytest.mark.requirement("hidden:apart")
def test_turns_at_one_moment_keep_what_was_asked_for_them_apart(looked_at: SavingPod) -> None:
    pod, meet = looked_at.pod, threading.Barrier(2)

    async def both(request: Request) -> Response:
        symbol = (await request.json())["symbol"]
        await asyncio.to_thread(meet.wait, 30)
        return JSONResponse({"bought": symbol})

    async def model(request: Request) -> Response:
        said = json.dumps((await request.json())["messages"])
        symbol = "AAA" if "AAA" in said else "BBB"
        return (
            text(f"{symbol}.")
            if "bought" in said
            else calls(("c1", "desk__trade", {"symbol": symbol}))
        )

    pod.service.routes["POST", "/trade"] = both
    pod.provider.says(*[model] * 4)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda symbol: ask(pod, f"Buy {symbol}"), ["AAA", "BBB"]))
    for symbol in ("AAA", "BBB"):
        own = eventually(
            lambda symbol=symbol: looked_at.found(f'~marker llama & ~bq "Buy {symbol}"'),
            "it is saved",
        )[0]
        children = looked_at.found(f"~meta {own.id}")
        assert [about(child)[0] for child in children] == ["model", "tool", "model"]
        assert all(symbol in child.request.get_text() for child in children)


@pytest.mark.requirement("hidden:dumper")
def test_the_dumper_speaks_on_stderr_and_tells_no_secret(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.provider.says(text("Hi, once more."))
    ask(pod)
    said = eventually(
        lambda: text if "once more" in (text := pod.stderr.read_text(encoding="utf-8")) else "",
        "it is dumped",
    )
    assert told(said.encode()) == []
    assert pod.log()[-1]["type"] == "response"  # stdout is still one JSON object a line


@pytest.mark.requirement("hidden:free")
def test_where_nobody_looks_on_there_is_no_observer() -> None:
    savers = (dumper.Dumper(), save.Save(), savehar.SaveHar())
    with taddons.context(*savers) as context:
        addon_state = redacting(context)
        context.options.flow_detail = 0
        assert hidden_flows.observe(tflow.tflow(), addon_state) is None
        context.options.flow_detail = 1
        assert hidden_flows.observe(tflow.tflow(), addon_state) is not None
    with taddons.context(*savers, view.View()) as context:
        addon_state = redacting(context)
        context.options.flow_detail = 0
        assert hidden_flows.observe(tflow.tflow(), addon_state) is not None


@pytest.mark.requirement("hidden:free")
def test_where_nobody_looks_on_no_request_is_described() -> None:
    with NO_OBSERVER.observe(
        Subject("model", 1, "openai"), lambda: pytest.fail("it was described")
    ) as exchange:
        exchange.on_failure("")


def redacting(context: Any) -> AddonState:
    addon_state = AddonState(EventLog([].append), BuiltinAddons.find())
    context.master.addons.add(RedactionAddon(addon_state))
    return addon_state
