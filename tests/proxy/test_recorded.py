"""Saved flows, loaded into a running proxy: they are only shown, and nothing is
decided about them.
"""

from __future__ import annotations

import asyncio
import io as files
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy import flow
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import calls, text
from tests.proxy.looking import http, io, peopled, tflow, told
from tests.proxy.pod import Pod
from tests.waiting import eventually
from tests.web.mitmweb import Mitmweb


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pod, Mitmweb]]:
    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        web = Mitmweb()
        web.start(pod)
        yield pod, web


def ask(pod: Pod) -> Any:
    asked = pod.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "Hi."}]
    )
    return asked.choices[0].message.content


def done(pod: Pod) -> tuple[int, ...]:
    """Return the counts that a decision would increase."""
    events = [
        line
        for line in pod.stdout.read_text(encoding="utf-8").splitlines()
        if line.startswith('{"ts"')
    ]
    return (
        len(pod.provider.received),
        len(pod.service.received),
        len(pod.history("analyst")),
        len(events),
    )


def answers(web: Mitmweb) -> dict[str, Any]:
    return {each["id"]: (each.get("response") or {}).get("status_code") for each in web.flows()}


@pytest.mark.requirement("hidden:recorded")
def test_flows_that_were_saved_are_shown_as_they_were(shown: tuple[Pod, Mitmweb]) -> None:
    pod, web = shown
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    assert ask(pod) == "Done."
    dump, before = web.fetch("/flows/dump"), answers(web)
    web.fetch("/clear", method="POST")
    did = done(pod)
    web.load(dump)
    eventually(lambda: len(web.flows()) == len(before), "they are loaded")
    assert answers(web) == before
    assert done(pod) == did
    assert min(did) > 0


@pytest.mark.requirement("hidden:recorded")
def test_a_request_of_another_proxys_file_is_not_made_though_its_token_is_good(
    shown: tuple[Pod, Mitmweb],
) -> None:
    pod, web = shown
    flows = [plain(pod, pod.url), plain(pod, "http://somebody.example:80")]
    did = done(pod)
    web.load(dumped(*flows))
    eventually(lambda: {each.id for each in flows} <= answers(web).keys(), "they are loaded")
    assert {answers(web)[each.id] for each in flows} == {None}
    assert done(pod) == did
    assert told(web.everything()) == []


@pytest.mark.requirement("hidden:recorded")
def test_a_turn_under_way_does_not_end_with_the_copy_of_it_that_is_loaded(
    shown: tuple[Pod, Mitmweb],
) -> None:
    pod, web = shown
    begun, go = threading.Event(), threading.Event()

    async def slow(_request: Request) -> Response:
        begun.set()
        await asyncio.to_thread(go.wait, 30)
        return JSONResponse({"usd": 1})

    pod.service.routes["GET", "/balance"] = slow
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Done."))
    with pod.client().chat.completions.create(model="gpt-test", messages=[], stream=True) as stream:
        assert begun.wait(30)
        copy = [each for each in read(web.fetch("/flows/dump")) if "of analyst" in each.comment][-1]
        copy.error = flow.Error("the runner left")
        web.load(dumped(copy))
        go.set()
        assert (
            "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            == "Done."
        )


def plain(pod: Pod, url: str) -> http.HTTPFlow:
    made = tflow.tflow()
    made.request = http.Request.make(
        "POST",
        f"{url}/v1/chat/completions",
        b'{"model": "gpt-test", "messages": [{"role": "user", "content": "Hi."}]}',
        {"authorization": f"Bearer {pod.token('analyst')}", "content-type": "application/json"},
    )
    made.request.host, made.request.port = "api.openai.com", 443
    return made


def read(dump: bytes) -> list[http.HTTPFlow]:
    return [
        each
        for each in io.FlowReader(files.BytesIO(dump)).stream()
        if isinstance(each, http.HTTPFlow)
    ]


def dumped(*flows: http.HTTPFlow) -> bytes:
    buffer = files.BytesIO()
    writer = io.FlowWriter(buffer)
    for each in flows:
        writer.add(each)
    return buffer.getvalue()
