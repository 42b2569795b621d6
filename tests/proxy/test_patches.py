"""Traffic that no ordinary peer sends.

WebSockets at every entrance, trailers, endless heads, odd addresses, signals.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import httpx2
import pytest

from tests.peers import text
from tests.proxy.conftest import WiredPod
from tests.proxy.frames import FrameRunner, tunnel
from tests.proxy.pod import Pod, authority, headers, through
from tests.proxy.wire import Connection, Runner, Wire

UPGRADE = [
    "connection: Upgrade",
    "upgrade: WebSocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZQ==",
]


def refuses(connection: Connection, head: bytes) -> None:
    """Check that the answer is 426 without an Upgrade header, which would offer it
    after all; the connection goes on.
    """
    connection.send(head)
    seen = connection.head()
    connection.body(seen)
    assert (seen.status, seen.all("upgrade")) == (426, [])
    assert json.loads(seen.body)["error"]["code"] == "upgrade_required"


@pytest.mark.requirement("own:websocket-426")
@pytest.mark.parametrize("credential", [True, False])
def test_a_websocket_is_refused_at_the_base_url(wired: WiredPod, credential: bool) -> None:
    with wired.runner() as runner:
        rows = [*UPGRADE, *[f"authorization: Bearer {wired.pod.token('plain')}"] * credential]
        refuses(
            runner, "\r\n".join(["GET /v1/responses HTTP/1.1", "host: x", *rows, "", ""]).encode()
        )
        assert runner.ask(wired.head("GET /v1/models")).body == b"ok"


@pytest.mark.requirement("own:websocket-426")
def test_a_websocket_is_refused_by_the_forward_proxy_in_the_clear(wired: WiredPod) -> None:
    with Runner(wired.pod.proxy_port) as runner:
        refuses(runner, wired.head(f"GET {wired.wire.url}/v1/responses", *UPGRADE))
    assert wired.wire.seen == []


@pytest.mark.requirement("own:websocket-426")
def test_a_websocket_is_refused_by_the_forward_proxy_over_tls(wired: WiredPod) -> None:
    with tunnel(wired.pod, "api.openai.com", "http/1.1") as peer:
        refuses(Connection(peer), wired.head("GET /v1/responses", *UPGRADE))
    assert wired.wire.seen == []


@pytest.mark.requirement("own:websocket-426")
def test_a_websocket_over_http_2_is_refused_and_the_connection_goes_on(wired: WiredPod) -> None:
    own = [("authorization", f"Bearer {wired.pod.token('plain')}")]
    with FrameRunner(wired.pod) as runner:
        refused = runner.ask("CONNECT", "/v1/responses", [(":protocol", "websocket"), *own])
        assert refused.all(":status") == ["426"]
        assert runner.ask("GET", "/v1/models", own).body == b"ok"
    assert [seen.line for seen in wired.wire.seen] == ["GET /v1/models HTTP/1.1"]


@pytest.mark.requirement("egress:untouched")
def test_a_websocket_to_a_host_that_is_not_governed_is_opened(wired: WiredPod) -> None:
    def echo(connection: Connection, seen: Any) -> None:
        assert seen.all("upgrade") == ["WebSocket"]
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        connection.until_closed()

    elsewhere = Wire("localhost")
    elsewhere.answers.put(echo)
    with Runner(wired.pod.proxy_port) as runner:
        runner.send(wired.head(f"GET http://localhost:{elsewhere.port}/", *UPGRADE))
        assert runner.response(bodiless=True).status == 101
    elsewhere.close()


@pytest.mark.requirement("egress:untouched")
def test_large_bodies_of_a_host_that_is_not_governed_stream_through(wired: WiredPod) -> None:
    elsewhere = Wire("localhost")
    size = 100 << 20
    elsewhere.answers.put(
        lambda connection, _: connection.send(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)
        )
    )
    before = wired.pod.memory(anew=True)
    with Runner(wired.pod.proxy_port) as runner:
        runner.send(
            (
                f"PUT http://localhost:{elsewhere.port}/x HTTP/1.1\r\nhost: "
                f"x\r\ncontent-length: {size}\r\n\r\n"
            ).encode()
        )
        runner.send(bytes(size))
        assert runner.response().size == size
    assert elsewhere.seen[0].size == size
    assert wired.pod.memory() - before < 32 << 20
    elsewhere.close()


@pytest.mark.requirement("odd:protocols")
def test_a_runner_that_offers_http_3_over_tcp_is_answered_in_another_protocol(
    wired: WiredPod,
) -> None:
    with tunnel(wired.pod, "api.openai.com", "h3", "h2", "http/1.1") as peer:
        assert peer.selected_alpn_protocol() == "h2"
    with tunnel(wired.pod, "api.openai.com", "h3") as peer:
        assert peer.selected_alpn_protocol() is None
        refuses(Connection(peer), wired.head("GET /v1/responses", *UPGRADE))  # it is read as HTTP/1


@pytest.mark.requirement("odd:trailers")
@pytest.mark.parametrize("path", ["/v1/files", "/v1/chat/completions"])
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_trailers_of_a_chunked_request_are_dropped_and_the_connection_goes_on(
    wired: WiredPod, path: str, agent_id: str
) -> None:
    body = b'{"model":"gpt-test","messages":[]}'
    reply = json.dumps(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}]}
    ).encode()
    wired.wire.answers.put(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(reply) + reply)
    with wired.runner() as runner:
        head = wired.head(
            f"POST {path}", "transfer-encoding: chunked", "trailer: x-sum", agent_id=agent_id
        )
        seen = runner.ask(
            head, b"%x\r\n%s\r\n0\r\nx-sum: 1\r\nx-other: 2\r\n\r\n" % (len(body), body)
        )
        assert seen.status == 200
        assert runner.ask(wired.head("GET /v1/models")).body == b"ok"
    assert wired.wire.seen[0].trailers == []


@pytest.mark.requirement("odd:trailers")
def test_trailers_of_a_providers_response_are_dropped_and_the_body_is_whole(
    wired: WiredPod,
) -> None:
    wired.wire.answers.put(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n"
    )
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models"))
        assert (seen.body, seen.trailers) == (b"abc", [])
        assert runner.ask(wired.head("GET /v1/models")).body == b"ok"


@pytest.mark.requirement("odd:trailers")
def test_trailers_over_http_2_are_dropped(wired: WiredPod) -> None:
    with FrameRunner(wired.pod) as runner:
        stream = runner.send(
            "POST", "/v1/files", [("x-api-key", wired.pod.token("plain"))], [b"abc"], end=False
        )
        runner.h2.send_headers(1, [("x-sum", "1")], end_stream=True)
        runner.flush()
        runner.read_until(lambda: stream.ended)
    assert stream.body == b"ok"
    assert wired.wire.seen[0].body == b"abc"


CHUNKED = "POST /v1/files", "transfer-encoding: chunked"
CHAT = "POST /v1/chat/completions", "transfer-encoding: chunked"
LINE = b"a" * (1 << 20)
ENDLESS: dict[str, tuple[tuple[str, ...], bytes, bytes]] = {
    "a head": (("GET /v1/models",), b"", LINE),
    "a chunk's head": (CHAT, b"1;", LINE),
    "trailers": (CHUNKED, b"0\r\nx: ", LINE),
    "no chunk at all": (CHUNKED, b"zz\r\n", LINE),
    "no chunk at all, and not at once": (CHAT, b"zz", b"1\r\n" + LINE),
}


def flood(runner: Runner, block: bytes) -> None:
    while True:
        runner.send(block)


@pytest.mark.requirement("odd:endless")
@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_comes_to_an_end_is_closed_and_not_kept(wired: WiredPod, name: str) -> None:
    before = wired.pod.memory(anew=True)
    head, beginning, block = ENDLESS[name]
    with wired.runner() as runner:
        runner.send(wired.head(*head)[: None if beginning else -2] + beginning)
        with pytest.raises(OSError):  # noqa: PT011 - reset or broken pipe, as it happens
            flood(runner, block)
    assert wired.pod.memory() - before < 32 << 20
    assert httpx2.get(f"{wired.pod.url}/health").status_code == 200


@pytest.mark.requirement("odd:heads")
@pytest.mark.parametrize(
    "row",
    [
        "x-a: b\r\n c",
        "x-a: b\r\n\tx-api-key: 1",
        "x-a: b\rc",
        "x-a: b\x00c",
        "transfer-encoding: gzip, chunked",
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/health"])
def test_a_head_that_peers_might_read_in_different_ways_is_refused(
    wired: WiredPod, path: str, row: str
) -> None:
    with wired.runner() as runner:
        runner.send(wired.head(f"POST {path}", row))
        seen = runner.response()
    assert (seen.status, json.loads(seen.body)["error"]["code"]) == (400, "malformed_request")
    assert wired.wire.seen == []


@pytest.mark.requirement("odd:heads")
@pytest.mark.parametrize(
    "headers_and_path",
    [
        ("/v1/a b", []),
        ("/v1/a\r\nx: y", []),
        ("/v1/a", [("x-a", "b\r\nx: y")]),
        ("/v1/a", [("x-a", "b\x00")]),
    ],
)
def test_such_a_head_over_http_2_is_refused_too(
    wired: WiredPod, headers_and_path: tuple[str, list[tuple[str, str]]]
) -> None:
    path, rows = headers_and_path
    with FrameRunner(wired.pod) as runner:
        try:
            answer = runner.ask("GET", path, [("x-api-key", wired.pod.token("plain")), *rows])
        except ConnectionError:
            pass
        else:
            assert answer.all(":status") == ["400"]
    assert wired.wire.seen == []


@pytest.mark.requirement("entrance:any-spelling")
@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:7f00:1]",
    ],
)
def test_no_spelling_of_an_address_is_a_way_round(wired: WiredPod, host: str) -> None:
    with Runner(wired.pod.proxy_port) as runner:
        url = f"http://{host}:{wired.wire.port}/v1/models"
        refusal = runner.ask(f"GET {url} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert refusal.status == 401
        assert runner.ask(wired.head(f"GET {url}")).body == b"ok"
    assert len(wired.wire.seen) == 1
    assert wired.pod.token("plain") not in str(wired.wire.seen[0].headers)


@pytest.mark.requirement("entrance:any-spelling")
@pytest.mark.parametrize(
    "host", ["API.OpenAI.com", "api.openai.com.", "ａｐｉ.openai.com", "api。openai。com"]
)
def test_no_spelling_of_a_name_is_a_way_round(wired: WiredPod, host: str) -> None:
    with Runner(wired.pod.proxy_port) as runner:
        refusal = runner.ask(f"GET http://{host}/v1/models HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert refusal.status in {400, 401}  # mitmproxy itself refuses a name that is not ASCII
    with through(wired.pod, authority(wired.pod)) as client:
        answer = client.get("https://api.openai.com./v1/models", headers=headers(wired.pod))
    assert answer.text == "ok"


@pytest.mark.requirement("hostile:token-elsewhere")
def test_the_agents_credential_in_several_headers_goes_upstream_in_none(wired: WiredPod) -> None:
    token = wired.pod.token("plain")
    rows = [
        f"x-api-key: {token}",
        f"X-Api-Key: {token}",
        f"authorization: bearer {token}",
        f"api-key: {token}",
    ]
    rows += [
        f"cookie: a={token}",
        f"x-any: {token}",
        f"X-Any: {token.partition(':')[2]}",
        "x-any: kept not",
    ]
    with wired.runner() as runner:
        assert runner.ask(wired.head("GET /v1/models", *rows)).body == b"ok"
    (seen,) = wired.wire.seen
    assert token.partition(":")[2] not in str(seen.headers)
    assert len(seen.all("authorization")) == 1


@pytest.mark.requirement("start:hangup")
def test_a_hangup_does_not_end_the_proxy_and_what_it_reads_it_reads_anew(running: Pod) -> None:
    running.provider.says(text("Hi."), text("Still there."))
    running.client().chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "Go"}]
    )
    assert running.process is not None
    running.process.send_signal(signal.SIGHUP)
    running.agent("second", running.tool("balance"))
    answer = running.client("second").chat.completions.create(
        model="gpt-test", messages=[{"role": "user", "content": "Go"}]
    )
    assert answer.choices[0].message.content == "Still there."


@pytest.mark.requirement("own:health-ready")
def test_a_proxy_that_is_not_ready_says_so_and_the_log_says_why(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    (pod.home / "context" / "analyst" / "metadata.json").write_text("{", encoding="utf-8")
    for _ in range(2):
        answer = httpx2.get(f"{pod.url}/ready")
        assert (answer.status_code, answer.json()) == (503, {"ready": False})
    assert httpx2.get(f"{pod.url}/health").status_code == 200
    reasons = [event["reason"] for event in pod.log() if event.get("error") == "not_ready"]
    assert reasons == ["no agent's context can be read"]
    pod.agent("analyst", pod.tool("balance"))
    assert httpx2.get(f"{pod.url}/ready").json() == {"ready": True}
