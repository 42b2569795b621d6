"""Redaction, with a provider scripted in bytes.

Errors, the edits of a script, and options that are set meanwhile.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peers import Provider, Service
from tests.proxy.conftest import WiredPod
from tests.proxy.looking import SavingPod, told
from tests.proxy.pod import PROVIDER_KEY, TOOL_TOKEN, Pod
from tests.proxy.wire import Connection, Runner, Wire, WireMessage
from tests.waiting import eventually, free_port

_SCRIPT = """
import asyncio, pathlib
from mitmproxy import ctx

class Edits:
    def requestheaders(self, flow):
        if "query" in flow.request.path:
            flow.request.query["added"] = "1"

    def request(self, flow):
        if "body" in flow.request.path:
            flow.request.text = flow.request.text.replace("Hi.", "Hello, and more.")

    def response(self, flow):
        if "cookie" in flow.request.path:
            flow.response.headers.set_all("set-cookie", flow.response.headers.get_all("set-cookie")[1:])

    def responseheaders(self, flow):
        if "late" in flow.request.path:
            ctx.options.update(save_stream_file=flow.request.query["late"])

addons = [Edits()]
"""
_ERROR = json.dumps({"error": {"message": f"not with {PROVIDER_KEY}"}}).encode()


def answer(status: str, *rows: str, body: bytes = b"") -> bytes:
    return (
        "\r\n".join([f"HTTP/1.1 {status}", *rows, f"content-length: {len(body)}", "", ""]).encode()
        + body
    )


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredPod]:
    home = tmp_path_factory.mktemp("pod")
    (home / "edits.py").write_text(_SCRIPT, encoding="utf-8")
    wire, pod = Wire(), Pod(home, Provider(), Service(port=free_port()))
    pod.environment |= {"OPENAI_BASE_URL": f"{wire.url}/v1", "ANTHROPIC_BASE_URL": f"{wire.url}/v1"}
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    har = f"hardump={home / 'all.har'}"
    pod.start(
        "-s",
        str(home / "edits.py"),
        "-w",
        str(home / "flows"),
        "--set",
        "flow_detail=3",
        "--set",
        har,
    )
    yield WiredPod(pod, wire)
    pod.stop()
    wire.close()
    assert told((home / "flows").read_bytes()) == []
    assert told((home / "all.har").read_bytes()) == []
    assert told(pod.said().encode()) == []


def asked(looked_at: WiredPod, request: bytes, response: bytes) -> WireMessage:
    looked_at.wire.forget()
    looked_at.wire.answers.put(response)
    with looked_at.runner() as runner:
        return runner.ask(request)


def flow(looked_at: WiredPod, path: str) -> Any:
    saved = SavingPod(looked_at.pod)
    return eventually(
        lambda: [flow for flow in saved.flows() if path in flow.request.path], "it is saved"
    )[-1]


@pytest.mark.requirement("redaction:errors")
@pytest.mark.parametrize(
    ("coding", "body", "readable"),
    [
        ("utf-8", _ERROR, True),
        ("gzip", gzip.compress(_ERROR), True),
        ("gzip", gzip.compress(_ERROR)[:-1], False),
        ("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(_ERROR))), False),
        ("utf-8, gzip", gzip.compress(_ERROR), False),
    ],
    ids=["no-coding", "packed", "cut", "thrice", "both"],
)
def test_an_error_tells_no_key_whatever_it_is_packed_in(
    looked_at: WiredPod, coding: str, body: bytes, readable: bool
) -> None:
    said = answer(
        "422 Odd", f"content-encoding: {coding}", "content-type: application/json", body=body
    )
    got = asked(looked_at, looked_at.head("GET /v1/models?packed"), said)
    error = json.loads(got.body)["error"]
    assert got.status == 422
    assert (
        error["message"] == "not with ••••••" if readable else error["code"] == "unreadable_error"
    )
    assert flow(looked_at, "?packed").response.status_code == 422


@pytest.mark.requirement("redaction:errors")
def test_an_error_without_a_body_gets_none_whatever_its_head_says(looked_at: WiredPod) -> None:
    looked_at.wire.forget()
    looked_at.wire.answers.put(
        b"HTTP/1.1 422 Odd\r\ncontent-encoding: gzip, gzip, gzip\r\ncontent-length: 99\r\n\r\n"
    )
    with looked_at.runner() as runner:
        runner.send(looked_at.head("HEAD /v1/models"))
        assert runner.response(bodiless=True).all("content-length") == ["99"]
        assert runner.ask(looked_at.head("GET /v1/models")).body == b"ok"


@pytest.mark.requirement("redaction:errors")
def test_an_error_tells_no_key_in_its_reason_header_names_or_cookies(
    looked_at: WiredPod,
) -> None:
    rows = (
        f"x-{PROVIDER_KEY}: 1",
        f"set-cookie: a={PROVIDER_KEY}",
        "set-cookie: session=good",
        "x-good: 1",
    )
    said = answer(f"400 bad key {PROVIDER_KEY}", *rows, body=b"{}")
    got = asked(looked_at, looked_at.head("GET /v1/models?reason"), said)
    assert got.line == "HTTP/1.1 400 Bad Request"
    assert got.headers == [("set-cookie", "session=good"), ("x-good", "1"), ("content-length", "2")]
    assert flow(looked_at, "?reason").response.reason == "Bad Request"


@pytest.mark.requirement("redaction:forwarded")
def test_what_a_forwarded_request_holds_of_others_is_sent_and_not_shown(
    looked_at: WiredPod,
) -> None:
    other = looked_at.pod.token("analyst").partition(":")[2]
    line = f"GET /v1/models?others&k={other}"
    said = answer(f"200 {other}", f"x-echo: {TOOL_TOKEN}", body=b"{}")
    got = asked(looked_at, looked_at.head(line, f"x-odd: {other}", f"x-tool: {TOOL_TOKEN}"), said)
    assert (got.line, got.all("x-echo")) == (f"HTTP/1.1 200 {other}", [TOOL_TOKEN])
    (seen,) = looked_at.wire.seen
    assert (seen.line, seen.all("x-odd"), seen.all("x-tool")) == (
        f"{line} HTTP/1.1",
        [other],
        [TOOL_TOKEN],
    )
    shown = flow(looked_at, "?others")
    assert (shown.request.path, shown.request.headers["x-odd"]) == (
        "/v1/models?others&k=••••••",
        "••••••",
    )


@pytest.mark.requirement("redaction:edits")
def test_a_body_that_a_script_edits_is_sent_and_framed_as_edited(
    looked_at: WiredPod,
) -> None:
    body = json.dumps(
        {
            "model": "gpt-test",
            "user": PROVIDER_KEY,
            "messages": [{"role": "user", "content": "Hi."}],
        }
    )
    head = looked_at.head("POST /v1/chat/completions?body", f"content-length: {len(body)}")
    assert asked(looked_at, head + body.encode(), answer("200 OK", body=b"{}")).status == 200
    (seen,) = looked_at.wire.seen
    assert json.loads(seen.body)["messages"] == [{"role": "user", "content": "Hello, and more."}]
    assert seen.all("content-length") == [str(len(seen.body))]


@pytest.mark.requirement("redaction:edits")
def test_a_target_that_a_script_puts_together_from_dots_is_asked_of_nobody(
    looked_at: WiredPod,
) -> None:
    other = looked_at.pod.token("analyst")
    line = f"GET http://localhost:{looked_at.wire.port}/query?t={other}"
    looked_at.wire.forget()
    with Runner(looked_at.pod.proxy_port) as runner:
        got = runner.ask(f"{line} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert got.status == 400
    assert looked_at.wire.seen == []


@pytest.mark.requirement("redaction:edits")
def test_of_two_cookies_a_script_takes_the_first_one_away(looked_at: WiredPod) -> None:
    said = answer("400 Bad Request", "set-cookie: first=1", "set-cookie: second=2", body=b"{}")
    assert asked(looked_at, looked_at.head("GET /v1/models?cookie"), said).all("set-cookie") == [
        "second=2"
    ]


@pytest.mark.requirement("redaction:beyond")
def test_messages_of_a_websocket_are_shown_without_secrets_and_sent_as_they_are(
    looked_at: WiredPod,
) -> None:
    own, came = looked_at.pod.token("analyst").encode(), threading.Event()
    heard: list[bytes] = []

    def answers(connection: Connection, _seen: WireMessage) -> None:
        rows = (
            "upgrade: websocket",
            "connection: Upgrade",
            "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        )
        connection.send("\r\n".join(["HTTP/1.1 101 Switching Protocols", *rows, "", ""]).encode())
        heard.append(connection.peer.recv(4096))
        connection.send(bytes([0x81, len(PROVIDER_KEY)]) + PROVIDER_KEY.encode())
        came.set()
        connection.until_closed()

    looked_at.wire.forget()
    looked_at.wire.answers.put(answers)
    with Runner(looked_at.pod.proxy_port) as runner:
        rows = ("upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13")
        key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
        line = f"GET http://localhost:{looked_at.wire.port}/socket HTTP/1.1"
        runner.send(
            "\r\n".join(
                [line, f"host: localhost:{looked_at.wire.port}", *rows, key, "", ""]
            ).encode()
        )
        assert runner.head().status == 101
        runner.send(bytes([0x81, 0x80 | len(own)]) + bytes(4) + own)
        assert came.wait(30)
        assert PROVIDER_KEY.encode() in runner.peer.recv(4096)
    masked = heard[0]
    assert bytes(each ^ masked[2 + place % 4] for place, each in enumerate(masked[6:])) == own
    eventually(
        lambda: "WebSocket" in looked_at.pod.stderr.read_text(encoding="utf-8"), "it is dumped"
    )


@pytest.mark.requirement("redaction:forwarded")
def test_an_agent_whose_files_break_is_not_forgotten(looked_at: WiredPod) -> None:
    token, file = (
        looked_at.pod.token("analyst"),
        looked_at.pod.home / "context" / "analyst" / "metadata.json",
    )
    asked(looked_at, looked_at.head("GET /v1/models"), answer("200 OK"))
    sound = file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    asked(looked_at, looked_at.head("GET /v1/models?broken", f"x-odd: {token}"), answer("200 OK"))
    assert flow(looked_at, "?broken").request.headers["x-odd"] == "••••••"
    file.write_text(sound, encoding="utf-8")


@pytest.mark.requirement("redaction:beyond")
@pytest.mark.parametrize("path", ["/v1/files", "/v1/chat/completions"])
def test_a_method_that_is_a_secret_is_refused_at_the_base_url_too(
    looked_at: WiredPod, path: str
) -> None:
    looked_at.wire.forget()
    method = looked_at.pod.token("analyst").partition(":")[2]
    with looked_at.runner() as runner:
        assert (
            runner.ask(looked_at.head(f"{method} {path}", "content-length: 2"), b"{}").status == 400
        )
    assert looked_at.wire.seen == []


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredPod]:
    """Yield a pod whose flows nobody sees, with no way to ungoverned hosts."""
    home = tmp_path_factory.mktemp("pod")
    (home / "edits.py").write_text(_SCRIPT, encoding="utf-8")
    wire, pod = Wire(), Pod(home, Provider(), Service(port=free_port()))
    addresses = {"OPENAI_BASE_URL": f"{wire.url}/v1", "ANTHROPIC_BASE_URL": f"{wire.url}/v1"}
    pod.environment |= {**addresses, "CLLAMA_EGRESS": "deny"}
    pod.agent("plain")
    pod.start("-s", str(home / "edits.py"))
    yield WiredPod(pod, wire)
    pod.stop()
    wire.close()


@pytest.mark.requirement("redaction:beyond")
def test_the_name_that_a_handshake_asks_for_is_told_without_secrets(unseen: WiredPod) -> None:
    secret = unseen.pod.token("plain").partition(":")[2]
    context = ssl._create_unverified_context()
    with Runner(unseen.pod.proxy_port) as runner, pytest.raises(OSError):  # noqa: PT011 - the connection is closed
        context.wrap_socket(runner.peer, server_hostname=f"{secret}.invalid").close()
    said = eventually(
        lambda: [each for each in unseen.pod.said().splitlines() if "TLS of" in each], "it is told"
    )
    assert "'••••••.invalid'" in said[0]


@pytest.mark.requirement("redaction:forwarded")
def test_whoever_begins_to_look_on_in_the_middle_sees_no_secret_either(unseen: WiredPod) -> None:
    file = unseen.pod.home / "flows"
    said = answer("200 OK", f"x-echo: {PROVIDER_KEY}", body=b"ok")
    got = asked(unseen, unseen.head(f"GET /v1/models?late={file}", f"x-odd: {PROVIDER_KEY}"), said)
    assert (got.all("x-echo"), unseen.wire.seen[0].all("x-odd")) == ([PROVIDER_KEY], [PROVIDER_KEY])
    shown = flow(unseen, "late")
    assert (shown.request.headers["x-odd"], shown.response.headers["x-echo"]) == (
        "••••••",
        "••••••",
    )
    assert told(file.read_bytes()) == []
