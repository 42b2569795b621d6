"""Two real proxies on one real Valkey serve one conversation between them (issue 4, 1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod
from tests.proxy.test_retry import post, trades
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
            pod.provider.says(calls(("c1", "desk__trade", {})), JSONResponse({"error": {"message": "no"}}, 400))
            assert post(pod).status_code == 400
            pod.provider.says(text("Bought."))
            assert post(other).json()["choices"][0]["message"]["content"] == "Bought."
            assert len(trades(pod)) == 1
            assert "planted-password-0001" not in pod.said()
        finally:
            other.stop()
            pod.stop()
