"""The quick check of tool schemas: a schema that passes it has no error, and one
that fails it is checked in full.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from claw_compile.descriptors.rules import _first_error, _is_sound

KEYWORDS = (
    *(
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "minimum",
        "maxLength",
        "pattern",
        "format",
        "$ref",
        "$id",
    ),
    *(
        "anyOf",
        "not",
        "if",
        "additionalProperties",
        "prefixItems",
        "dependentRequired",
        "$defs",
        "$anchor",
        "multipleOf",
    ),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.5, 1e300, 10**60, "string", "object", "", "#/a", "("]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=4))
@example({"minimum": 10**390})
@example({"properties": {"a": {"$schema": "http://127.0.0.1:9/none"}}})
def test_what_is_quickly_found_sound_has_no_mistake(schema: dict[str, Any]) -> None:
    if _is_sound(schema):
        assert _first_error(schema) is None


@pytest.mark.parametrize(
    "draft", ["http://127.0.0.1:9/none", "", "http://json-schema.org/draft-04/schema#"]
)
def test_no_other_draft_is_looked_for(draft: str) -> None:
    assert not _is_sound({"$schema": draft, "type": "object"})
    assert _first_error({"$schema": draft, "type": "object"}) is None
