"""A tree as YAML: what is read back is what was meant, and the order of keys is no matter."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from claw_compile.output.yaml_text import as_yaml, mapping
from claw_compile.parsing.node import Source
from claw_compile.parsing.yaml_reader import read_yaml

TEXTS = st.text() | st.sampled_from(
    ["on", "0123", "4000:22", "- x", "# x", "a: b", "a #b", " x", "x ", "---", "~", "{}", "é\u2028"]
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("compile:output-loads")
@given(st.dictionaries(TEXTS, DATA, max_size=4))
def test_our_own_data_is_read_back_as_it_is(data: dict[str, Any]) -> None:
    assert yaml.safe_load(as_yaml(mapping(data))) == data


@pytest.mark.requirement("compile:order-of-yaml-is-no-matter")
def test_keys_are_sorted_but_for_those_that_come_first() -> None:
    data = mapping({"b": 1, "kind": "Secret", "a": [], "c": {"z": None, "w": {}, "y": 0}})
    assert as_yaml(data, ("kind", "missing")) == (
        'kind: "Secret"\na: []\nb: 1\nc:\n  w: {}\n  "y": 0\n  z: null\n'
    )
    assert as_yaml(mapping({})) == "{}\n"


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize(
    "text",
    [
        "a: 0123\n",
        'a: "4000:22"\n',
        "a: on\n",
        "a:\n  - b: 1\n    c: 2\n  - - 3\n",
        "a: !reset null\n",
        "a: !override\n  - b\n",
    ],
)
def test_what_came_from_a_file_keeps_its_spelling_and_its_tag(text: str) -> None:
    root = read_yaml(Source("pod", text)).value
    assert root is not None
    assert as_yaml(root) == text
