"""Changes while a request is under way: its agent's token is revoked, or a key is rotated."""

from __future__ import annotations

import json
import socket
import threading

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from tests.peers import DelayedAnswer, text
from tests.proxy.pod import PROVIDER_KEY, Pod, headers

BODY = json.dumps({"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}).encode()
NEW_KEY = "sk-rotated-key-planted-0099"


@pytest.mark.requirement("proxy:late-body")
@pytest.mark.parametrize("tools", [[], ["balance"]], ids=["forwarded", "mediated"])
def test_a_body_that_comes_after_its_token_was_revoked_is_refused(
    running: Pod, tools: list[str]
) -> None:
    running.provider.says(text("Never."))
    old = running.agent("late", *map(running.tool, tools))
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {old}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as connection:
        connection.sendall(head + BODY[:5])
        assert httpx2.get(f"{running.url}/health").status_code == 200  # The head was read before
        metadata = running.home / "context" / "late" / "metadata.json"
        document = json.loads(metadata.read_text(encoding="utf-8"))
        running.put("late", "metadata.json", {**document, "token": "late:another-token"})
        connection.sendall(BODY[5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 403")
    assert running.provider.received == []


@pytest.mark.requirement("redaction:rotated-key")
@pytest.mark.parametrize("tools", [[], ["balance"]], ids=["forwarded", "mediated"])
def test_a_key_that_came_while_a_feed_was_read_is_shown_nowhere(pod: Pod, tools: list[str]) -> None:
    def write_key(secret: str) -> None:
        keys = [{"id": secret[-4:], "secret": secret}]
        document = {"version": 2, "providers": {"openai": {"keys": keys}}}
        staged = pod.home / "auth" / "staged"
        staged.write_text(json.dumps(document), encoding="utf-8")
        staged.rename(staged.with_name("providers.json"))

    async def refuse(request: Request) -> JSONResponse:
        message = f"Incorrect API key provided: {request.headers['authorization']}"
        error = {"message": message, "type": "invalid_request_error", "code": "invalid_api_key"}
        return JSONResponse({"error": error}, 401)

    (pod.home / "auth").mkdir(exist_ok=True)
    write_key(PROVIDER_KEY)
    pod.agent("analyst", *map(pod.tool, tools))
    feed = {"name": "news", "source": "desk", "path": "/news", "ttl": 1}
    pod.put("analyst", "feeds.json", [{**feed, "url": f"{pod.service.url}/news"}])
    news = DelayedAnswer(PlainTextResponse("news"))
    pod.service.routes["GET", "/news"] = news
    pod.environment["CLLAMA_FEED_FETCH_TIMEOUT_MS"] = "60000"
    pod.provider.model = refuse
    pod.provider.verdict = JSONResponse({"data": []})
    pod.start()

    answers: list[httpx2.Response] = []

    def ask() -> None:
        url = f"{pod.url}/v1/chat/completions"
        answers.append(httpx2.post(url, content=BODY, headers=headers(pod, "analyst"), timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    assert news.asked.wait(30)
    write_key(NEW_KEY)
    news.go.set()
    asking.join(60)

    sent = {received.headers.get("authorization") for received in pod.provider.received}
    assert f"Bearer {NEW_KEY}" in sent
    shown = answers[0].text + json.dumps(pod.history("analyst")) + pod.said()
    assert [key for key in (PROVIDER_KEY, NEW_KEY) if key in shown] == []
