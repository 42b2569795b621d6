"""The reader of JSON: exactly what the standard library takes, with places."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import Source, plain_data

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_json_reads_as_the_standard_library_reads_it(data: object, ascii_only: bool) -> None:
    text = json.dumps(data, ensure_ascii=ascii_only, indent=1)
    root = read_json(Source("x.json", text))
    assert root.diagnostics == ()
    assert root.value is not None
    assert plain_data(root.value) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a" 1}',
        "{a: 1}",
        '{"a": 1} 2',
        "NaN",
        "01",
        '"\\ud800"',
        '"\t"',
        '"\\x"',
        "1e999",
        "[" * 99,
        "tru",
    ],
)
def test_what_is_not_json_is_one_diagnostic(text: str) -> None:
    result = read_json(Source("x.json", text))
    assert result.value is None
    assert [diagnostic.code.name for diagnostic in result.diagnostics] == ["json-syntax"]


@given(st.text(alphabet='{}[]",:\\u0eE1.-tnl \n', max_size=40))
def test_the_json_reader_accepts_no_more_than_json(text: str) -> None:
    result = read_json(Source("x.json", text))
    if result.value is not None and not result.diagnostics:
        assert plain_data(result.value) == json.loads(text)
