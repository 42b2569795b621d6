"""Forwarded requests of every kind, to a provider scripted in bytes.

Only the credential changes.
"""

from __future__ import annotations

import gzip
import json

import brotli  # type: ignore[import-untyped]
import httpx2
import pytest

from tests.proxy.conftest import ANTHROPIC_KEY, WiredPod
from tests.proxy.pod import PROVIDER_KEY, headers


def answer(status: str, *rows: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *rows, "", ""]).encode() + body


@pytest.mark.requirement("forward:every-method")
@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("GET /v1/models", b""),
        ("GET /v1/models/gpt-4o%2Fmini?limit=2&after=a%20b&after=c&empty=", b""),
        ("HEAD /v1/models", b""),
        ("POST /v1/embeddings", b'{"model":"e","input":"x"}'),
        ("POST /v1/audio/transcriptions", b"\x00\xff" * 100),
        ("POST /v1/moderations", b'{"input":"x"}'),
        ("POST /v1/traces/ingest", b"[]"),
        ("POST /v1/files", b""),
    ],
)
def test_every_known_method_and_path_goes_through_with_the_credential_swapped(
    wired: WiredPod, line: str, body: bytes
) -> None:
    with wired.runner() as runner:
        rows = [f"content-length: {len(body)}"] * bool(body or line.startswith("POST"))
        runner.send(wired.head(line, *rows) + body)
        assert runner.response(bodiless=line.startswith("HEAD")).status == 200
    (seen,) = wired.wire.seen
    assert seen.line == f"{line} HTTP/1.1"
    assert (seen.body, seen.all("content-length")) == (
        body,
        [row.partition(": ")[2] for row in rows],
    )
    assert seen.all("authorization") == [f"Bearer {PROVIDER_KEY}"]


@pytest.mark.requirement("forward:every-method")
def test_count_tokens_of_an_agent_without_tools_goes_to_anthropic_in_its_scheme(
    wired: WiredPod,
) -> None:
    with wired.runner() as runner:
        body = b'{"model":"claude","messages":[]}'
        runner.ask(
            wired.head("POST /v1/messages/count_tokens?beta=true", "content-length: 32"), body
        )
    (seen,) = wired.wire.seen
    assert (seen.line, seen.body) == ("POST /v1/messages/count_tokens?beta=true HTTP/1.1", body)
    assert (seen.all("x-api-key"), seen.all("authorization")) == ([ANTHROPIC_KEY], [])


@pytest.mark.requirement("forward:every-method")
def test_files_are_uploaded_and_downloaded(wired: WiredPod) -> None:
    content = bytes(range(256)) * 300
    wired.wire.answers.put(
        answer(
            "200 OK",
            "content-type: application/json",
            "content-length: 15",
            body=b'{"id":"file-1"}',
        )
    )
    wired.wire.answers.put(
        answer(
            "200 OK",
            "content-type: application/octet-stream",
            f"content-length: {len(content)}",
            body=content,
        )
    )
    with httpx2.Client(
        base_url=wired.pod.url, headers={"x-api-key": wired.pod.token("plain")}
    ) as client:
        sent = client.post(
            "/v1/files", files={"file": ("a.bin", content)}, data={"purpose": "assistants"}
        )
        assert sent.json() == {"id": "file-1"}
        assert client.get("/v1/files/file-1/content").content == content
    upload, _ = wired.wire.seen
    assert upload.body == sent.request.read()
    assert upload.all("content-type") == [sent.request.headers["content-type"]]


@pytest.mark.requirement("forward:every-status")
@pytest.mark.parametrize(
    "response",
    [
        answer("204 No Content", "x-a: 1"),
        answer("304 Not Modified", 'etag: "x"', "content-length: 12"),
        answer("200 OK", "content-length: 0"),
        answer("404 Nothing Of That Name", "content-length: 0"),
        answer("302 Found", "location: /elsewhere", "content-length: 0"),
    ],
)
def test_responses_without_a_body_stay_as_they_are_and_count_as_whole(
    wired: WiredPod, response: bytes
) -> None:
    wired.wire.answers.put(response)
    said = len(wired.pod.log())
    with wired.runner() as runner:
        runner.send(wired.head("GET /v1/models"))
        seen = runner.response(bodiless=True)
        assert (
            f"{seen.line}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in seen.headers) + "\r\n"
            == response.decode()
        )
        assert runner.ask(wired.head("GET /v1/models")).body == b"ok"  # the connection is in step
    kinds = [event["type"] for event in wired.ends(said, 2)]
    assert kinds == ["error" if seen.status == 404 else "response", "response"]


@pytest.mark.requirement("forward:every-status")
def test_repeated_headers_stay_repeated_and_in_order(wired: WiredPod) -> None:
    wired.wire.answers.put(
        answer("200 OK", "Set-Cookie: a=1", "X-B: 2", "set-cookie: b=2", "content-length: 0")
    )
    with wired.runner() as runner:
        seen = runner.ask(
            wired.head("GET /v1/models", "X-A: 1", "x-a: 2", "anthropic-beta: b, c", "X-A: 1")
        )
    assert seen.headers[:3] == [("Set-Cookie", "a=1"), ("X-B", "2"), ("set-cookie", "b=2")]
    sent = [
        (name, value)
        for name, value in wired.wire.seen[0].headers
        if name.lower() in ("x-a", "anthropic-beta")
    ]
    assert sent == [("X-A", "1"), ("x-a", "2"), ("anthropic-beta", "b, c"), ("X-A", "1")]


@pytest.mark.requirement("forward:one-connection")
def test_what_concerns_the_runners_connection_goes_no_further(wired: WiredPod) -> None:
    rows = [
        "connection: close, authorization, x-a",
        "proxy-connection: keep-alive",
        "keep-alive: 5",
        "x-a: 1",
    ]
    with wired.runner() as runner:
        runner.send(wired.head("GET /v1/models", *rows))
        runner.response()
        assert runner.rest() == b""
    (seen,) = wired.wire.seen
    assert seen.all("connection") == [
        "close"
    ]  # if we passed on "authorization", a provider's front would drop our key
    assert (seen.all("x-a"), seen.all("proxy-connection"), seen.all("keep-alive")) == (
        ["1"],
        [],
        [],
    )
    assert seen.all("authorization") == [f"Bearer {PROVIDER_KEY}"]


@pytest.mark.requirement("forward:one-connection")
def test_an_upgrade_to_another_protocol_is_not_passed_on(wired: WiredPod) -> None:
    rows = [
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAMAAABkAAQCAAAAAAIAAAAA",
    ]
    with wired.runner() as runner:
        assert runner.ask(wired.head("GET /v1/models", *rows)).status == 200
    (seen,) = wired.wire.seen
    assert [seen.all(name) for name in ("connection", "upgrade", "http2-settings")] == [[], [], []]


@pytest.mark.requirement("forward:expect")
def test_a_runner_that_asks_leave_to_send_gets_it_where_it_is_admitted(wired: WiredPod) -> None:
    with wired.runner() as runner:
        runner.send(wired.head("POST /v1/files", "content-length: 3", "Expect: 100-continue"))
        assert runner.response(bodiless=True).line == "HTTP/1.1 100 Continue"
        assert runner.ask(b"abc").body == b"ok"
    (seen,) = wired.wire.seen
    assert (seen.body, seen.all("expect")) == (b"abc", [])


@pytest.mark.requirement("forward:expect")
def test_a_runner_that_asks_leave_to_send_may_be_refused_at_once(
    wired: WiredPod,
) -> None:
    with wired.runner() as runner:
        head = (
            b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\nexpect: "
            b"100-continue\r\n\r\n"
        )
        refusal = runner.ask(head)
    assert (refusal.status, refusal.all("connection")) == (401, ["close"])
    assert wired.wire.seen == []


@pytest.mark.requirement("own:head-root")
@pytest.mark.parametrize("credential", [True, False])
def test_head_of_the_root_is_answered(wired: WiredPod, credential: bool) -> None:
    with wired.runner() as runner:
        runner.send(wired.head("HEAD /") if credential else b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert runner.response(bodiless=True).status == 200
        assert runner.ask(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").body == b'{"ok": true}'
    assert wired.wire.seen == []


ECHO = json.dumps({"error": {"message": f"bad key {PROVIDER_KEY}", "n": 1.0}}).encode()


@pytest.mark.requirement("forward:errors-tell-no-key")
@pytest.mark.parametrize("packer", [None, "gzip", "br"])
@pytest.mark.parametrize("chunked", [False, True])
def test_an_error_that_says_our_key_back_is_passed_on_without_it(
    wired: WiredPod, packer: str | None, chunked: bool
) -> None:
    body = {None: ECHO, "gzip": gzip.compress(ECHO), "br": brotli.compress(ECHO)}[packer]
    rows = ["content-type: application/json", f"x-key: {PROVIDER_KEY}", "x-kept: 1"]
    rows += [f"content-encoding: {packer}"] * bool(packer)
    if chunked:
        framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        wired.wire.answers.put(answer("400 No", *rows, "transfer-encoding: chunked", body=framed))
    else:
        wired.wire.answers.put(answer("400 No", *rows, f"content-length: {len(body)}", body=body))
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models", "accept-encoding: gzip, br"))
    assert (seen.status, json.loads(seen.body)) == (
        400,
        {"error": {"message": "bad key ••••••", "n": 1.0}},
    )
    assert (seen.all("x-key"), seen.all("x-kept"), seen.all("content-encoding")) == ([], ["1"], [])


@pytest.mark.requirement("forward:errors-tell-no-key")
@pytest.mark.parametrize("packer", [None, "gzip"])
@pytest.mark.parametrize("size", [40, 3_000_000])
def test_an_error_that_says_nothing_of_it_is_not_touched(
    wired: WiredPod, packer: str | None, size: int
) -> None:
    body = b'{ "error" : "\\u0041' + b"x" * size + b'" }'
    body = gzip.compress(body) if packer else body
    rows = ["content-type: application/json", *[f"content-encoding: {packer}"] * bool(packer)]
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    wired.wire.answers.put(answer("422 Not So", *rows, "transfer-encoding: chunked", body=framed))
    with wired.runner() as runner:
        seen = runner.ask(wired.head("GET /v1/models"))
        assert (seen.line, seen.body) == ("HTTP/1.1 422 Not So", body)
        assert seen.all("content-encoding") == [packer] * bool(packer)


@pytest.mark.requirement("own:health-ready")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_health_and_ready_are_for_the_base_url_only(
    wired: WiredPod, method: str, path: str
) -> None:
    with wired.runner() as runner:
        runner.send(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert runner.response(bodiless=method == "HEAD").status == 200
    with httpx2.Client(proxy=f"http://127.0.0.1:{wired.pod.proxy_port}", trust_env=False) as client:
        assert client.request(method, wired.wire.url + path).status_code == 401
        assert (
            client.request(method, wired.wire.url + path, headers=headers(wired.pod)).status_code
            == 403
        )
    assert wired.wire.seen == []
