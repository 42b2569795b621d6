"""The log of ``claw mcp-stdio``."""

from __future__ import annotations

import json
import logging

import pytest
from pydantic import TypeAdapter

from claw_contract.log.wrapper import WrapperEvent
from claw_mcp.json_log import FaultHandler
from claw_mcp.wrapper import WrapperLog


@pytest.mark.requirement("wrapper:log")
def test_a_fault_of_the_wrapper_is_a_line_like_all_others_without_credentials(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    handler = FaultHandler(WrapperLog({"API_KEY": "planted-credential", "HOME": "/h"}))
    error = ValueError("planted-credential\nand more")
    handler.handle(
        logging.LogRecord("any", logging.ERROR, __file__, 1, "%s failed", ("tools/list",), (ValueError, error, None))
    )
    (line,) = capfdbinary.readouterr().out.splitlines()
    event = TypeAdapter(WrapperEvent).validate_python(json.loads(line))
    assert event.state == "fault"
    assert event.reason is not None
    assert event.reason.startswith("tools/list failed: ValueError(")
    assert "and more" in event.reason
    assert b"planted-credential" not in line
