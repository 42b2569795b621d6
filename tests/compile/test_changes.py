"""The difference between two compiles, as trees of bytes."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from claw_compile.changes import Changes, changes
from claw_compile.output.emit import Tree

type Tools = dict[str, Any]


def tool(name: str, *, read: bool = True, **changed: Any) -> dict[str, Any]:
    execution = {
        "transport": "http",
        "service": "api",
        "base_url": "http://api:80",
        "method": "POST",
        "path": f"/{name}",
        "auth": {"type": "none"},
    }
    return {
        "name": f"api.{name}",
        "description": "Do it.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnly": read},
        "execution": execution,
        **changed,
    }


def tree(*tools: dict[str, Any], **files: bytes) -> Tree:
    """Return the tree of an agent with these tools, and with files by their names."""
    document = {"version": 1, "tools": tools, "policy": {}}
    manifest = PurePosixPath("context", "one", "tools.json")
    others = {PurePosixPath(name): content for name, content in files.items()}
    return {manifest: json.dumps(document).encode(), **others}


def told(found: Changes) -> list[tuple[str, str, tuple[str, ...], bool]]:
    return [(each.tool, each.kind, each.what, each.gains_write) for each in found.tools]


@pytest.mark.requirement("cli:plan")
def test_a_tool_is_gained_lost_or_changed_and_a_gained_write_is_marked() -> None:
    before = tree(tool("stays"), tool("goes"), tool("grows"), tool("shrinks", read=False))
    after = tree(
        tool("stays"),
        tool("grows", read=False),
        tool("shrinks"),
        tool("comes", read=False),
        tool("looks"),
    )
    assert told(changes(before, after)) == [
        ("api.comes", "gained", (), True),
        ("api.goes", "lost", (), False),
        ("api.grows", "changed", ("annotations",), True),
        ("api.looks", "gained", (), False),
        ("api.shrinks", "changed", ("annotations",), False),
    ]


@pytest.mark.requirement("cli:plan")
@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"description": "Do more."}, "description"),
        ({"inputSchema": {"type": "object", "required": ["a"]}}, "schema"),
        ({"delivery": "native"}, "delivery"),
    ],
)
def test_a_changed_tool_is_told_with_its_part(changed: Tools, part: str) -> None:
    found = changes(tree(tool("it")), tree(tool("it", **changed)))
    assert told(found) == [("api.it", "changed", (part,), False)]


@pytest.mark.requirement("cli:plan")
def test_files_are_new_gone_or_changed_in_the_order_of_their_paths() -> None:
    before = tree(a=b"1", b=b"1", c=b"1")
    found = changes(before, tree(b=b"2", c=b"1", d=b"1"))
    assert [(str(each.path), each.kind) for each in found.files] == [
        ("a", "gone"),
        ("b", "changed"),
        ("d", "new"),
    ]
    assert not changes(before, before)


@pytest.mark.requirement("cli:plan")
@pytest.mark.parametrize("manifest", [b"{", b"[]", b'{"version": 9}', b"\xff"])
def test_a_manifest_that_can_not_be_read_grants_nothing(manifest: bytes) -> None:
    damaged = {PurePosixPath("context", "one", "tools.json"): manifest}
    assert told(changes(damaged, tree(tool("it")))) == [("api.it", "gained", (), False)]
