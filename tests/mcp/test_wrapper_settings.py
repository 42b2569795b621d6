"""The settings of ``claw mcp-stdio``."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_mcp import server
from claw_mcp.wrapper import read_settings
from tests.fork_server import run_claw


@pytest.mark.requirement("wrapper:settings")
def test_the_defaults_and_our_names() -> None:
    settings = read_settings(
        {"CLAW_MCP_COMMAND": "uvx", "CLAW_MCP_ARGS": '["a b", "c"]', "HOME": "/h"}
    )
    assert (settings.command, settings.environment) == (("uvx", "a b", "c"), {"HOME": "/h"})
    assert (settings.host, settings.port, settings.path, settings.max_body) == (
        "",
        8080,
        "/mcp",
        4 << 20,
    )
    assert (settings.timing.start, settings.timing.first_restart, settings.timing.max_restart) == (
        10,
        0.2,
        30,
    )
    assert (settings.timing.call, server.MAX_SESSIONS, server.IDLE_SECONDS) == (600, 1000, 1800)
    named = {
        "LISTEN_ADDR": "[::1]:81",
        "CLAW_MCP_ALLOWED_HOSTS": "Web, web:80,",
        "CLAW_MCP_MAX_BODY": "5",
    }
    settings = read_settings(
        {"CLAW_MCP_COMMAND": "ignored", "CLAW_MCP_ARGS": "[]", **named}, ["python", "s.py"]
    )
    assert settings.command == ("python", "s.py")
    assert (settings.host, settings.port, settings.max_body) == ("::1", 81, 5)
    assert settings.allowed_hosts == {"web", "web:80"}


@pytest.mark.requirement("wrapper:settings")
def test_the_names_of_the_original_work_too_and_ours_win() -> None:
    old = {
        "COMMAND": "npx",
        "ARGS": '["-y"]',
        "PORT": "9000",
        "PATH": "/rpc/",
        "REQUEST_TIMEOUT_MS": "1500",
        "RESTART_BACKOFF_MS": "1000",
        "RESTART_MAX_MS": "15000",
        "MAX_BODY_BYTES": "7",
        "AUTH_TOKEN": "secret",
    }
    environ = {f"CLAW_MCP_STDIO_{name}": value for name, value in old.items()}
    settings = read_settings(environ)
    assert (settings.command, settings.port, settings.path, settings.max_body) == (
        ("npx", "-y"),
        9000,
        "/rpc",
        7,
    )
    assert (settings.timing.call, settings.timing.first_restart, settings.timing.max_restart) == (
        1.5,
        1,
        15,
    )
    assert settings.token is not None
    assert (settings.token.reveal(), settings.environment) == ("secret", {})
    ours = read_settings(
        {
            **environ,
            "CLAW_MCP_COMMAND": "uvx",
            "CLAW_MCP_STDIO_ADDR": "127.0.0.1:1",
            "LISTEN_ADDR": ":2",
        }
    )
    assert (ours.command, ours.port) == (("uvx", "-y"), 2)


@pytest.mark.requirement("wrapper:settings")
@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "CLAW_MCP_COMMAND"),
        ({"CLAW_MCP_COMMAND": "x", "CLAW_MCP_ARGS": "-y server"}, "CLAW_MCP_ARGS"),
        ({"CLAW_MCP_COMMAND": "x", "CLAW_MCP_ARGS": "[1]"}, "CLAW_MCP_ARGS"),
        ({"CLAW_MCP_COMMAND": "x", "LISTEN_ADDR": "8080"}, "LISTEN_ADDR"),
        ({"CLAW_MCP_COMMAND": "x", "LISTEN_ADDR": ":99999"}, "LISTEN_ADDR"),
        ({"CLAW_MCP_COMMAND": "x", "LISTEN_ADDR": f":{'1' * 5000}"}, "LISTEN_ADDR"),
        (
            {"CLAW_MCP_COMMAND": "x", "CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS": "1" * 5000},
            "CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS is '1",
        ),
        ({"CLAW_MCP_COMMAND": "x", "CLAW_MCP_MAX_BODY": "4M"}, "CLAW_MCP_MAX_BODY"),
        (
            {"CLAW_MCP_COMMAND": "x", "CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS": "-1"},
            "CLAW_MCP_STDIO_REQUEST_TIMEOUT_MS",
        ),
    ],
)
def test_a_setting_that_can_not_be_used_is_one_line_that_names_it(
    environ: dict[str, str], name: str
) -> None:
    result = run_claw(["mcp-stdio"], Path.cwd(), environ)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert name in result.stderr
    assert result.stderr.count("\n") == 1
