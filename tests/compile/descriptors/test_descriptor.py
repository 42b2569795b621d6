"""A descriptor's tree as a ``ServiceDescriptor``, or diagnostics.

What is refused, and where, is in the cases ``descriptor-*`` and ``tool-*``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_compile.descriptors.descriptor import ServiceDescriptor, as_descriptor, read_descriptor
from claw_compile.diagnostics.diagnostic import Result, Span
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import ScalarNode, Source

SOUND = {
    "name": "look",
    "description": "Look at it.",
    "inputSchema": {"type": "object"},
    "http": {"method": "GET", "path": "/look"},
    "annotations": {"readOnly": True},
}


def described(document: Any) -> Result[ServiceDescriptor]:
    tree = read_json(Source("api.json", json.dumps(document)))
    return tree.then(lambda root: read_descriptor("api.json", root))


def codes(result: Result[Any]) -> list[str]:
    return [each.code.name for each in result.diagnostics]


@pytest.mark.requirement("compile:diagnostics-on-the-line")
def test_a_sound_descriptor_has_its_tools_and_no_diagnostic() -> None:
    result = described({"version": 2, "tools": [SOUND]})
    assert result.diagnostics == ()
    assert result.value is not None
    assert [(tool.name, tool.effect) for tool in result.value.tools] == [("look", "read")]


@pytest.mark.requirement("compile:diagnostics-on-the-line")
def test_a_descriptor_of_version_1_has_no_tools() -> None:
    result = described({"version": 1, "feeds": [{"name": "news", "path": "/news", "ttl": 30}]})
    assert result.diagnostics == ()
    assert result.value is not None
    assert result.value.tools == ()


@pytest.mark.requirement("compile:no-traceback")
@pytest.mark.parametrize(
    ("document", "code"),
    [
        ([], "descriptor-shape"),
        ({}, "descriptor-version"),
        ({"version": 3}, "descriptor-version"),
        ({"version": True}, "descriptor-version"),
        ({"version": 2, "tools": {}}, "descriptor-shape"),
    ],
)
def test_what_is_no_descriptor_has_no_value_and_one_diagnostic(document: Any, code: str) -> None:
    result = described(document)
    assert (result.value, codes(result)) == (None, [code])


@pytest.mark.requirement("compile:all-errors-in-one-run")
def test_one_bad_tool_does_not_hide_the_mistakes_of_the_others() -> None:
    without_schema = {**SOUND, "name": "first", "inputSchema": 1}
    without_http = {key: value for key, value in SOUND.items() if key != "http"}
    result = described({"version": 2, "tools": [without_schema, without_http]})
    assert result.value is None
    assert "http-required" in codes(result)
    assert len(codes(result)) == 2


@pytest.mark.requirement("compile:discovered-descriptor")
def test_a_baked_list_of_tools_becomes_a_descriptor_without_the_ungrantable() -> None:
    listed = {"tools": [{**SOUND, "http": None}, {"name": "mute", "inputSchema": 5}]}
    del listed["tools"][0]["http"]
    path = ScalarNode("/rpc", Span("claw-pod.yml", 1, 1, 5))
    tree = read_json(Source("tools.json", json.dumps(listed)))
    result = tree.then(lambda root: as_descriptor(root, path)).then(
        lambda root: read_descriptor("tools.json", root)
    )
    assert result.value is not None, codes(result)
    assert [tool.name for tool in result.value.tools] == ["look"]
    assert result.value.descriptor.mcp.path == "/rpc"  # type: ignore[union-attr]
