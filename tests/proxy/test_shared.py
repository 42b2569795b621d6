"""Two real proxies on one real Valkey serve one conversation between them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod
from tests.proxy.test_retry import ASK, post, trades
from tests.state.server import shared_state
from tests.waiting import free_port


@pytest.mark.requirement("state:shared")
def test_a_retry_that_reaches_another_proxy_goes_on_with_the_turn_and_repeats_no_write(
    pod: Pod, tmp_path: Path
) -> None:
    with shared_state(tmp_path / "server", "planted-password-0001") as server:
        pod.environment["CLAW_STATE"] = server.url
        pod.agent("analyst", pod.tool("trade", "POST"))
        other = replace(pod, port=free_port(), proxy_port=free_port(), process=None)
        pod.start()
        other.start()
        try:
            pod.service.routes["POST", "/trade"] = JSONResponse({"order": 1})
            pod.provider.says(
                calls(("c1", "desk__trade", {})), JSONResponse({"error": {"message": "no"}}, 400)
            )
            assert post(pod).status_code == 400
            pod.provider.says(text("Bought."))
            assert post(other).json()["choices"][0]["message"]["content"] == "Bought."
            assert len(trades(pod)) == 1
            assert "planted-password-0001" not in pod.said()
        finally:
            other.stop()
            pod.stop()


@pytest.mark.requirement("budget:shared")
def test_two_proxies_have_one_budget_between_them_and_none_while_its_server_is_gone(
    pod: Pod, tmp_path: Path
) -> None:
    with shared_state(tmp_path / "server") as server:
        pod.environment.update({"CLAW_STATE": server.url, "CLLAMA_BUDGET_FAIL_MODE": "closed"})
        pod.agent("analyst", pod.tool("balance"))
        pod.budget("analyst", window="1h", max_requests=2)
        other = replace(pod, port=free_port(), proxy_port=free_port(), process=None)
        pod.start()
        other.start()
        try:
            pod.provider.says(text("One."), text("Two."))
            asked = [
                {**ASK, "messages": [{"role": "user", "content": f"Question {number}"}]}
                for number in range(5)
            ]
            assert [
                post(at, asked[n]).status_code for n, at in enumerate((pod, other, pod, other))
            ] == [200, 200, 429, 429]
            server.kill()
            assert post(other, asked[4]).status_code == 503
        finally:
            other.stop()
            pod.stop()
