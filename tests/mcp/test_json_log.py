"""Lines of the log: faults, characters and credentials."""

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
        logging.LogRecord(
            "any",
            logging.ERROR,
            __file__,
            1,
            "%s failed",
            ("tools/list",),
            (ValueError, error, None),
        )
    )
    (line,) = capfdbinary.readouterr().out.splitlines()
    event = TypeAdapter(WrapperEvent).validate_python(json.loads(line))
    assert event.state == "fault"
    assert event.reason is not None
    assert event.reason.startswith("tools/list failed: ValueError(")
    assert "and more" in event.reason
    assert b"planted-credential" not in line


@pytest.mark.requirement("wrapper:log-characters")
def test_no_character_of_a_server_ends_a_line_or_moves_a_cursor(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    said = "\x1b[2J \x9b2J \x85 \u2028 \u2029 \u202e \u2066 \x7f \ufeff \U000e0041 caf\u00e9 \u4f60"
    WrapperLog({}).log_line(said.encode())
    line = capfdbinary.readouterr().out.decode()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["line"] == said
    assert all(each.isprintable() for each in line[:-1])
    assert "caf\u00e9 \u4f60" in line


@pytest.mark.requirement("wrapper:faults-limited")
def test_faults_that_anybody_can_cause_do_not_fill_the_log(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("claw_contract.limits.time.monotonic", lambda: now)
    handler = FaultHandler(WrapperLog({}))
    record = logging.LogRecord(
        "any", logging.WARNING, __file__, 1, "Invalid HTTP request received.", (), None
    )
    for _ in range(1_000):
        handler.handle(record)
    now += 1
    handler.handle(record)
    reasons = [json.loads(line)["reason"] for line in capfdbinary.readouterr().out.splitlines()]
    assert len(reasons) == 22
    assert reasons[-2] == "980 faults before this one are not in the log"
