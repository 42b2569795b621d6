"""A whole host over HTTP: commands, a server behind it, and a client that listens."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.tools.execution.exec_hosts import OWNER, let_others_in, processes_with
from tests.tools.hosting import ACCEPT, serving, stateless_request
from tests.tools.test_serve_http import headers_of, raw_post
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


BYTES = 64 << 10
ODD = ['"' * 60, "é" * 100, "€\\" * 60, "\n" * 200, "x" * 250]
"""Beginnings of names, and texts, that take more bytes in JSON than they have characters."""


@pytest.mark.requirement("tools:leaves")
@pytest.mark.parametrize("odd", ODD, ids=["quotes", "accents", "backslashes", "breaks", "plain"])
def test_no_text_that_leaves_the_host_is_longer_than_the_limit(tmp_path: Path, odd: str) -> None:
    let_others_in(tmp_path)
    folder = tmp_path / "ws" / "many"
    folder.mkdir(parents=True)
    for number in range(1_000):
        (folder / f"{number:04}{odd.strip('/')[: (250 - 4) // len(odd[0].encode())]}").touch()
    (tmp_path / "ws" / "long").write_text(odd * 5_000, encoding="utf-8")
    (tmp_path / "ws" / "MEMORY.md").write_text(odd * 1_000, encoding="utf-8")
    if os.geteuid() == 0:
        os.chown(tmp_path / "ws", OWNER, OWNER)
    calls: dict[str, dict[str, Any]] = {
        "list_directory": {"path": "many"},
        "read_file": {"path": "long"},
        "memory_read": {},
        "exec_shell": {"command": "cat long; ls many; cat long >&2"},
    }
    with serving(tmp_path, None, CONFIG) as host:
        client = host.client().open()
        offered = client.names()
        for name in (each for each in calls if each in offered):
            result = client.call(name, **calls[name])["result"]
            text = result["content"][0]["text"]
            assert len(text.encode()) <= BYTES, name
            assert json.loads(text) == result["structuredContent"], name
            assert name == "memory_read" or result["structuredContent"]["truncated"], name
            if name == "list_directory":
                assert (
                    len(json.dumps(result["structuredContent"], ensure_ascii=False).encode())
                    <= BYTES
                )
                assert len(result["structuredContent"]["entries"]) >= 50


@pytest.mark.requirement("host:list-changed", "servers:list-changed", "tools:exec:cancellation")
def test_clients_are_told_of_new_tools_and_a_command_ends_with_its_client(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    (tmp_path / "ws").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "ws", OWNER, OWNER)
    with serving(tmp_path, None, CONFIG) as host:
        client = host.client().open()
        names = eventually(
            lambda: {"child__grow"} & {*client.names()} and client.names(),
            "the server's tools are there",
        )
        with httpx2.stream(
            "GET", client.url, headers={**ACCEPT, **headers_of(client)}, timeout=60
        ) as stream:
            assert "result" in client.ask(
                "tools/call", {"name": "child__grow", "arguments": {"name": "grown"}}
            )
            assert any("notifications/tools/list_changed" in line for line in stream.iter_lines())
        assert {*client.names()} - {*names} == {"child__grown"}
        if "exec_shell" in names:
            marker = f"8{os.getpid()}{id(host)}"
            call = {
                "name": "exec_shell",
                "arguments": {"command": f"setsid sleep {marker} & sleep {marker}"},
            }
            with raw_post(host, *stateless_request("tools/call", call)):
                eventually(lambda: len(processes_with(marker)) > 2, "the command runs")
            eventually(lambda: not processes_with(marker), "nothing of it is left")
            eventually(
                lambda: host.lines("tool_host_call")[-1]["outcome"] == "cancelled",
                "its line is there",
            )
