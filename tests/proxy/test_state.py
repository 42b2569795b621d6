"""The state of a real mitmdump: no secret is in its bytes, and an operator may
forget an agent while it runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.failures.planted import FORMS
from tests.fork_server import run_claw
from tests.peers import DelayedAnswer, calls, text
from tests.proxy.looking import in_file
from tests.proxy.pod import PROVIDER_KEY, ROOT, SECRET, TOOL_TOKEN, Pod, headers
from tests.proxy.test_context import FEED_TOKEN, MEMORY_TOKEN, informed
from tests.state.server import SharedState, shared_state
from tests.waiting import eventually
from tests.wires.openai import completion

PASSWORD = "state-password-planted-0007"
COOKIE = "cookie-planted-0008"
PLANTED = (PROVIDER_KEY, TOOL_TOKEN, f"{SECRET}-analyst", FEED_TOKEN, MEMORY_TOKEN)
FORM = {f"{secret}, {name}": form(secret) for secret in PLANTED for name, form in FORMS.items()}
ALL = " ".join(FORM.values())
"""All secrets in every form in which a peer may write them between the quotes of a JSON string."""
PLAIN = " ".join(form for name, form in FORM.items() if "escaped" not in name)
"""The same without escaped forms: in a text that is not JSON an escape means nothing."""
HARMLESS = "said-by-the-service"


@pytest.fixture(params=["file", "server"])
def shared(
    request: pytest.FixtureRequest, pod: Pod, tmp_path: Path
) -> Iterator[SharedState | None]:
    """Put the pod's state on a server and yield that, or yield None with its state in a file."""
    if request.param == "file":
        yield None
        return
    with shared_state(tmp_path / "server", PASSWORD) as server:
        pod.environment["CLAW_STATE"] = server.url
        yield server


@pytest.fixture
def trading(shared: SharedState | None, pod: Pod) -> Pod:  # noqa: ARG001 - it sets up the state before the pod starts
    """Return a running pod: ``analyst`` reads, writes, and has a feed and a memory;
    every peer writes all the secrets.
    """
    words = {"type": "object", "properties": {"words": {"type": "string"}}}
    pod.agent("analyst", pod.tool("balance", schema=words), pod.tool("trade", "POST", schema=words))
    informed(pod)
    echo = Response(
        f'{{"{HARMLESS}": "{ALL}"}}', media_type="application/json", headers={"x-echo": TOOL_TOKEN}
    )
    pod.service.routes["GET", "/balance"] = echo
    pod.service.routes["POST", "/trade"] = Response(
        f"failed: {PLAIN}", 500, media_type="text/plain"
    )
    pod.start()
    return pod


def ask(pod: Pod, *said: str, **more: Any) -> httpx2.Response:
    roles = cycle(("user", "assistant"))
    body = {
        "model": "gpt-test",
        "messages": [{"role": next(roles), "content": words} for words in said],
        **more,
    }
    shown = {"cookie": COOKIE, "session-id": pod.token(), "idempotency-key": pod.token()}
    sent = {**headers(pod, "analyst"), **shown}
    content = json.dumps(body).replace("@@", ALL)
    return httpx2.post(f"{pod.url}/v1/chat/completions", headers=sent, content=content, timeout=30)


def leaking(*made: tuple[str, str, Any], words: str = "") -> Response:
    """Return a model's reply with all secrets in its text and in its arguments,
    which are JSON within JSON.
    """
    document = completion(
        f"{words} @@", calls=[(name, tool, {**given, "words": "##"}) for name, tool, given in made]
    )
    return said(document, 200)


def said(document: Any, status: int) -> Response:
    body = json.dumps(document).replace("@@", ALL).replace("##", json.dumps(ALL)[1:-1])
    return Response(body, status, media_type="application/json")


def on_server(server: SharedState) -> bytes:
    """Return every value, and every command that ever wrote one, from the server's own log."""
    parts = [file.read_bytes() for file in server.home.rglob("*.aof")]
    with closing(redis.Redis.from_url(server.url, protocol=2)) as client:
        for key in client.scan_iter():
            kind = client.type(key)
            values = {
                b"hash": client.hgetall,
                b"zset": lambda key: client.zrange(key, 0, -1),
                b"string": client.get,
            }
            parts += [key, repr(values[kind](key)).encode(), client.dump(key) or b""]
    return b"\n".join(parts)


@pytest.mark.requirement("state:no-secrets")
def test_no_byte_of_the_state_holds_a_secret_after_failures_and_crashes(
    trading: Pod, shared: SharedState | None
) -> None:
    provider = trading.provider
    provider.says(
        leaking(("c1", "desk__balance", {}), ("c2", "desk__trade", {})), leaking(words="Done.")
    )
    first = ask(trading, "Go @@")
    assert first.status_code == 200
    provider.says(leaking(("c3", "desk__balance", {"n": 2})), text("More."))
    answer = first.json()["choices"][0]["message"]["content"]
    assert ask(trading, "Go @@", answer, f"On {PROVIDER_KEY}", stream=True).text.endswith(
        "data: [DONE]\n\n"
    )
    assert len(provider.received[2].json["messages"]) > 5, "the hidden rounds were kept"
    provider.says(leaking(("c4", "desk__trade", {})), said({"error": {"message": "@@"}}, 400))
    assert ask(trading, "Fail @@").status_code == 400

    async def dies(_request: Request) -> Response:
        trading.kill()
        return said({"error": "@@"}, 500)

    trading.service.routes["POST", "/trade"] = dies
    provider.says(leaking(("c5", "desk__trade", {})))
    with pytest.raises(httpx2.HTTPError):
        ask(trading, "Crash @@")
    held = on_server(shared) if shared else in_file(trading.home / "state.db")
    assert HARMLESS.encode() in held
    assert "••••••".encode() in held
    assert [what for what, form in FORM.items() if form.encode() in held] == []
    assert [secret for secret in (COOKIE, PASSWORD) if secret.encode() in held] == []


def claw(pod: Pod, *arguments: str) -> dict[str, Any]:
    """Run ``claw state`` beside the proxy, with the same state; return its JSON."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "CLAW_STATE": pod.env()["CLAW_STATE"],
    }
    done = run_claw(["state", *arguments, "--json"], pod.home, environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.requirement("state:forget", "state:inventory")
def test_an_agent_is_forgotten_under_a_proxy_that_runs_and_goes_on(
    pod: Pod, shared: SharedState | None
) -> None:
    pod.agent("analyst", pod.tool("balance"), pod.tool("trade", "POST"))
    pod.budget("analyst", max_requests=100, window="1h")
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    held = DelayedAnswer(JSONResponse({"order": 1}))
    pod.service.routes["POST", "/trade"] = held
    pod.start()
    sent = pod.provider.received

    def turn(answer: str, *said: str) -> list[str]:
        """Run a turn; return the roles of the messages in its first request to the model."""
        before = len(sent)
        pod.provider.says(calls((f"c{before}", "desk__balance", {})), text(answer))
        assert ask(pod, *said).json()["choices"][0]["message"]["content"] == answer
        return [message["role"] for message in sent[before].json["messages"]]

    assert turn("One.", "1") == ["user"]
    assert turn("Two.", "1", "One.", "2") == ["user", "assistant", "tool", "assistant", "user"]
    with ThreadPoolExecutor(1) as pool:
        pod.provider.says(calls(("t", "desk__trade", {})))
        trade = pool.submit(ask, pod, "Buy")
        assert held.asked.wait(30)
        (analyst,) = claw(pod)["agents"]
        assert (analyst["hidden_rounds"]["count"], analyst["turns"]["running"]) == (2, 1)
        forgotten = claw(pod, "forget", "analyst", "--yes")
        assert (forgotten["rounds"], forgotten["turns"], forgotten["running"]) == (2, 2, 1)
        assert turn("Two again.", "1", "One.", "2") == ["user", "assistant", "user"]
        pod.provider.says(text("Bought."))
        held.go.set()
        assert trade.result(30).json()["choices"][0]["message"]["content"] == "Bought."
    pod.kill()
    pod.start()
    assert turn("Three.", "1", "One.", "2", "Two again.", "3").count("tool") == 1, (
        "what was kept since then is there"
    )
    (analyst,) = claw(pod)["agents"]
    assert (analyst["hidden_rounds"]["count"], analyst["turns"]["running"]) == (3, 0)
    assert (analyst["spent"] is None) == (shared is not None)
    eventually(lambda: len(pod.history("analyst")) == 5, "every turn is in history")
    assert [line for line in pod.log() if line["type"] == "error"] == []
