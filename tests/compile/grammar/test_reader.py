"""The state of one reading: variables are filled in, and what was reported stays."""

from __future__ import annotations

import pytest

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.grammar.reader import Reader, is_null, is_spread
from claw_compile.parsing.node import ListNode, MapNode, ScalarNode, Source
from claw_compile.parsing.yaml_reader import read_yaml

AT = Span("claw-pod.yml", 1, 1, 2)


def reader(**environ: str) -> Reader:
    return Reader(environ.get)


def codes(read: Reader) -> list[str]:
    return [each.code.name for each in read.diagnostics]


@pytest.mark.requirement("compile:interpolation", "compile:secrets-never-printed")
def test_a_filled_in_value_keeps_the_text_of_the_file_to_be_shown() -> None:
    node = reader(KEY="planted-secret").fill(ScalarNode("a-${KEY}", AT))
    assert node is not None
    assert (node.text, node.shown) == ("a-planted-secret", "a-${KEY}")


@pytest.mark.requirement("compile:interpolation")
@pytest.mark.parametrize(
    ("text", "code"),
    [("${KEY}", "unset-variable"), ("${", "bad-interpolation"), ("${NL}", "bad-value")],
)
def test_a_value_that_can_not_be_filled_in_is_none_and_told(text: str, code: str) -> None:
    read = reader(NL="one\ntwo")
    assert read.fill(ScalarNode(text, AT)) is None
    assert codes(read) == [code]
    assert "two" not in read.diagnostics[0].message


def test_a_line_feed_is_taken_where_it_is_allowed() -> None:
    node = reader(NL="one\ntwo").fill(ScalarNode("${NL}", AT), allowed="\n")
    assert node is not None
    assert node.text == "one\ntwo"


@pytest.mark.requirement("compile:diagnostics-on-the-line")
def test_an_unknown_key_is_told_with_the_one_that_was_meant() -> None:
    root = read_yaml(Source("claw-pod.yml", "alow: x\ndeny: y\n")).value
    assert root is not None
    read = reader()
    assert list(read.keys(root, "a grant", ["allow", "deny"])) == ["deny"]
    (told,) = read.diagnostics
    assert (told.code.name, told.hint) == ("unknown-key", "did you mean 'allow'?")


def test_null_is_no_mapping_and_no_mistake_and_a_list_is_one() -> None:
    read = reader()
    assert read.mapping(ScalarNode("~", AT, plain=True), "it") is None
    assert codes(read) == []
    assert read.mapping(ListNode((), AT), "it") is None
    assert codes(read) == ["wrong-type"]
    assert read.mapping(MapNode((), AT), "it") == MapNode((), AT)


@pytest.mark.parametrize("text", ["", "  ", "${EMPTY}"])
def test_a_text_is_not_empty(text: str) -> None:
    read = reader(EMPTY="")
    assert read.text(ScalarNode(text, AT), "it") is None
    assert codes(read) == ["wrong-type"]


@pytest.mark.requirement("compile:original-pods")
def test_a_carried_key_warns_once_with_a_note_for_each_further_place() -> None:
    read = reader()
    for line in (3, 1, 3, 2):
        read.carry(ScalarNode("handles", Span("claw-pod.yml", line, 1, 8)))
    (warning,) = read.carry_warnings()
    assert warning.span.line == 1
    assert [note.span.line for note in warning.notes] == [2, 3]


def test_null_and_a_spread_are_known_by_their_spelling() -> None:
    assert is_null(ScalarNode("null", AT, plain=True))
    assert not is_null(ScalarNode("null", AT))
    assert is_spread(ScalarNode("...", AT, plain=True))
    assert not is_spread(ListNode((), AT))
