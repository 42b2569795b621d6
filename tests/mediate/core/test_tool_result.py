"""Result envelopes that the model gets: cut between characters, and marked as cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claw_contract.redaction.redactor import Redactor
from claw_mediate.core import tool_result
from claw_mediate.core.types import ToolResult
from claw_mediate.turns.history_lines import call_record
from tests.mediate.made import called, granted

READ = called(granted(annotations={"readOnly": True}))
WRITE = called(granted(method="POST"))
NONE = Redactor(())


def told(answer: ToolResult) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(answer.content)
    return envelope


def http(status: int, body: bytes, *, limit: int = 100, size: int | None = None) -> dict[str, Any]:
    return told(
        tool_result.read_http_response(
            READ, status, body, len(body) if size is None else size, limit
        )
    )


@pytest.mark.requirement("results:truncation")
@given(st.text(), st.integers(0, 60))
@example("aé", 2)
@example("😀", 3)
@example("\x80", 1)
def test_a_prefix_is_the_longest_that_holds_whole_characters(text: str, limit: int) -> None:
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    cut = tool_result.utf8_prefix(body, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    assert cut == text or len((cut + text[len(cut)]).encode()) > limit


@pytest.mark.requirement("results:truncation")
@given(st.binary(max_size=40), st.integers(0, 40))
def test_a_prefix_of_any_bytes_is_text(body: bytes, limit: int) -> None:
    assert len(tool_result.utf8_prefix(body, limit)) <= limit


@pytest.mark.requirement("results:truncation")
@given(st.text(min_size=1), st.integers(1, 30))
def test_what_is_cut_says_so_with_its_true_size(text: str, limit: int) -> None:
    body = json.dumps(text).encode()
    envelope = http(200, body[: limit + 4], limit=limit, size=len(body))
    if len(body) <= limit:
        assert envelope == {"ok": True, "status_code": 200, "data": text}
    else:
        assert (envelope["truncated"], envelope["original_bytes"]) == (True, len(body))
        assert body.decode().startswith(envelope["data"])
    assert envelope["ok"]


@pytest.mark.requirement("results:body-kinds")
@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"a":1}', {"a": 1}),
        (b" [1] \n", [1]),
        (b"null", None),
        (b"plain", "plain"),
        (b"<html>", "<html>"),
        (b'{"a":', '{"a":'),
        (b"NaN", "NaN"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'"\xff"', '"\ufffd"'),
        (b'"\\ud800"', '"\\ud800"'),
        (b'{"a":1e400}', '{"a":1e400}'),
        (b"\xef\xbb\xbf{}", "\ufeff{}"),
    ],
)
def test_json_is_data_and_anything_else_is_text(body: bytes, data: Any) -> None:
    assert http(200, body) == {"ok": True, "status_code": 200, "data": data}


def test_deep_bodies_are_text() -> None:
    body = b"[" * 100_000
    assert http(200, body, limit=10**6)["data"] == body.decode()


@pytest.mark.requirement("results:body-kinds")
@pytest.mark.parametrize("body", [b"", b" \n"])
@pytest.mark.parametrize("status", [200, 204])
def test_an_empty_body_is_a_success_without_data(status: int, body: bytes) -> None:
    assert http(status, body) == {"ok": True, "status_code": status}


@pytest.mark.requirement("calls:exact-numbers")
def test_json_of_a_service_keeps_its_own_bytes() -> None:
    body = b'{"id": 9007199254740993, "x": 1.0, "big": 1e300, "z":-0}'
    assert body in tool_result.read_http_response(READ, 200, body, len(body), 100).content


@pytest.mark.requirement("calls:error-results")
@pytest.mark.parametrize("status", [400, 404, 409, 429, 500, 503, 599, 199, 600])
def test_any_other_status_is_an_error_with_the_body_as_details(status: int) -> None:
    envelope = http(status, b'{"why":"no"}')
    assert envelope["error"]["code"] == f"http_{status}"
    assert envelope["error"]["details"] == {"why": "no"}
    assert envelope["status_code"] == status
    assert not envelope["ok"]
    assert "details" not in http(status, b"")["error"]


@pytest.mark.requirement("results:redirect")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_that_does_not_say_where_to(status: int) -> None:
    assert http(status, b"http://evil.test/")["error"]["code"] == "redirect_refused"
    assert "evil" not in json.dumps(http(status, b"http://evil.test/"))


@pytest.mark.requirement("calls:timeout")
def test_a_write_that_broke_off_has_an_unknown_outcome_and_a_read_just_failed() -> None:
    assert "outcome is unknown" in told(tool_result.timeout(WRITE, 3))["error"]["message"]
    assert "outcome is unknown" not in told(tool_result.timeout(READ, 3))["error"]["message"]
    assert (
        told(tool_result.request_failed(WRITE, "It broke.", sent=True))["error"]["code"]
        == "outcome_unknown"
    )
    assert (
        told(tool_result.request_failed(WRITE, "Down.", sent=False))["error"]["code"]
        == "request_failed"
    )
    assert (
        told(tool_result.request_failed(READ, "It broke.", sent=True))["error"]["code"]
        == "request_failed"
    )
    assert [tool_result.request_failed(WRITE, "", sent=sent).ran for sent in (True, False)] == [
        True,
        False,
    ]


@pytest.mark.requirement("results:envelope")
@pytest.mark.parametrize(
    "answer",
    [
        tool_result.tool_budget_exhausted(READ),
        tool_result.managed_tools_first(called(None, owner="native")),
        tool_result.terminal_on_success_order(WRITE),
        tool_result.unknown_tool(called(None)),
        tool_result.invalid_arguments(READ, "why."),
        tool_result.schema_validation(READ, [{"path": "a", "message": "no"}]),
        tool_result.duplicate_tool_call(READ, 1, 2),
        tool_result.timeout(WRITE, 1),
        tool_result.canceled(READ),
        tool_result.request_failed(READ, "m", sent=False),
    ],
)
def test_every_failure_has_the_one_shape_and_can_be_recorded(answer: ToolResult) -> None:
    envelope = told(answer)
    assert envelope.keys() <= {"ok", "error", "status_code"}
    assert envelope["ok"] is answer.ok is False
    assert envelope["error"]["code"] == answer.code
    assert envelope["error"]["message"].endswith(".") or answer.code == "request_failed"
    assert call_record(answer, NONE)["status"] == "error"


@pytest.mark.requirement("calls:duplicate-advice")
def test_a_duplicate_tells_tool_first_round_and_count() -> None:
    details = told(tool_result.duplicate_tool_call(READ, 3, 2))["error"]["details"]
    assert details == {"tool": "desk.get", "first_round": 3, "count": 2}
