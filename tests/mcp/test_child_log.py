"""The lines of a stdio server in the log."""

from __future__ import annotations

import pytest

from claw_mcp.wrapper import WrapperLog


@pytest.mark.requirement("wrapper:log-cut")
@pytest.mark.parametrize("shown", [200, 8192])
def test_a_credential_at_the_cut_of_a_line_leaves_no_part_of_itself(
    shown: int, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = WrapperLog({"API_KEY": "planted-credential"})
    line = b"x" * (shown - 12) + b"planted-credential and more"
    if shown == 200:
        log.bad_output("this is no JSON-RPC message", line)
    else:
        log.log_line(line)
    log.server_state("failed", reason="initialize: " + "x" * 220 + "planted-credential")
    assert b"planted" not in capfdbinary.readouterr().out
