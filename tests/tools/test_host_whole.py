"""A whole host over HTTP: commands, a server behind it, and a client that listens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx2
import pytest

from tests.tools.exec_hosts import OWNER, let_others_in, processes_with
from tests.tools.hosting import ACCEPT, serving, stateless_request
from tests.tools.test_host_http import headers_of, raw_post
from tests.waiting import eventually

CHILD = Path(__file__).parents[1] / "mcp" / "child.py"
CONFIG = f"""\
toolhost:
  listen: {{host: 127.0.0.1, port: 0}}
  principals:
    a: {{token: {{env: TOKEN_A}}, workspace: ws, tools: ["*"]}}
tools:
  exec: {{enabled: true}}
  mcp_servers: {{child: {{command: {sys.executable}, args: [-S, {CHILD}], internal_only: false}}}}
"""


@pytest.mark.requirement("host:list-changed", "servers:list-changed", "tools:exec:cancellation")
def test_clients_are_told_of_new_tools_and_a_command_ends_with_its_client(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    (tmp_path / "ws").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "ws", OWNER, OWNER)
    with serving(tmp_path, None, CONFIG) as host:
        client = host.client().open()
        names = eventually(lambda: {"child__grow"} & {*client.names()} and client.names(), "the server's tools are there")
        with httpx2.stream("GET", client.url, headers={**ACCEPT, **headers_of(client)}, timeout=60) as stream:
            assert "result" in client.ask("tools/call", {"name": "child__grow", "arguments": {"name": "grown"}})
            assert any("notifications/tools/list_changed" in line for line in stream.iter_lines())
        assert {*client.names()} - {*names} == {"child__grown"}
        if "exec_shell" in names:
            marker = f"8{os.getpid()}{id(host)}"
            call = {"name": "exec_shell", "arguments": {"command": f"setsid sleep {marker} & sleep {marker}"}}
            with raw_post(host, *stateless_request("tools/call", call)):
                eventually(lambda: len(processes_with(marker)) > 2, "the command runs")
            eventually(lambda: not processes_with(marker), "nothing of it is left")
            eventually(lambda: host.lines("tool_host_call")[-1]["outcome"] == "cancelled", "its line is there")
