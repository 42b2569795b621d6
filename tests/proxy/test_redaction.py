"""Redaction: an operator sees and saves no secret, and what is sent stays unchanged."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import calls, text
from tests.proxy.looking import SavingPod, peopled, saved, told
from tests.proxy.pod import PROVIDER_KEY, SECRET, TOOL_TOKEN, headers
from tests.waiting import eventually
from tests.web.mitmweb import Mitmweb

CHAT = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hi."}]}
WRONG = "wrong-secret-planted-0005"
OWN = "own-cookie-planted-0006"


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SavingPod]:
    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        har = f"hardump={pod.home / 'all.har'}"
        pod.start(
            "-w", str(pod.home / "flows"), "--set", "store_streamed_bodies=true", "--set", har
        )
        yield SavingPod(pod)
        pod.stop()
        clear((pod.home / "all.har").read_bytes())
        clear((pod.home / "flows").read_bytes())


def hidden(looked_at: SavingPod, path: str) -> Any:
    """Return the flow with this path once it is saved; no secret may be in it, nor
    behind an encoding.
    """
    found = eventually(
        lambda: [flow for flow in looked_at.flows() if path in flow.request.path], "it is saved"
    )[-1]
    bodies = [
        message.get_content(strict=False) or b""
        for message in (found.request, found.response)
        if message
    ]
    clear(b"".join([repr(found.get_state()).encode(), *bodies]))
    return found


def clear(planted: bytes) -> None:
    assert told(planted) == []
    assert WRONG.encode() not in planted
    assert OWN.encode() not in planted


@pytest.mark.requirement("redaction:forwarded")
def test_a_key_is_only_on_the_wire_and_a_good_answer_is_unchanged(
    looked_at: SavingPod,
) -> None:
    pod = looked_at.pod
    echo = {"x-echo": PROVIDER_KEY, "set-cookie": f"session={OWN}"}
    pod.provider.says(JSONResponse({"data": PROVIDER_KEY}, headers=echo))
    answer = httpx2.get(f"{pod.url}/v1/models?one", headers=headers(pod))
    assert pod.provider.received[-1].headers["authorization"] == f"Bearer {PROVIDER_KEY}"
    assert (answer.json(), answer.headers["x-echo"]) == ({"data": PROVIDER_KEY}, PROVIDER_KEY)
    assert answer.headers["set-cookie"] == f"session={OWN}"
    flow = hidden(looked_at, "/v1/models?one")
    assert (flow.request.pretty_url, flow.response.status_code) == (
        f"{pod.provider.url}/v1/models?one",
        200,
    )


@pytest.mark.requirement("redaction:forwarded")
@pytest.mark.parametrize("agent_id", ["plain", "analyst"])
def test_a_body_is_kept_without_secrets(looked_at: SavingPod, agent_id: str) -> None:
    pod = looked_at.pod
    pod.provider.says(
        JSONResponse(
            {"error": {"message": f"not with {PROVIDER_KEY}"}}, 400, {"x-echo": PROVIDER_KEY}
        )
    )
    words = f"env says {pod.token(agent_id)} and {PROVIDER_KEY}"
    body = {**CHAT, "messages": [{"role": "user", "content": words}]}
    answer = httpx2.post(
        f"{pod.url}/v1/chat/completions?{agent_id}", json=body, headers=headers(pod, agent_id)
    )
    assert answer.status_code == 400
    assert told(answer.content + str(answer.headers).encode()) == []
    flow = hidden(looked_at, f"?{agent_id}")
    assert "env says" in flow.request.get_text()


@pytest.mark.requirement("redaction:forwarded")
def test_a_packed_body_is_sent_unpacked_and_kept_without_secrets(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    packed = gzip.compress(json.dumps({**CHAT, "user": PROVIDER_KEY}).encode())
    pod.provider.says(text("Hi."))
    sent = {**headers(pod), "content-encoding": "gzip"}
    assert (
        httpx2.post(
            f"{pod.url}/v1/chat/completions?packed", content=packed, headers=sent
        ).status_code
        == 200
    )
    assert PROVIDER_KEY in pod.provider.received[-1].body.decode()
    assert b"Hi." in hidden(looked_at, "?packed").request.get_content(strict=False)


@pytest.mark.requirement("redaction:forwarded")
def test_a_stream_that_is_kept_all_the_same_is_kept_without_secrets(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    pod.provider.says(JSONResponse({"file": PROVIDER_KEY}))
    answer = httpx2.post(
        f"{pod.url}/v1/files", content=f"a file with {PROVIDER_KEY}", headers=headers(pod)
    )
    assert pod.provider.received[-1].body == f"a file with {PROVIDER_KEY}".encode()
    assert answer.json() == {"file": PROVIDER_KEY}
    flow = hidden(looked_at, "/v1/files")
    assert flow.request.get_text().startswith("a file with ")
    assert set(flow.response.json()) == {"file"}


@pytest.mark.requirement("redaction:refused")
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("where", ["bearer", "key", "both", "odd", "cookie", "url", "packed"])
def test_whoever_is_refused_has_shown_its_credential_to_nobody(
    looked_at: SavingPod, where: str, wrong: bool
) -> None:
    pod = looked_at.pod
    token = f"analyst:{WRONG}" if wrong else pod.token()
    path = f"/v1/chat/completions?refused={where}{wrong}"
    shown = {"authorization": f"Bearer analyst:{WRONG}"}
    match where:
        case "bearer":
            shown = {"authorization": f"Bearer {token}x"}
        case "key":
            shown = {"x-api-key": token + "x"}
        case "both":
            shown["x-api-key"] = token
        case "odd":
            shown |= {
                "x-my-own": f"it is {WRONG if wrong else token}",
                "x-" + token.partition(":")[2]: "1",
            }
        case "cookie":
            shown["cookie"] = f"token={token}; other={OWN}"
        case "url":
            path += f"&key={WRONG if wrong else token}"
        case "packed":
            shown["x-my-own"] = base64.b64encode((WRONG if wrong else token).encode()).decode()
    before = len(pod.provider.received)
    httpx2.post(pod.url + path, json=CHAT, headers=shown)
    assert len(pod.provider.received) == before
    hidden(looked_at, f"refused={where}{wrong}")


@pytest.mark.requirement("redaction:beyond")
def test_what_is_not_governed_is_sent_as_it_came_and_kept_without_credentials(
    looked_at: SavingPod,
) -> None:
    pod = looked_at.pod
    pod.service.routes["GET", "/page"] = JSONResponse({}, headers={"set-cookie": f"session={OWN}"})
    own = {
        "authorization": f"Basic {OWN}",
        "cookie": f"a={OWN}; b={pod.token()}",
        "x-my-own": pod.token(),
    }
    with httpx2.Client(proxy=f"http://127.0.0.1:{pod.proxy_port}", trust_env=False) as client:
        answer = client.get(
            f"http://localhost:{pod.service.port}/page?token={pod.token()}", headers=own
        )
    came = pod.service.received[-1]
    assert {name: came.headers[name] for name in own} == own
    assert came.path == f"/page?token={pod.token()}"
    assert answer.headers["set-cookie"] == f"session={OWN}"
    hidden(looked_at, "/page")


@pytest.mark.requirement("redaction:beyond")
@pytest.mark.parametrize("line", ["GET http://{}.invalid/name", "{} http://localhost/name"])
def test_a_request_with_a_secret_in_its_host_or_method_reaches_nobody(
    looked_at: SavingPod, line: str
) -> None:
    pod = looked_at.pod
    head = f"{line.format(pod.token().partition(':')[2])}?{line[0]} HTTP/1.1\r\nhost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", pod.proxy_port)) as runner:
        runner.sendall(head.encode())
        assert runner.recv(4096).startswith(b"HTTP/1.1 400 ")
    hidden(looked_at, f"/name?{line[0]}")


@pytest.mark.requirement("redaction:beyond")
def test_a_tunnel_shows_no_credential(looked_at: SavingPod) -> None:
    pod = looked_at.pod
    basic = base64.b64encode(f"analyst:{SECRET}".encode()).decode()
    head = (
        "CONNECT nobody.invalid:443 HTTP/1.1\r\nhost: "
        f"nobody.invalid:443\r\nproxy-authorization: Basic {basic}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", pod.proxy_port)) as runner:
        runner.sendall(head.encode())
        assert runner.recv(4096).startswith(b"HTTP/1.1 ")
    httpx2.get(f"{pod.url}/health?tunnel")
    hidden(looked_at, "/health?tunnel")
    assert basic not in pod.said()


@pytest.mark.requirement("redaction:killed")
def test_the_file_of_a_killed_proxy_can_be_read_and_holds_no_secret(
    tmp_path_factory: Any,
) -> None:
    asked, over = threading.Event(), threading.Event()

    async def never(_request: Request) -> Response:
        asked.set()
        over.wait(30)
        return Response()

    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        pod.start("-w", str(pod.home / "flows"))
        pod.service.routes["GET", "/balance"] = never
        pod.provider.says(calls(("c1", "desk__balance", {})))
        with (
            httpx2.Client() as client,
            client.stream(
                "POST",
                f"{pod.url}/v1/chat/completions",
                json={**CHAT, "stream": True},
                headers=headers(pod, "analyst"),
            ),
        ):
            assert asked.wait(30)
            found = saved(pod, 2)
            pod.kill()
        over.set()
        assert [
            flow.metadata["claw.round"] for flow in found.flows() if "claw.kind" in flow.metadata
        ] == [1]
        assert told(found.file.read_bytes()) == []


@pytest.mark.requirement("redaction:mitmweb", "redaction:reports")
def test_mitmweb_tells_no_secret_in_flows_bodies_or_events(tmp_path_factory: Any) -> None:
    with peopled(tmp_path_factory.mktemp("pod")) as pod:
        web = Mitmweb()
        web.start(pod)
        pod.service.routes["GET", "/balance"] = JSONResponse(
            {"token": TOOL_TOKEN, "key": PROVIDER_KEY}
        )
        pod.provider.says(
            calls(("c1", "desk__balance", {})), text(f"It is {PROVIDER_KEY}."), text(PROVIDER_KEY)
        )
        httpx2.post(f"{pod.url}/v1/chat/completions", json=CHAT, headers=headers(pod, "analyst"))
        httpx2.post(f"{pod.url}/v1/chat/completions", json=CHAT, headers=headers(pod))
        for line in (
            f"authorization Bearer {pod.token()}",
            f"authorization: Bearer {pod.token()}\r\n {pod.token()}",
        ):
            with socket.create_connection(("127.0.0.1", pod.port)) as runner:
                runner.sendall(
                    f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{line}\r\n\r\n".encode()
                )
                runner.recv(4096)
        eventually(lambda: len(web.commented("claw ")) >= 5, "all is shown")
        assert told(web.everything()) == []
        assert told(pod.said().encode()) == []
        with socket.create_connection(("127.0.0.1", pod.port)) as runner:
            runner.sendall(
                b"GET / HTTP/1.1\r\nhost: x\r\nunreadable " + b"x" * 500_000 + b"\r\n\r\n"
            )
            runner.recv(4096)
        eventually(lambda: b"unreadable" in web.everything(), "what can't be read is reported")
        assert b"x" * 10_000 not in web.everything()
