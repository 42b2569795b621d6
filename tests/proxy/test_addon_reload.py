"""Reloading the script while the proxy runs, as when its file changes: nothing is lost."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.mediate.telemetry.test_history import broken_links
from tests.peers import DelayedAnswer, JSONResponse, calls, text
from tests.proxy.pod import Pod, headers
from tests.proxy.test_lifecycle_draining import passing, request
from tests.waiting import eventually

HI = [{"role": "user", "content": "Go"}]
RELOADS = 10


def ask(
    pod: Pod, agent_id: str = "analyst", words: str = "Go", *, stream: bool = False
) -> httpx2.Response:
    body = {"model": "gpt-test", "messages": [{"role": "user", "content": words}], "stream": stream}
    return httpx2.post(
        f"{pod.url}/v1/chat/completions", json=body, headers=headers(pod, agent_id), timeout=60
    )


def content(answer: httpx2.Response) -> str:
    words: str = answer.json()["choices"][0]["message"]["content"]
    return words


def chain(pod: Pod, agent_id: str) -> list[bytes]:
    file = pod.home / "history" / agent_id / "history.jsonl"
    return file.read_bytes().splitlines(keepends=True)


def governed(pod: Pod) -> bool:
    return ask(pod, "nobody").status_code == 403


@pytest.mark.requirement("reload:turns-go-on")
@pytest.mark.requirement("reload:broken-and-repaired")
@pytest.mark.requirement("reload:nothing-forgotten")
def test_turns_and_streams_go_on_through_a_reload_a_broken_script_and_its_repair(
    pod: Pod,
) -> None:
    pod.environment["CLAW_STATE"] = ""  # in memory, where only the process could keep it
    source = pod.own_script().read_text(encoding="utf-8")
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("plain")
    pod.budget("plain", window="24h", max_requests=2)
    pod.start()
    held, go, begun = DelayedAnswer(JSONResponse({"usd": 1})), threading.Event(), threading.Event()
    pod.service.routes["GET", "/balance"] = held
    with ThreadPoolExecutor(4) as pool:
        pod.provider.says(
            passing(go, begun),
            calls(("c1", "desk__balance", {})),
            calls(("c2", "desk__balance", {})),
        )
        forwarded = pool.submit(ask, pod, "plain")
        assert begun.wait(30)
        whole = pool.submit(ask, pod)
        eventually(lambda: len(pod.service.received) == 1, "the first turn waits for its tool")
        streamed = pool.submit(ask, pod, words="Stream", stream=True)
        eventually(lambda: len(pod.service.received) == 2, "the second turn waits for its tool")
        pod.reload()
        again = pool.submit(ask, pod)
        eventually(
            lambda: [each for each in pod.log() if each["type"] == "join"],
            "an equal request joins the turn",
        )
        pod.write_script("this is not Python")
        eventually(lambda: ask(pod, "nobody").status_code == 503, "the guard answers")
        pod.provider.says(text("Done."), text("Done."))
        go.set()
        held.go.set()
        assert [content(each.result(60)) for each in (whole, again)] == ["Done.", "Done."]
        assert streamed.result(60).text.endswith("data: [DONE]\n\n")
        assert forwarded.result(60).text.endswith("data: [DONE]\n\n")
        assert ask(pod).status_code == 503
    pod.write_script(source)
    eventually(lambda: governed(pod), "the script is repaired")
    pod.provider.says(text("Still."), text("Passed."))
    more = [*HI, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Sure?"}]
    pod.client().chat.completions.create(model="gpt-test", messages=more)  # type: ignore[arg-type]
    roles = [entry["role"] for entry in pod.provider.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [ask(pod, "plain").status_code for _ in range(2)] == [200, 429]
    assert [len(pod.history(agent_id)) for agent_id in ("analyst", "plain")] == [3, 2]
    assert broken_links(chain(pod, "analyst")) == []


@pytest.mark.requirement("reload:new-settings")
def test_requests_from_before_new_settings_end_and_are_recorded_with_later_ones(
    pod: Pod,
) -> None:
    source = pod.own_script().read_text(encoding="utf-8")
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("plain")
    pod.budget("plain", window="24h", max_requests=2)
    pod.start()
    held, go, begun = DelayedAnswer(JSONResponse({"usd": 1})), threading.Event(), threading.Event()
    pod.service.routes["GET", "/balance"] = held
    with ThreadPoolExecutor(2) as pool:
        pod.provider.says(passing(go, begun), calls(("c1", "desk__balance", {})))
        forwarded = pool.submit(ask, pod, "plain")
        assert begun.wait(30)
        whole = pool.submit(ask, pod)
        assert held.asked.wait(30)
        pod.set_options(source, cllama_time_line="on")
        pod.provider.says(text("New."))
        assert content(ask(pod, words="New")) == "New."
        assert "Current time" in str(pod.provider.received[-1].json["messages"])
        pod.provider.says(text("Old."))
        go.set()
        held.go.set()
        assert content(whole.result(60)) == "Old."
        assert forwarded.result(60).text.endswith("data: [DONE]\n\n")
    pod.provider.says(text("Last."), text("Passed."))
    assert content(ask(pod, words="Last")) == "Last."
    assert [ask(pod, "plain").status_code for _ in range(2)] == [200, 429]
    assert [len(pod.history(agent_id)) for agent_id in ("analyst", "plain")] == [3, 2]
    assert broken_links(chain(pod, "analyst")) == []
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("reload:nothing-forgotten")
def test_new_settings_forget_nothing_and_a_retry_repeats_no_running_write(
    pod: Pod,
) -> None:
    pod.environment["CLAW_STATE"] = ""
    source = pod.own_script().read_text(encoding="utf-8")
    pod.agent("analyst", pod.tool("trade", "POST"))
    pod.agent("plain")
    pod.budget("plain", window="24h", max_requests=1)
    pod.start()
    held = DelayedAnswer(JSONResponse({"ok": 1}))
    pod.service.routes["POST", "/trade"] = held
    pod.provider.says(text("Passed."), calls(("c1", "desk__trade", {})))
    assert ask(pod, "plain").status_code == 200
    body = b'{"model":"gpt-test","messages":[{"role":"user","content":"Go"}],"stream":false}'
    with socket.create_connection(("127.0.0.1", pod.port)) as runner:
        runner.sendall(request(pod, "analyst", body, len(body)))
        assert held.asked.wait(30)
    with ThreadPoolExecutor(1) as pool:
        pod.set_options(source, cllama_time_line="on")
        again = pool.submit(ask, pod)
        assert ask(pod, "plain").status_code == 429
        pod.provider.says(text("Done."))
        held.go.set()
        assert content(again.result(60)) == "Done."
    pod.set_options(source, cllama_time_line="off")
    pod.provider.says(text("Still."))
    more = [*HI, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Sure?"}]
    pod.client().chat.completions.create(model="gpt-test", messages=more)  # type: ignore[arg-type]
    roles = [entry["role"] for entry in pod.provider.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert [received.path for received in pod.service.received] == ["/trade"]
    assert "Traceback" not in pod.said()


@pytest.mark.requirement("reload:ten-in-a-row")
def test_ten_reloads_in_a_row_under_traffic_cost_no_request(pod: Pod) -> None:
    pod.own_script()
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})

    async def answer(request: Any) -> JSONResponse:
        tools = any(message["role"] == "tool" for message in (await request.json())["messages"])
        return text("Done.") if tools else calls(("c1", "desk__balance", {}))

    pod.provider.says(*[answer] * 20_000)
    over = threading.Event()

    def traffic(runner: int) -> list[str]:
        said: list[str] = []
        while not over.wait(0.03):
            reply = ask(pod, words=f"{runner}.{len(said)}")
            said.append(content(reply) if reply.status_code == 200 else reply.text)
        return said

    with ThreadPoolExecutor(3) as pool:
        runners = [pool.submit(traffic, runner) for runner in range(3)]
        try:
            for _ in range(RELOADS):
                pod.reload()
        finally:
            over.set()
        said = [words for each in runners for words in each.result(60)]
    assert said
    assert set(said) == {"Done."}
    assert [entry["status"] for entry in pod.history("analyst")] == ["ok"] * len(said)
    assert broken_links(chain(pod, "analyst")) == []
    assert "Traceback" not in pod.said()
