"""Anthropic's rules for a messages request, whose violation is a 400."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tests.wires import Body

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THINKING = {"thinking", "redacted_thinking"}


def check(request: Body, replies: Mapping[str, bytes]) -> None:
    _check_tools(request)
    messages = _taken([one for one in request["messages"] if one["role"] != "system"])
    assert [one["role"] for one in messages] == [
        ("user", "assistant")[n % 2] for n in range(len(messages))
    ]
    ids: set[str] = set()
    for before, one, behind in zip([{}, *messages], messages, [*messages[1:], {}], strict=False):
        _check_content(one)
        made = [block["id"] for block in of_type(one, "tool_use")]
        given = [block["tool_use_id"] for block in of_type(one, "tool_result")]
        if one["role"] == "assistant":
            assert not given
            assert sorted(made) == sorted(
                block["tool_use_id"] for block in of_type(behind, "tool_result")
            )
            assert not ids.intersection(made), "ids of calls are unique"
            ids.update(made)
            _check_thinking(one, replies)
        else:
            assert not made
            assert sorted(given) == sorted(block["id"] for block in of_type(before, "tool_use"))


def _taken(messages: Sequence[Body]) -> list[Body]:
    """Return the messages as the API takes them: successive messages of the user become one."""
    taken: list[Body] = []
    for one in messages:
        if taken and one["role"] == taken[-1]["role"] == "user":
            taken[-1] = {"role": "user", "content": [*_blocks(taken[-1]), *_blocks(one)]}
        else:
            taken.append(one)
    return taken


def _blocks(one: Body) -> list[Body]:
    content = one["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def of_type(one: Body, kind: str) -> list[Body]:
    """Return the blocks of one type in a message."""
    content = one.get("content")
    return (
        [block for block in content if block["type"] == kind] if isinstance(content, list) else []
    )


def _check_tools(request: Body) -> None:
    names = [entry["name"] for entry in request.get("tools", ())]
    assert len(names) == len(set(names))
    choice = request.get("tool_choice")
    assert choice is None or names, "a choice needs tools"
    assert choice is None or choice["type"] in {"auto", "any", "none"} or choice["name"] in names
    assert choice is None or choice["type"] != "none" or choice.keys() == {"type"}


def _check_content(one: Body) -> None:
    content = one["content"]
    assert content, "no message is empty"
    if isinstance(content, str):
        assert content.strip()
        return
    kinds = [block["type"] for block in content]
    given = kinds.count("tool_result")
    assert kinds[:given] == ["tool_result"] * given, "results stand first"
    for block in content:
        _check_block(block)


def _check_block(block: Body) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "the API takes no blank text"
        case "tool_use":
            assert _NAME.fullmatch(block["name"]), block
            assert _ID.fullmatch(block["id"])
            assert isinstance(block["input"], dict), block
        case "tool_result":
            failed = isinstance(block["content"], str) and block["content"].startswith(
                '{"ok":false'
            )
            assert block.get("is_error", False) is failed
        case _:
            pass  # any other block is the runner's or the model's own


def _check_thinking(one: Body, replies: Mapping[str, bytes]) -> None:
    """Check that a message with calls has all the thinking that led to them, in
    order and unchanged.
    """
    for block in of_type(one, "tool_use"):
        was = json.loads(replies[block["id"]])
        assert _thinking(one["content"]) == _thinking(was["content"])


def _thinking(content: Sequence[Body]) -> list[Body]:
    return [block for block in content if block["type"] in _THINKING]
