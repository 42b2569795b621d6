"""pods/minimal as it stands: its runner asks its clock through the real proxy; only
the addresses are this machine's.
"""

from __future__ import annotations

import json
import runpy
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from claw_compile.compiler import compile_pod
from tests.compile.worked_pods import WORKED_PODS
from tests.peers import Provider, Service, calls, text
from tests.proxy.pod import Pod
from tests.proxy.test_compiled import composed, env_file

KEY = "sk-minimal-provider-key"


@pytest.mark.requirement("pods:worked")
def test_the_minimal_pods_runner_hears_the_time_that_its_clock_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (minimal,) = (each for each in WORKED_PODS if each.name == "minimal")
    file = minimal.copy(tmp_path)
    home, provider = file.parent, Provider()
    handler = runpy.run_path(str(home / "clock" / "clock.py"))["Clock"]
    pod = Pod(home, provider, Service())
    provider.start()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as clock:
        Thread(target=clock.serve_forever, daemon=True).start()
        try:
            pod_text = file.read_text(encoding="utf-8")
            here = (
                f'expose: ["8000"]\n    x-claw: {{base-url: '
                f"'http://127.0.0.1:{clock.server_port}'}}"
            )
            pod_text = pod_text.replace('expose: ["8000"]', here)
            pod_text = pod_text.replace(
                "      cllama-env:\n",
                f"      cllama-env:\n        OPENAI_BASE_URL: {provider.url}/v1\n",
            )
            file.write_text(pod_text, encoding="utf-8")
            assert compile_pod(file, {"OPENAI_API_KEY": KEY}).value is not None
            pod.environment = composed(home) | {
                "OPENAI_API_KEY": "",
                "ANTHROPIC_API_KEY": "",
                "ANTHROPIC_BASE_URL": "",
            }
            pod.start()
            provider.says(
                calls(("call_1", "clock__get_time", {"zone": "UTC"})), text("It is late.")
            )
            for line in env_file(home / ".claw-runtime" / "agents" / "assistant" / "env"):
                name, _, value = line.partition("=")
                monkeypatch.setenv(name, value.replace("http://cllama:8080", pod.url))
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            answer = runpy.run_path(str(home / "runner.py"))["ask"](
                "How late is it?", "You tell the time."
            )
        finally:
            pod.stop()
            provider.stop()
            clock.shutdown()
    assert answer == "It is late."
    first, second = provider.received[-2:]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    result = json.loads(second.json["messages"][-1]["content"])
    assert result["data"]["zone"] == "UTC"
