"""The snapshot of ``claw discover``: whatever a server lists, a compile reads what
is written of it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.descriptors.descriptor import read_descriptor
from claw_compile.descriptors.snapshot import (
    METADATA,
    build_snapshot,
    changed_tools,
    is_same,
    read_snapshot,
    render_snapshot,
)
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source, plain_data

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8)
)
KEYS = st.sampled_from(
    ["type", "properties", "$ref", "pattern", "items", "required", "a", "", "\ud800", "\u202e"]
)
JSON = st.recursive(
    SCALARS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=12,
)
SCHEMAS = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"type": st.just("object")}, optional={"properties": JSON, "$defs": JSON}
    ),
)
TOOLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "c", "a.b", "", "x\ud800"]) | JSON},
    optional={
        "inputSchema": SCHEMAS,
        "description": JSON,
        "annotations": JSON,
        "execution": JSON,
        "http": JSON,
        "title": JSON,
    },
)
ORIGIN = {"command": "npx", "args": ["a"], "server": {"name": "x", "version": "1"}}


@pytest.mark.requirement("discovery:ungrantable", "discovery:deterministic")
@settings(max_examples=300, deadline=None)
@given(st.lists(TOOLS | JSON, max_size=6), st.randoms(use_true_random=False))
def test_any_list_gives_a_snapshot_that_a_compile_reads(
    listed: list[Any], chance: random.Random
) -> None:
    document, left_out = build_snapshot(listed, "/mcp", ORIGIN, None)
    text = render_snapshot(document)
    root = read_json(Source("snapshot.json", text.decode()))
    assert root.value is not None
    described = read_descriptor("snapshot.json", root.value)
    assert described.value is not None
    assert [each for each in (*root.diagnostics, *described.diagnostics) if each.is_error] == []
    assert len(described.value.tools) + len(left_out) == len(listed)
    assert is_same(read_snapshot(text), document)
    assert changed_tools(read_snapshot(text), document) == ()
    named = [
        each
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("name"), str) and each["name"]
    ]
    shuffled = chance.sample(named, len(named))
    one, other = (build_snapshot(each, "/mcp", ORIGIN, None)[0] for each in (named, shuffled))
    assert render_snapshot(one) == render_snapshot(other)


@pytest.mark.requirement("discovery:deterministic")
def test_a_snapshot_is_read_as_it_was_built() -> None:
    schema = {"type": "object", "properties": {"n": {"maximum": 2**64 + 1}, "m": {"default": 1.0}}}
    listed = [
        {
            "name": "a",
            "description": "Grüße\u202e",
            "inputSchema": schema,
            "unknown": 1,
            "title": None,
        }
    ]
    document, left_out = build_snapshot(listed, "/mcp", ORIGIN, None)
    root = read_json(Source("", render_snapshot(document).decode()))
    assert left_out == ()
    assert root.value is not None
    assert plain_data(root.value) == document
    assert document["tools"] == [{"name": "a", "description": "Grüße\u202e", "inputSchema": schema}]
    assert document[METADATA]["digest"].startswith("sha256:")
