"""Injected faults: whatever breaks in the proxy, nothing governed goes upstream undecided."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest

from tests.peers import JSONResponse, calls, text
from tests.proxy.pod import ROOT, Pod, authority, through
from tests.waiting import eventually

BODY: dict[str, Any] = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}

FAULTS = {
    "a hook raises": "raise RuntimeError('injected')",
    "a hook is cancelled": "raise asyncio.CancelledError",
    "a hook's inner task is cancelled": "task = asyncio.ensure_future(asyncio.sleep(9)); task.cancel(); await task",
    "a hook runs into its own time-out": "\n    async with asyncio.timeout(0.01): await asyncio.sleep(9)",
    "a hook recurses for ever": "\n    async def again(): await again()\n    await again()",
}


def ask(pod: Pod, path: str = "/v1/chat/completions", agent_id: str = "analyst") -> httpx2.Response:
    headers = {"authorization": f"Bearer {pod.token(agent_id)}"}
    return httpx2.post(pod.url + path, json=BODY, headers=headers, timeout=20)


def pod_with(pod: Pod, source: str) -> None:
    """Start a pod whose entry script has lines of the test at its end."""
    script = pod.own_script()
    script.write_text(script.read_text(encoding="utf-8") + source, encoding="utf-8")
    pod.agent("plain")
    pod.agent("analyst", pod.tool("balance"))
    pod.start()


@pytest.mark.requirement("closed:hook-fails")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
def test_a_deciding_hook_that_fails_answers_502_and_nothing_goes_upstream(
    pod: Pod, fault: str, agent_id: str
) -> None:
    pod_with(
        pod,
        "import asyncio\nfrom claw_mediate.mediator import Mediator as _M\n"
        f"async def _broken(self, admitted, request): {fault}\n_M.exchange = _broken\n",
    )
    answer = ask(pod, agent_id=agent_id)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "governance_failed")
    assert "injected" not in answer.text
    assert pod.provider.received == []


@pytest.mark.requirement("closed:fault-in-a-turn")
@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_of_ours_in_a_turn_is_told_and_recorded_with_what_ran(
    pod: Pod, stream: bool
) -> None:
    pod_with(
        pod,
        "from claw_mediate.dialects.openai import DIALECT as _CHAT\n"
        "_build = _CHAT.build_request\n"
        "def _build_broken(*given):\n"
        "    write = _build(*given)\n"
        "    def _write(use, rounds=()):\n"
        "        if rounds: raise ZeroDivisionError\n"
        "        return write(use)\n"
        "    return _write\n"
        "object.__setattr__(_CHAT, 'build_request', _build_broken)\n",
    )
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})))
    with pytest.raises(openai.APIError, match="the proxy failed in this turn"):
        list(pod.client().chat.completions.create(**BODY, stream=stream))
    (entry,) = pod.history("analyst")
    assert (entry["status"], entry["status_code"]) == ("error", 502)
    assert entry["tool_trace"][0]["tool_calls"][0]["result"]["data"] == {"usd": 1}


@pytest.mark.requirement("closed:hook-fails")
def test_identification_that_fails_answers_502_and_nothing_goes_upstream(pod: Pod) -> None:
    pod_with(
        pod,
        (
            "from claw_mediate.mediator import Mediator as _M\ndef _broken(self, request): "
            "raise KeyError\n_M.admit = _broken\n"
        ),
    )
    for path in ("/v1/chat/completions", "/v1/files"):
        assert ask(pod, path).status_code == 502
    assert pod.provider.received == []


@pytest.mark.requirement("closed:script-broken")
def test_a_script_that_is_broken_by_hot_reload_leaves_a_guard_that_answers_503(pod: Pod) -> None:
    pod.own_script()
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    pod.write_script("this is not Python")
    eventually(lambda: ask(pod, agent_id="nobody").status_code == 503, "the guard answers")
    for path in ("/v1/chat/completions", "/v1/models", "/v1/messages"):
        assert ask(pod, path).status_code == 503
    assert ask_provider_through_proxy(pod) == 503
    assert pod.provider.received == []


@pytest.mark.requirement("closed:script-deleted")
def test_a_script_that_is_deleted_while_it_runs_leaves_a_guard_that_answers_503(pod: Pod) -> None:
    pod.environment["CLLAMA_EGRESS"] = "deny"
    script = pod.own_script()
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    script.unlink()
    eventually(lambda: ask(pod, agent_id="nobody").status_code == 503, "the guard answers")
    assert ask_provider_through_proxy(pod) == 503
    with through(pod, authority(pod)) as client:  # ungoverned traffic stays denied
        with pytest.raises(httpx2.ProxyError, match="403"):
            client.get("https://localhost:1/")
        assert client.get(f"http://localhost:{pod.service.port}/balance").status_code == 403
    assert pod.provider.received == pod.service.received == []


@pytest.mark.requirement("closed:stream-large-bodies")
def test_streaming_of_large_bodies_cannot_be_switched_on_while_the_proxy_runs(pod: Pod) -> None:
    pod_with(
        pod,
        "import asyncio\nfrom mitmproxy import ctx as _ctx\n"
        "class _Meddler:\n"
        "    def running(self):\n"
        "        try: _ctx.options.update(stream_large_bodies='1')\n"
        '        except Exception as error: print(\'{"refused":"%s"}\' % error, flush=True)\n'
        "addons.append(_Meddler())\n",
    )
    eventually(lambda: "refused" in pod.said(), "the option was refused")
    pod.provider.says(text("fine"))
    headers = {"authorization": "Bearer analyst:wrong"}
    big = {**BODY, "padding": "x" * 3_000_000}
    assert (
        httpx2.post(
            f"{pod.url}/v1/chat/completions", json=big, headers=headers, timeout=20
        ).status_code
        == 403
    )
    assert pod.provider.received == []


@pytest.mark.requirement("closed:body-limit")
def test_a_body_over_the_limit_is_refused_before_anything_goes_out(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.start("--set", "body_size_limit=1m")
    headers = {"authorization": f"Bearer {pod.token()}"}
    big = {**BODY, "padding": "x" * 3_000_000}
    assert (
        httpx2.post(
            f"{pod.url}/v1/chat/completions", json=big, headers=headers, timeout=20
        ).status_code
        == 413
    )
    assert pod.provider.received == []


def ask_provider_through_proxy(pod: Pod) -> int:
    """Ask a governed host through the forward proxy, without TLS; return the status."""
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{pod.proxy_port}", trust_env=False, timeout=20
    ) as client:
        headers = {"authorization": f"Bearer {pod.token()}"}
        return client.post(
            f"{pod.provider.url}/v1/chat/completions", json=BODY, headers=headers
        ).status_code


def test_the_entry_is_the_only_module_of_its_folder_and_short() -> None:
    files = [file.name for file in (ROOT / "addons").iterdir() if file.suffix == ".py"]
    assert files == ["cllama.py"]
    assert len((ROOT / "addons" / "cllama.py").read_text(encoding="utf-8").splitlines()) < 50
