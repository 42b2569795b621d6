"""The address that a server listens at."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from claw_mcp.listening import listen
from tests.mcp.wrapped import CLAW


@pytest.mark.requirement("wrapper:settings")
def test_an_address_that_is_taken_is_one_line_and_no_server_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*CLAW, "--", sys.executable, "-c", "print('started')"]
        environ = {"LISTEN_ADDR": address}
        result = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=60
        )
    assert (result.returncode, result.stdout, result.stderr) == (
        1,
        "",
        f"error: {address}: Address already in use\n",
    )


@pytest.mark.requirement("wrapper:settings")
def test_without_a_host_every_address_is_listened_at() -> None:
    with listen("", 0) as listener:
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()
