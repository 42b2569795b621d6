"""A pod that ``claw compile`` has made, with an agent for each entrance, behind a
proxy that serves all of them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from claw_compile.compiler import compile_pod
from tests.docs.pages import ENTRANCES, blocks
from tests.one_call import OneCallModel
from tests.peers import Provider
from tests.proxy.pod import Pod, pod_at
from tests.proxy.test_compiled import composed
from tests.waiting import free_port

KEY = "sk-of-the-provider-0001"
SECRET_FACT = "forty-two"
ANSWER = f"I looked it up: {SECRET_FACT}."
PAGES = {"base-url": "base-url", "proxy": "forward-proxy", "transparent": "transparent"}
"""Mode of the pod file → page of its entrance."""
POD = """\
x-claw:
  pod: docs
  tools-defaults: [{{service: api, allow: all}}]
services:
{agents}
  api:
    image: api:1
    x-claw: {{describe-file: api.json, base-url: "{service}"}}
"""
AGENT = """\
  {name}:
    image: runner:1
    x-claw:
      agent: AGENTS.md
      cllama: {{proxy: passthrough, mode: {mode}}}
      cllama-env: {{OPENAI_API_KEY: {key}, ANTHROPIC_API_KEY: {key}, {urls}}}
"""
LOOK_UP = {
    "name": "look_up",
    "description": "Look it up.",
    "inputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnly": True},
    "http": {"method": "GET", "path": "/look-up"},
}


@dataclass
class DocumentedPod:
    """The running pod."""

    pod: Pod
    provider: Provider
    public: Path
    """The directory of the CA's public files, for runners."""

    def environment(self, mode: str) -> dict[str, str]:
        """Return the compiled environment of this entrance's agent, with the
        addresses and paths of this machine.
        """
        given = dict(
            line.partition("=")[::2] for line in compiled_env(self.pod.home, mode).splitlines()
        )
        here = {
            "http://cllama:8080": self.pod.url,
            "http://cllama:8082": f"http://127.0.0.1:{self.pod.proxy_port}",
            "/etc/ssl/claw/ca-bundle.pem": str(self.public / "ca-bundle.pem"),
            "/etc/ssl/claw/ca-cert.pem": str(self.public / "ca-cert.pem"),
        }
        for there, at in here.items():
            given = {name: value.replace(there, at) for name, value in given.items()}
        return {"PATH": os.environ["PATH"], "HOME": str(self.pod.home / "runner"), **given}


def compiled(
    home: Path, agents: dict[str, str], service: str = "http://api:80", provider: str = ""
) -> None:
    """Compile a pod of these agents, name → mode."""
    urls = (
        f'OPENAI_BASE_URL: "{provider}/v1", ANTHROPIC_BASE_URL: "{provider}/v1"'
        if provider
        else 'CLLAMA_HOSTS: ""'
    )
    made = "".join(
        AGENT.format(name=name, mode=mode, key=KEY, urls=urls) for name, mode in agents.items()
    )
    (home / "claw-pod.yml").write_text(POD.format(agents=made, service=service), encoding="utf-8")
    (home / "AGENTS.md").write_text("Be good.\n", encoding="utf-8")
    (home / "api.json").write_text(json.dumps({"version": 2, "tools": [LOOK_UP]}), encoding="utf-8")
    result = compile_pod(
        home / "claw-pod.yml", {"CLAW_MASTER_SECRET": "the-master-secret-of-these-tests"}
    )
    assert result.value is not None, [
        (found.code.name, found.message) for found in result.diagnostics
    ]


def compiled_env(home: Path, agent_id: str) -> str:
    return (home / ".claw-runtime" / "agents" / agent_id / "env").read_text(encoding="utf-8")


CA = "CLLAMA_CA=.claw-ca/private"
"""The words before the start command of an entrance that needs a CA."""


def start_arguments(mode: str) -> list[str]:
    """Return the arguments with which the page of an entrance starts the proxy."""
    (block,) = blocks(ENTRANCES / f"{PAGES[mode]}.md", "start")
    program, *arguments = [word for word in shlex.split(block.text) if word != CA]
    assert [program, *arguments[:2]] == ["mitmdump", "-s", "addons/cllama.py"]
    return arguments[2:]


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedPod]:
    """Yield a pod started with the command of the transparent entrance's page,
    which is that of all three entrances.
    """
    home = tmp_path_factory.mktemp("desk")
    model = OneCallModel(
        tool="api__look_up", marker=SECRET_FACT, words=ANSWER, is_one_conversation=False
    )
    with pod_at(home, Provider(model=model)) as pod:
        pod.service.routes["GET", "/look-up"] = JSONResponse({"answer": SECRET_FACT})
        compiled(home, {mode: mode for mode in PAGES}, pod.service.url, pod.provider.url)
        pod.environment = composed(home)
        verb = [
            sys.executable,
            "-c",
            "from claw_cli.app import main; main()",
            *commands("forward-proxy", "claw certs")[0][1:],
        ]
        subprocess.run(verb, cwd=home, check=True, capture_output=True, timeout=100)
        (home / "runner").mkdir()
        pod.start(
            *at_free_ports(start_arguments("transparent"), pod),
            "--set",
            "termlog_verbosity=warn",
            "-w",
            str(home / "flows"),
        )
        yield DocumentedPod(pod, pod.provider, home / ".claw-ca" / "public")


def commands(page: str, begin: str) -> list[list[str]]:
    """Return the commands in a page's blocks that begin with these words."""
    lines = [line for block in blocks(ENTRANCES / f"{page}.md") for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(begin)]


def at_free_ports(arguments: list[str], pod: Pod) -> list[str]:
    ports = {
        "@8080": f"@127.0.0.1:{pod.port}",
        "@8082": f"@127.0.0.1:{pod.proxy_port}",
        "@8083": f"@{free_port()}",
    }
    return [re.sub(r"@\d+$", lambda found: ports[found[0]], argument) for argument in arguments]
