"""The result that a model gets for an MCP server's answer: each row of the table, and bad input."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp.protocol import RpcMessage
from claw_mediate.core import tool_result
from claw_mediate.core.mcp_result import read_call_result
from claw_mediate.core.types import ToolResult
from tests.mediate.made import called, granted

CALL = called(granted("desk.get"))
TOKEN = "planted-token-of-the-tool"
PIXEL = base64.b64encode(b"x" * 90).decode()


def read(result: Any, limit: int = 200) -> ToolResult | None:
    message = RpcMessage(
        "2.0", id=msgspec.Raw(b"1"), result=msgspec.Raw(json.dumps(result).encode())
    )
    return read_call_result(CALL, message, Redactor([Secret(TOKEN)]), limit)


def shown(result: Any, limit: int = 200) -> dict[str, Any]:
    made = read(result, limit)
    assert made is not None
    envelope: dict[str, Any] = json.loads(made.content)
    assert (envelope["ok"], made.ran) == (made.ok, True)
    return envelope


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@pytest.mark.requirement("mcp:results")
def test_structured_content_is_the_data_in_its_own_bytes_and_else_the_text_is() -> None:
    assert shown({"content": [text("seen")], "structuredContent": {"n": 1}})["data"] == {"n": 1}
    assert shown({"content": [text("a"), text("b")], "structuredContent": None})["data"] == "a\nb"
    assert "data" not in shown({"content": []})


@pytest.mark.requirement("mcp:tool-error")
@pytest.mark.parametrize("extra", [{}, {"structuredContent": {"n": 1}}])
def test_an_error_of_the_tool_has_its_words(extra: dict[str, Any]) -> None:
    error = shown({"content": [text("no such row")], "isError": True, **extra})["error"]
    assert error["code"] == tool_result.TOOL_ERROR
    assert "no such row" in (error["message"] if extra else error["details"])


@pytest.mark.requirement("mcp:tool-error")
@pytest.mark.parametrize("result_type", ["input_required", "a" * 1000, TOKEN])
def test_a_result_that_is_not_complete_is_an_error_of_bounded_length(result_type: str) -> None:
    error = shown({"resultType": result_type, "content": []})["error"]
    assert error["code"] == tool_result.TOOL_ERROR
    assert len(error["message"]) < 300
    assert TOKEN not in error["message"]


@pytest.mark.requirement("mcp:rpc-error")
def test_an_error_of_the_protocol_has_its_code_and_as_much_of_its_message_as_fits() -> None:
    error = {"code": -32602, "message": f"bad {TOKEN} " + "é" * 500}
    message = RpcMessage("2.0", id=msgspec.Raw(b"1"), error=msgspec.Raw(json.dumps(error).encode()))
    made = read_call_result(CALL, message, Redactor([Secret(TOKEN)]), 100)
    assert made is not None
    told = json.loads(made.content)["error"]
    assert (made.code, told["details"]["code"]) == (tool_result.MCP_ERROR, -32602)
    assert len(told["details"]["message"].encode()) <= 100
    assert TOKEN not in told["details"]["message"]


@pytest.mark.requirement("mcp:truncation")
def test_what_is_cut_says_how_long_it_was() -> None:
    envelope = shown({"content": [text("é" * 500)]}, limit=101)
    assert (envelope["truncated"], envelope["original_bytes"]) == (True, 1000)
    assert envelope["data"] == "é" * 50


@pytest.mark.requirement("mcp:images")
def test_images_that_fit_behind_the_text_are_added_and_others_only_named() -> None:
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    odd = [image | {"mimeType": "image/svg+xml"}, image | {"data": "no base64!"}]
    made = read({"content": [*odd, image]}, limit=10_000)
    assert made is not None
    assert [each.data for each in made.images] == [PIXEL]
    small = read({"content": [image]}, limit=len(PIXEL))
    assert small is not None
    assert small.images == ()
    assert b"image/png" in small.content


@pytest.mark.requirement("mcp:unreadable")
@pytest.mark.parametrize("result", [None, 5, "text", [], {"content": 5}, {"isError": "yes"}])
def test_an_answer_that_is_no_result_is_none(result: Any) -> None:
    assert read(result) is None
