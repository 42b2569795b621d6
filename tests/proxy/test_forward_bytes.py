"""Any forwarded request and any answer pass byte for byte, framed in any way."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proxy.conftest import WiredPod
from tests.proxy.frames import FrameProvider, FrameRunner, tunnel
from tests.proxy.pod import PROVIDER_KEY, Pod
from tests.proxy.wire import Connection, Runner

TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
VISIBLE = st.characters(
    min_codepoint=0x21,
    max_codepoint=0xFF,
    exclude_characters="\x7f\x85\xa0\xad",
    exclude_categories=["Cc"],
)
OURS = {
    *(
        "host",
        "authorization",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
    ),
    *(
        "upgrade",
        "http2-settings",
        "te",
        "trailer",
        "expect",
        "cookie",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
    ),
    *(
        "proxy-authorization",
        "content-encoding",
        "openai-organization",
        "openai-project",
        "x-goog-user-project",
    ),
    *("set-cookie", "server", "date"),
}
NAMES = st.text(TOKEN, min_size=1, max_size=12).filter(lambda name: name.lower() not in OURS)
VALUES = st.lists(st.text(VISIBLE, min_size=1, max_size=9), max_size=3).map(" ".join)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
TARGETS = st.text("abcXYZ019-._~!&'()*+,;=:@%/?", max_size=20).map(
    lambda query: "/v1/files?" + query
)


class Message(NamedTuple):
    """A request or a response; ``chunked``: without a content-length."""

    headers: list[tuple[str, str]]
    parts: list[bytes]
    chunked: bool


MESSAGES = st.builds(
    Message, HEADERS, st.lists(st.binary(min_size=1, max_size=900), max_size=4), st.booleans()
)
CHATS = st.builds(
    lambda name, value, space: (
        f'{space}{{"model":{space}"gpt-test", "messages": [ ],{space}{json.dumps(name)} : {json.dumps(value)} }}{space}'
    ).encode(),
    st.text(max_size=5).map(lambda name: "x" + name),
    st.recursive(
        st.none() | st.text(max_size=5) | st.integers(),
        lambda inner: st.lists(inner, max_size=2),
        max_leaves=3,
    ),
    st.text(" \n\t\r", max_size=3),
)
MANY = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def written(headers: list[tuple[str, str]]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers)


def framed(message: Message) -> tuple[str, bytes]:
    """Return the header of the body's framing, and the body in that framing."""
    if not message.chunked:
        return f"content-length: {sum(map(len, message.parts))}\r\n", b"".join(message.parts)
    chunks = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in message.parts)
    return "transfer-encoding: chunked\r\n", chunks + b"0\r\n\r\n"


def free(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in OURS]


@pytest.mark.requirement("forward:byte-for-byte")
@MANY
@given(
    target=TARGETS,
    asked=MESSAGES,
    chat=st.none() | CHATS,
    answered=MESSAGES,
    through=st.sampled_from(["base URL", "proxy"]),
)
def test_http_1_passes_byte_for_byte(
    wired: WiredPod,
    target: str,
    asked: Message,
    chat: bytes | None,
    answered: Message,
    through: str,
) -> None:
    wired.wire.forget()
    if chat is not None:
        target, asked = "/v1/chat/completions", asked._replace(parts=[chat])
    framing, body = framed(answered)
    wired.wire.answers.put(
        f"HTTP/1.1 200 Só só\r\n{written(answered.headers)}{framing}\r\n".encode("latin-1") + body
    )
    framing, body = framed(asked)
    line = f"POST {target if through == 'base URL' else wired.wire.url + target} HTTP/1.1"
    head = (
        f"{line}\r\nhost: x\r\nx-api-key: "
        f"{wired.pod.token('plain')}\r\n{written(asked.headers)}{framing}\r\n"
    )
    with Runner(wired.pod.port if through == "base URL" else wired.pod.proxy_port) as runner:
        seen = runner.ask(head.encode("latin-1") + body)
    (sent,) = wired.wire.seen
    assert (sent.line, sent.body) == (f"POST {target} HTTP/1.1", b"".join(asked.parts))
    assert free(sent.headers) == asked.headers
    assert sent.all("authorization") == [f"Bearer {PROVIDER_KEY}"]
    assert (seen.line, seen.body) == ("HTTP/1.1 200 Só só", b"".join(answered.parts))
    assert free(seen.headers) == answered.headers


def lowered(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers]


@pytest.mark.requirement("forward:byte-for-byte")
@MANY
@given(asked=MESSAGES, answered=MESSAGES)
def test_http_2_to_a_provider_of_http_1_passes_byte_for_byte(
    wired: WiredPod, asked: Message, answered: Message
) -> None:
    wired.wire.forget()
    framing, body = framed(answered)
    wired.wire.answers.put(
        f"HTTP/1.1 200 OK\r\n{written(answered.headers)}{framing}\r\n".encode("latin-1") + body
    )
    own = [("authorization", f"Bearer {wired.pod.token('plain')}")]
    own += [("content-length", str(sum(map(len, asked.parts))))] * (not asked.chunked)
    with FrameRunner(wired.pod) as runner:
        stream = runner.ask("POST", "/v1/files?a=%2F", [*own, *lowered(asked.headers)], asked.parts)
    (sent,) = wired.wire.seen
    assert (sent.line, sent.body) == ("POST /v1/files?a=%2F HTTP/1.1", b"".join(asked.parts))
    assert free(sent.headers) == lowered(asked.headers)
    assert (stream.all(":status"), stream.body) == (["200"], b"".join(answered.parts))
    assert free(stream.headers[1:]) == lowered(answered.headers)


@pytest.mark.requirement("forward:byte-for-byte")
@MANY
@given(asked=MESSAGES, answered=MESSAGES)
def test_http_2_passes_byte_for_byte_to_a_provider_of_http_2(
    multiplexed: tuple[Pod, FrameProvider], asked: Message, answered: Message
) -> None:
    pod, provider = multiplexed
    provider.seen.clear()
    provider.headers, provider.parts = (
        [(":status", "200"), *lowered(answered.headers)],
        answered.parts,
    )
    provider.trailers = [("x-checksum", "1")] * answered.chunked
    with FrameRunner(pod) as runner:
        own = [("authorization", f"Bearer {pod.token('plain')}")]
        stream = runner.ask("POST", "/v1/files", [*own, *lowered(asked.headers)], asked.parts)
    (sent,) = provider.seen
    assert sent.body == b"".join(asked.parts)
    assert free(sent.headers[4:]) == lowered(asked.headers)
    assert sent.all("authorization") == [f"Bearer {PROVIDER_KEY}"]
    assert (sent.all("transfer-encoding"), sent.all("content-length")) == ([], [])
    assert (stream.all(":status"), stream.body) == (["200"], b"".join(answered.parts))
    assert free(stream.headers[1:]) == lowered(answered.headers)


@pytest.mark.requirement("forward:byte-for-byte")
def test_what_comes_in_frames_is_framed_anew_for_a_runner_of_http_1(
    multiplexed: tuple[Pod, FrameProvider],
) -> None:
    pod, provider = multiplexed
    provider.seen.clear()
    provider.headers, provider.parts, provider.trailers = [(":status", "200")], [b"one", b"two"], []
    with tunnel(pod, "api.openai.com", "http/1.1", "h2") as peer:
        runner = Connection(peer)
        head = (
            f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {pod.token('plain')}\r\n"
        )
        for _ in range(2):  # the connection goes on after the first response
            runner.send(head.encode() + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            seen = runner.head()
            runner.body(seen)
            assert (seen.status, seen.all("transfer-encoding"), seen.body) == (
                200,
                ["chunked"],
                b"onetwo",
            )
    assert [(sent.body, sent.all("transfer-encoding")) for sent in provider.seen] == [
        (b"abc", [])
    ] * 2


ODD_TARGETS = [b"/v1/\xff/chat/completions", b"/v1/emb\xff", b"/v1/chat/completions?a=\xe9"]


@pytest.mark.requirement("odd:targets")
@pytest.mark.parametrize("target", ODD_TARGETS)
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_a_target_that_is_not_even_utf_8_is_refused(
    wired: WiredPod, target: bytes, agent_id: str
) -> None:
    said = len(wired.pod.log())
    with wired.runner() as runner:
        head = wired.head("POST /target", "content-length: 2", agent_id=agent_id).replace(
            b"/target", target
        )
        seen = runner.ask(head, b"{}")
        assert (seen.status, json.loads(seen.body)["error"]["code"]) == (400, "malformed_request")
    assert wired.wire.seen == []
    assert wired.pod.log()[said:] == [], "nobody was admitted, and no budget was asked"


@pytest.mark.requirement("odd:targets")
def test_a_target_of_raw_utf_8_goes_on_as_it_is(wired: WiredPod) -> None:
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models?x=target").replace(b"target", "café".encode()))
    assert seen.body == b"ok"
    assert wired.wire.seen[0].line.encode("latin-1") == "GET /v1/models?x=café HTTP/1.1".encode()
