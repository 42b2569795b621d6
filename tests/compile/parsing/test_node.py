"""The tree of a file: its data, its places, and decoding."""

from __future__ import annotations

import pytest

from claw_compile.parsing.node import (
    MapNode,
    Source,
    child,
    decode,
    entries_of,
    items_of,
    kind,
    plain_data,
    scalars,
    span_at,
)
from claw_compile.parsing.yaml_reader import read_yaml

TEXT = 'a: {b: [1, "2"], c: ~}\nd: e\n'


@pytest.fixture
def root() -> MapNode:
    tree = read_yaml(Source("pod", TEXT)).value
    assert tree is not None
    return tree


def test_a_tree_as_data_has_the_types_of_its_plain_scalars(root: MapNode) -> None:
    assert plain_data(root) == {"a": {"b": [1, "2"], "c": None}, "d": "e"}


def test_what_is_not_there_has_no_child_no_items_and_no_entries(root: MapNode) -> None:
    assert child(root, "a", "x", "y") is None
    assert child(root, "d", "x") is None
    assert items_of(child(root, "d")) == ()
    assert entries_of(child(root, "a", "b")) == ()
    assert items_of(None) == entries_of(None) == ()


def test_every_scalar_comes_in_the_order_of_the_file(root: MapNode) -> None:
    assert [each.text for each in scalars(root)] == ["1", "2", "~", "e"]
    assert [each.text for each in scalars(root, keys=True)] == [
        *("a", "b", "1", "2", "c", "~"),
        *("d", "e"),
    ]


@pytest.mark.requirement("compile:diagnostics-on-the-line")
@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("a", "b", 1), 1, 12),
        (("a", "some-arm-of-a-union", "b", 1), 1, 12),
        (("a", "b", 7), 1, 8),
        (("d", "x"), 2, 4),
    ],
)
def test_a_path_has_the_place_of_its_deepest_part_that_exists(
    root: MapNode, path: tuple[str | int, ...], line: int, column: int
) -> None:
    at = span_at(root, path)
    assert (at.line, at.column) == (line, column)


def test_a_message_names_the_type_of_a_node(root: MapNode) -> None:
    names = {kind(node) for node in (root, child(root, "a", "b"), child(root, "d")) if node}
    assert names == {"a mapping", "a list", "a single value"}
    nothing = child(root, "a", "c")
    assert nothing is not None
    assert kind(nothing) == "nothing"


@pytest.mark.requirement("compile:diagnostics-on-the-line")
@pytest.mark.parametrize(
    ("start", "end", "place"),
    [(0, 1, (1, 1, 2)), (4, 6, (2, 1, 3)), (5, 9, (2, 2, 3)), (7, 9, (3, 1, 3))],
)
def test_a_piece_of_a_text_has_the_place_of_its_first_line(
    start: int, end: int, place: tuple[int, int, int]
) -> None:
    at = Source("x", "abc\ndc\nef").span_of(start, end)
    assert (at.line, at.column, at.end_column) == place


@pytest.mark.requirement("compile:no-traceback")
def test_bytes_that_are_no_utf_8_are_told_and_a_byte_order_mark_is_dropped() -> None:
    (told,) = decode("x", b"ok\ncaf\xe9\n").diagnostics
    assert (told.code.name, told.span.file) == ("not-utf8", "x")
    source = decode("x", "\ufeffé".encode()).value
    assert source is not None
    assert source.text == "é"
