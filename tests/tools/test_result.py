"""Results: their shape, and how they are cut."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.result import MAX_MESSAGE, fit, write_failure, write_success
from tests.tools.logged_shell import LIMIT, LoggedShell, MadeTool

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=2_000)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=40,
)


def written(data: Any, limit: int = LIMIT) -> dict[str, Any]:
    content = fit(data, limit).content
    assert len(content) <= limit
    document: dict[str, Any] = json.loads(content)
    return document


@pytest.mark.requirement("tools:results")
@pytest.mark.parametrize(
    "data", [None, 7, "text", [1, 2], True, Decimal("1.50"), msgspec.Raw(b" [1, 2] ")]
)
def test_what_is_no_object_stands_in_one(data: Any) -> None:
    result = fit(data, LIMIT)
    assert (list(json.loads(result.content)), result.is_truncated) == (["result"], False)


@pytest.mark.requirement("tools:results")
def test_an_object_is_written_as_it_is_and_the_text_block_is_the_same_json() -> None:
    raw = b'{"a": 123456789012345678901234567890, "b": [1.10]}'
    assert fit(msgspec.Raw(raw), LIMIT).content == raw
    result = json.loads(write_success(raw))
    assert result["content"] == [{"type": "text", "text": raw.decode()}]
    assert (result["structuredContent"], result["isError"]) == (json.loads(raw), False)


@pytest.mark.requirement("tools:cut")
@pytest.mark.parametrize("sign", ["x", "ü", "€", "😀", "\x00", '"', "\\", "\n"])
def test_a_text_at_the_limit_is_whole_and_one_byte_more_is_cut(sign: str) -> None:
    size = len(json.dumps(sign, ensure_ascii=False).encode()) - 2
    size = len(msgspec.json.encode(sign)) - 2
    rest = LIMIT - len('{"content":""}')
    text = sign * (rest // size) + "." * (rest % size)
    assert written({"content": text}) == {"content": text}
    longer = fit({"content": f"{text}."}, LIMIT)
    assert (longer.is_truncated, longer.original_bytes) == (True, LIMIT + 1)
    cut = json.loads(longer.content)
    assert (cut["truncated"], cut["original_bytes"]) == (True, LIMIT + 1)
    assert cut["content"]
    assert text.startswith(cut["content"])
    assert len(longer.content) > LIMIT - len('"truncated":true') - 2 * size - 20


@pytest.mark.requirement("tools:cut")
def test_of_several_members_the_largest_is_cut_and_the_others_stay() -> None:
    cut = written({"exit_code": 0, "stdout": "x" * 100_000, "stderr": "y" * 1_000, "big": 2**80})
    assert (cut["exit_code"], cut["stderr"], cut["big"]) == (0, "y" * 1_000, 2**80)
    assert len(cut["stdout"]) > 60_000


@pytest.mark.requirement("tools:cut")
@pytest.mark.parametrize(
    "data",
    [
        {"a": "x" * 60_000, "b": "y" * 60_000},
        {"rows": {"deep": ["x" * 100_000]}},
        {f"key{number}": number for number in range(20_000)},
        {"k" * 100_000: 1},
        {"truncated": "x" * 100_000, "original_bytes": "y" * 70_000},
        {"entries": [{"name": "€" * 40_000}, {"name": "b"}]},
        "x" * 100_000,
        ["x" * 100_000],
        msgspec.Raw(b'{"a": ' + b"9" * 100_000 + b"}"),
        msgspec.Raw(b'{"a": "' + b"\\u0041" * 20_000 + b'"}'),
        msgspec.Raw(b"[" * 400 + b'"%b"' % (b"x" * 100_000) + b"]" * 400),
    ],
    ids=lambda data: str(type(data)),
)
def test_whatever_is_too_long_is_cut_to_valid_json_that_says_so(data: Any) -> None:
    result = fit(data, LIMIT)
    cut = json.loads(result.content)
    assert len(result.content) <= LIMIT < result.original_bytes
    assert (cut["truncated"], cut["original_bytes"]) == (True, result.original_bytes)


@pytest.mark.requirement("tools:cut-fast")
@pytest.mark.parametrize(
    "data",
    [
        {"content": "\x01" * 70_000},
        {"items": list(range(100_000))},
        {"items": [{"a": 1}] * 100_000},
        {"content": "€" * 10_000_000},
        {str(number): "x" for number in range(100_000)},
    ],
    ids=["control characters", "small items", "small objects", "10 MB", "many members"],
)
def test_cutting_takes_no_long_time(data: Any) -> None:
    started = time.process_time()
    assert written(data)["truncated"] is True
    assert time.process_time() - started < 3


@pytest.mark.requirement("tools:cut")
@settings(max_examples=300)
@given(data=JSON, limit=st.integers(1_024, 4_096))
def test_any_result_fits_and_is_whole_where_it_can_be(data: Any, limit: int) -> None:
    result = fit(data, limit)
    document = json.loads(result.content)
    assert len(result.content) <= limit
    if not result.is_truncated:
        assert msgspec.json.encode(document) == msgspec.json.encode(
            data if isinstance(data, dict) else {"result": data}
        )
    else:
        assert document["original_bytes"] == result.original_bytes > limit


@pytest.mark.requirement("tools:no-json")
@pytest.mark.parametrize(
    "data",
    [
        object(),
        {"a": {1, object()}},
        {"a": "\ud800"},
        {("a",): 1},
        msgspec.Raw(b"garbage"),
        msgspec.Raw(b'{"a":1} {}'),
        msgspec.Raw(b""),
        Decimal("sNaN"),
        {"a": Decimal("Infinity")},
    ],
    ids=lambda data: type(data).__name__,
)
async def test_what_is_no_json_is_the_tools_failure(data: Any) -> None:
    async def give(_args: Any) -> Any:
        return data

    scene = LoggedShell()
    scene.register(MadeTool("t", give))
    assert await scene.outcome("t") == "execution_failed"
    assert [line["outcome"] for line in scene.lines] == ["execution_failed"]


@pytest.mark.requirement("tools:errors-capped")
@pytest.mark.parametrize("sign", ["x", "€", "\x01", "\ud800", "😀"])
def test_an_error_of_any_characters_is_capped_and_valid(sign: str) -> None:
    result = json.loads(write_failure(ToolError(ErrorCode.TIMEOUT, sign * 10_000)))
    message = result["structuredContent"]["error"]["message"]
    assert 0 < len(message.encode()) <= MAX_MESSAGE
    assert (result["isError"], json.loads(result["content"][0]["text"])) == (
        True,
        result["structuredContent"],
    )
