"""The deployed tools host: the settings of compose.generated.yml, a read-only root,
and a user without rights.
"""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.compiler import compile_pod
from tests.compile.composed import MASTER
from tests.compile.tools_host_pod import pod
from tests.image.contained import SITE, Container, Mount, of_compose, path, refused
from tests.image.dockerfile import copied_context, installed
from tests.waiting import eventually, free_port

pytest.importorskip("claw_cli.tools", reason="the tools host is not merged yet")
pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))
USER = 1000


def call(port: int, token: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool in the stateless era; return its result."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/mcp",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode(),
        {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        },
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        result: dict[str, Any] = json.load(response)["result"]
    return result


@pytest.mark.requirement("toolspod:contained")
def test_the_command_of_compose_serves_without_rights_and_writes_to_the_workspaces_only(
    tmp_path: Path,
) -> None:
    port, directory = free_port(), tmp_path / "pod"
    directory.mkdir()
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    text = pod("{}", one="[write_file, read_file]").replace(
        "{tools-host:", f"{{base-url: 'http://127.0.0.1:{port}', tools-host:"
    )
    (directory / "claw-pod.yml").write_text(text, encoding="utf-8")
    assert compile_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER}).value is not None
    service = yaml.safe_load((directory / "compose.generated.yml").read_text(encoding="utf-8"))[
        "services"
    ]["files"]
    for top, _, files in os.walk(directory / ".claw-runtime"):
        for name in ("", *files):
            os.chown(Path(top, name), USER, USER, follow_symlinks=False)
    volumes = tmp_path / "volumes"
    mounts = of_compose(service, directory, volumes)
    site = installed(copied_context(tmp_path), tmp_path)
    environment = {
        "PATH": path(),
        "PYTHONPATH": SITE,
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    container = Container(
        tmp_path, [Mount(site, SITE), *mounts], environment, service["entrypoint"], "/claw", USER
    )
    log = tmp_path / "said.log"
    process = container.start(log)
    try:
        eventually(lambda: _answers(port), "the tools host is there")
        token = (directory / ".claw-runtime/secrets/toolhost.files.one").read_text(encoding="utf-8")
        written = call(port, token, "write_file", {"path": "made/here.txt", "content": "hello\n"})
        assert written.get("isError") in {None, False}, written
        made = {str(each.relative_to(volumes)) for each in volumes.rglob("*") if each.is_file()}
        assert made == {"files-workspaces/one/made/here.txt"}
        assert (volumes / "files-workspaces/one").stat().st_mode & 0o777 == 0o700
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        escaped = call(port, token, "read_file", {"path": "../../tools/tokens/one"})
        assert escaped["isError"] is True
    finally:
        process.terminate()
        process.wait(timeout=60)
    assert "Traceback" not in log.read_text(encoding="utf-8")


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
