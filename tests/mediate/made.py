"""Tools, calls and replies for tests of the core, made as the border would make them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from claw_contract.manifest import Tool
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import Arguments, ModelResponse, Owner, ToolCall, TurnLimits

SPACE = st.text(alphabet=" \t\r\n", max_size=2)
NUMBER = st.sampled_from(
    [
        "0",
        "-0",
        "1",
        "1.0",
        "10e-1",
        "-0.0",
        "9007199254740993",
        "1e400",
        "1E+5",
        "0.1",
        "123456789012345678901234567890",
    ]
)
STRING = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(
        [r'"\/"', r'"\u0061"', r'"\\"', r'"\""', '"{[,]}"', r'"\\\"}"', r'"\ud83d\ude00"']
    ),
).filter(lambda text: not any("\ud800" <= mark <= "\udfff" for mark in text))


def _array(parts: list[tuple[str, str, str]]) -> str:
    return "[" + ",".join(before + part + after for before, part, after in parts) + "]"


def _object(parts: list[tuple[str, str, str, str]]) -> str:
    return (
        "{"
        + ",".join(
            f"{before}{name}{after}:{before}{part}{after}" for before, name, part, after in parts
        )
        + "}"
    )


JSON_TEXT = st.recursive(
    st.one_of(
        NUMBER, STRING, st.sampled_from(["true", "false", "null", "[]", "{}", "[ ]", "{\n}"])
    ),
    lambda part: (
        st.lists(st.tuples(SPACE, part, SPACE), min_size=1, max_size=3).map(_array)
        | st.lists(st.tuples(SPACE, STRING, part, SPACE), min_size=1, max_size=3).map(_object)
    ),
    max_leaves=6,
)
"""JSON in unusual spellings: white space, escapes, repeated keys, numbers."""


def granted(
    name: str = "desk.get",
    *,
    schema: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    **execution: Any,
) -> Tool:
    """Return a tool over HTTP, by GET unless ``execution`` says otherwise."""
    http = {
        "transport": "http",
        "service": name.partition(".")[0],
        "base_url": "http://desk:4000",
        "method": "GET",
        "path": "/x",
        **execution,
    }
    entry = {
        "name": name,
        "description": "",
        "inputSchema": schema or {"type": "object"},
        "annotations": annotations or {},
        "execution": http,
    }
    return Tool.model_validate(entry)


def arguments(text: str) -> Arguments:
    read = read_arguments(text)
    assert isinstance(read, Arguments), read
    return read


def called(
    tool: Tool | None, text: str = "{}", *, owner: Owner | None = None, call_id: str = "c1"
) -> ToolCall:
    whose: Owner = owner or ("managed" if tool else "unknown")
    return ToolCall(call_id, tool.name if tool else "shell", whose, read_arguments(text), tool)


def reply(*calls: ToolCall, **usage: Any) -> ModelResponse:
    return ModelResponse(b"{}", b"{}", tuple(calls), usage)


def catalog(*tools: Tool, native: Sequence[str] = (), room: int = 128) -> ToolCatalog:
    return ToolCatalog.build(tools, native, room)


def limits(**more: Any) -> TurnLimits:
    values: dict[str, Any] = {
        "max_rounds": 8,
        "tool_seconds": 30.0,
        "total_seconds": 100.0,
        "soft_seconds": 90.0,
        "result_bytes": 16384,
        "max_parallel": 8,
        "on_budget": "finalize",
    }
    return TurnLimits(**values | more)
