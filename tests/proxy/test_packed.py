"""Compressed bodies, both ways, through the real proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.contract.test_content_coding import PACKERS, nothing, packed
from tests.mediate.mitm.passthrough.test_answer_tap import OPENAI, anthropic_stream, openai_stream
from tests.proxy.conftest import WiredPod
from tests.proxy.pod import headers
from tests.wires.openai import completion
from tests.wires.responses import message, response

BODY: dict[str, Any] = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}
ODD = b' {"model" : "gpt-test", "messages":[{"role":"user","content":"Go"}], "seed":1.0 } '
REPLY = json.dumps(completion("Hi.")).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(REPLY)
    + REPLY
)
CHAINS = [["gzip"], ["x-gzip"], ["deflate"], ["br"], ["zstd"], ["gzip", "br"], ["zstd", "deflate"]]


def post(
    wired: WiredPod, body: bytes, coding: str, agent_id: str, path: str = "/v1/chat/completions"
) -> httpx2.Response:
    sent = {**headers(wired.pod, agent_id), "content-encoding": coding}
    return httpx2.post(wired.pod.url + path, content=body, headers=sent, timeout=30)


@pytest.mark.requirement("packed:requests")
@pytest.mark.parametrize("chain", CHAINS, ids=",".join)
def test_a_compressed_request_is_read_and_mediated(wired: WiredPod, chain: list[str]) -> None:
    wired.wire.answers.put(ANSWER)
    answer = post(wired, packed(ODD, chain), ", ".join(chain), "analyst")
    assert answer.json()["choices"][0]["message"]["content"] == "Hi."
    (seen,) = wired.wire.seen
    assert seen.all("content-encoding") == []
    assert [tool["function"]["name"] for tool in json.loads(seen.body)["tools"]] == [
        "desk__balance"
    ]
    assert seen.body.startswith(ODD.rstrip()[:-1].rstrip())


@pytest.mark.requirement("responses:packed")
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_compressed_request_of_responses_is_mediated(wired: WiredPod, coding: str) -> None:
    said = json.dumps(response(message("Hi."))).encode()
    wired.wire.answers.put(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(said)
        + said
    )
    answer = post(
        wired,
        PACKERS[coding](b'{"model":"gpt-test","input":"Go","store":false}'),
        coding,
        "analyst",
        "/v1/responses",
    )
    assert answer.json()["output"] == [message("Hi.")]
    (seen,) = wired.wire.seen
    assert seen.all("content-encoding") == []
    assert [tool["name"] for tool in json.loads(seen.body)["tools"]] == ["desk__balance"]


@pytest.mark.requirement("packed:requests")
@pytest.mark.parametrize("chain", CHAINS, ids=",".join)
def test_a_compressed_request_that_is_forwarded_goes_unpacked_as_it_was_read(
    wired: WiredPod, chain: list[str]
) -> None:
    wired.wire.answers.put(ANSWER)
    lines = len(wired.pod.history("plain"))
    body = packed(ODD, chain)
    assert post(wired, body, ", ".join(chain), "plain").content == REPLY
    (seen,) = wired.wire.seen
    assert (seen.body, seen.all("content-encoding")) == (ODD, [])
    assert wired.recorded(lines)["request_original"] == json.loads(ODD)


@pytest.mark.requirement("packed:requests")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_compressed_request_that_must_be_edited_goes_on_as_it_is_meant(
    wired: WiredPod, chunked: bool
) -> None:
    prefixed = PACKERS["gzip"](ODD.replace(b"gpt-test", b"openai/gpt-test"))
    content: bytes | Iterator[bytes] = iter([prefixed]) if chunked else prefixed
    sent = {**headers(wired.pod), "content-encoding": "gzip"}
    httpx2.post(f"{wired.pod.url}/v1/chat/completions", content=content, headers=sent)
    (seen,) = wired.wire.seen
    assert seen.body == ODD
    assert [seen.all(name) for name in ("content-encoding", "transfer-encoding")] == [[], []]
    assert seen.all("content-length") == [str(len(ODD))]


@pytest.mark.requirement("packed:refusals")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("gzip", lambda: b"not gzip at all", 400),
        ("br", lambda: PACKERS["br"](ODD)[:-3], 400),
        ("compress", lambda: ODD, 415),
        ("gzip, gzip, gzip", lambda: ODD, 415),
        ("gzip", lambda: nothing("gzip"), 413),
        ("zstd", lambda: nothing("zstd"), 413),
    ],
    ids=["garbage", "cut", "unknown", "three", "bomb", "zstd-bomb"],
)
def test_a_body_that_cannot_be_unpacked_is_refused_in_the_dialects_shape(
    wired: WiredPod, path: str, agent_id: str, coding: str, body: Callable[[], bytes], status: int
) -> None:
    answer = post(wired, body(), coding, agent_id, path)
    assert answer.status_code == status
    error = answer.json()["error"]
    if path == "/v1/messages":
        assert answer.json()["type"] == "error"
        assert error["type"] == {400: "invalid_request_error", 413: "request_too_large"}.get(
            status, error["type"]
        )
    else:
        assert error["code"] == "unreadable_content_encoding"
    assert wired.wire.seen == []


@pytest.mark.requirement("packed:requests")
def test_what_is_not_read_is_not_unpacked(wired: WiredPod) -> None:
    assert post(wired, b"not gzip at all", "gzip", "analyst", "/v1/files").status_code == 200
    assert wired.wire.seen[0].body == b"not gzip at all"


@pytest.mark.requirement("packed:responses")
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize(
    ("path", "content_type", "body", "tokens"),
    [
        (
            "/v1/chat/completions",
            "application/json",
            json.dumps({"usage": OPENAI}).encode(),
            (9, 12, 4),
        ),
        ("/v1/chat/completions", "text/event-stream", openai_stream(), (9, 12, 4)),
        ("/v1/messages", "text/event-stream", anthropic_stream(), (25, 15, 3)),
    ],
    ids=["json", "openai", "anthropic"],
)
def test_a_compressed_response_keeps_its_bytes_and_its_usage_is_known(
    wired: WiredPod,
    coding: str,
    path: str,
    content_type: str,
    body: bytes,
    tokens: tuple[int, int, int],
) -> None:
    said, lines, streams = (
        len(wired.pod.log()),
        len(wired.pod.history("plain")),
        content_type == "text/event-stream",
    )
    sent = PACKERS[coding](body)
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(sent[at : at + 7]), sent[at : at + 7])
        for at in range(0, len(sent), 7)
    )
    rows = (
        f"content-type: {content_type}\r\ncontent-encoding: {coding}\r\ntransfer-encoding: "
        "chunked\r\n\r\n"
    )
    wired.wire.answers.put(b"HTTP/1.1 200 OK\r\n" + rows.encode() + chunks + b"0\r\n\r\n")
    request = json.dumps({**BODY, "max_tokens": 9, "stream": streams}).encode()
    head = wired.head(
        f"POST {path}", f"accept-encoding: {coding};q=0.5", f"content-length: {len(request)}"
    )
    with wired.runner() as runner:
        seen = runner.ask(head, request)
    assert (seen.body, seen.all("content-encoding")) == (sent, [coding])
    assert wired.wire.seen[0].all("accept-encoding") == [f"{coding};q=0.5"]
    ended = wired.ended(said)
    assert [ended[name] for name in ("tokens_in", "tokens_out", "cached_tokens")] == list(tokens)
    kept = wired.recorded(lines)["response"]
    whole = (
        {"format": "sse", "text": body.decode()}
        if streams
        else {"format": "json", "json": json.loads(body)}
    )
    assert kept == whole


@pytest.mark.requirement("packed:responses")
def test_a_runner_that_asks_for_no_coding_is_not_given_one_by_us(wired: WiredPod) -> None:
    with wired.runner() as runner:
        runner.ask(wired.head("GET /v1/models"))
    assert wired.wire.seen[0].all("accept-encoding") == []


@pytest.mark.requirement("packed:responses")
def test_a_bomb_that_a_provider_sends_goes_through_as_it_is(wired: WiredPod) -> None:
    sent = nothing("gzip")
    rows = (
        "content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: "
        f"{len(sent)}\r\n\r\n"
    )
    wired.wire.answers.put(b"HTTP/1.1 200 OK\r\n" + rows.encode() + sent)
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models"))
    assert seen.body == sent
    assert wired.pod.memory() - before < 64 << 20
