"""The pod of ``claw init --with-tools`` on this machine: a real proxy, a real tools host, and an
agent on the OpenAI SDK.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.peers import Provider, calls, text
from tests.waiting import eventually, free_port

pytest.importorskip("claw_cli.tools", reason="the tools host is not merged yet")
OWNER = 65_534 if os.geteuid() == 0 else os.geteuid()
"""Commands run as the workspace's owner, who is not root."""


def claw(*words: str) -> list[str]:
    return [sys.executable, "-c", "from claw_cli.app import main; main()", *words]


@contextlib.contextmanager
def running(pod: Path, environ: dict[str, str], health: str, *words: str) -> Iterator[Path]:
    """Run a verb until the end of the block; yield its log."""
    log = pod / f"{words[0]}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            claw(*words),
            cwd=pod,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        eventually(lambda: _answers(process, health, log), f"{words[0]} is there")
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _answers(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text(encoding="utf-8")
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as response:
        return bool(response.status == 200)
    return False


@pytest.mark.timeout(240)
@pytest.mark.requirement("toolspod:first-day")
def test_an_agent_on_an_sdk_edits_a_file_of_its_workspace_and_runs_a_command(
    tmp_path: Path,
) -> None:
    provider, address, host = Provider(), f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    provider.start()
    environ = {
        **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        "HOME": str(tmp_path),
        "NO_PROXY": "127.0.0.1",
        "OPENAI_API_KEY": "sk-planted-provider-key",
        "LISTEN_ADDR": address,
        "CLAW_PROXY_ADDR": f"127.0.0.1:{free_port()}",
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "TOOLS_URL": f"http://{host}",
    }
    try:
        subprocess.run(
            claw("init", "my-pod", "--with-tools"),
            cwd=tmp_path,
            env=environ,
            check=True,
            timeout=60,
        )
        pod = tmp_path / "my-pod"
        settings = (
            (pod / "toolhost.yml")
            .read_text(encoding="utf-8")
            .replace("8810", host.partition(":")[2])
        )
        (pod / "toolhost.yml").write_text(settings, encoding="utf-8")
        workspace = pod / "workspaces" / "assistant"
        for path in (workspace, *workspace.iterdir()):
            os.chown(path, OWNER, -1)
        subprocess.run(claw("compile"), cwd=pod, env=environ, check=True, timeout=60)
        token = subprocess.run(
            claw("token", "assistant"),
            cwd=pod,
            env=environ,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        with (
            running(
                pod, environ, f"http://{host}/health", "tools", "serve", "--config", "toolhost.yml"
            ) as log,
            running(pod, environ, f"http://{address}/ready", "proxy"),
        ):
            provider.says(
                calls(
                    (
                        "c1",
                        "tools__edit_file",
                        {"path": "notes.md", "old_text": "# Notes", "new_text": "# Read"},
                    )
                ),
                calls(("c2", "tools__exec_shell", {"command": "head -1 notes.md; id -u"})),
                text("Done."),
            )
            with openai.OpenAI(
                base_url=f"http://{address}/v1", api_key=token, max_retries=0
            ) as client:
                question = [{"role": "user", "content": "Go"}]
                answer = client.chat.completions.create(model="gpt-test", messages=question)  # type: ignore[arg-type]
        assert answer.choices[0].message.content == "Done."
        assert (workspace / "notes.md").read_text(encoding="utf-8").startswith("# Read\n")
        told = [
            str(each["content"])
            for each in provider.received[-1].json["messages"]
            if each["role"] == "tool"
        ]
        assert "# Read" in told[-1], told
        assert str(OWNER) in told[-1], told
        assert log.read_text(encoding="utf-8").count('"tool_host_call"') == 2
    finally:
        provider.stop()
