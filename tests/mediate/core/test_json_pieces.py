"""Large documents in pieces: what is found in them is what is found in one."""

from __future__ import annotations

import re

import pytest

from claw_mediate.core import json_pieces
from claw_mediate.core.json_pieces import contains, contains_match, pieces_of
from claw_mediate.core.model_names import find_named_models
from claw_mediate.core.object_ids import DIALECT_RULES, find_named_objects

PIECE = 64
HEADS = (
    b'"models":["x"]',
    b'"models" \n\t : \r\n ["x"]',
    b'"models"' + b" " * (3 * PIECE) + b':["x"]',
    b'"models":' + b"\n" * (3 * PIECE) + b'["x"]',
    b'"' + b"m" * 57 + b',model":"x"',
)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", PIECE)


@pytest.mark.requirement("bodies:beside-the-loop")
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("head", HEADS)
def test_a_member_is_found_wherever_a_piece_ends(head: bytes) -> None:
    for before in range(2 * PIECE):
        body = b'{"a":"' + b"x" * before + b'",' + head + b"}"
        spans = [*pieces_of(body)]
        assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
        assert spans[-1][1] == len(body)
        assert [named.name for named in find_named_models(body)] == ["x"], before


@pytest.mark.requirement("bodies:beside-the-loop")
@pytest.mark.usefixtures("small_pieces")
def test_an_id_is_found_wherever_a_piece_ends() -> None:
    for before in range(2 * PIECE):
        for own in (
            b'"file_id" : "f"',
            b'"file\\u005fid":"f"',
            b'"container"' + b" " * 200 + b':{"id":"f"}',
        ):
            body = b'{"a":"' + b"x" * before + b'","b":[{' + own + b"}]}"
            assert [named.id for named in find_named_objects(body, DIALECT_RULES)] == ["f"], (
                before,
                own,
            )


@pytest.mark.usefixtures("small_pieces")
def test_a_short_text_is_found_wherever_a_piece_ends() -> None:
    escape = re.compile(rb"\\u00[0-9]{2}")
    for before in range(3 * PIECE):
        document = b"x" * before + b"\\u0061" + b"y" * PIECE
        assert contains(document, b"\\u00")
        assert contains_match(document, escape, 6)
        assert not contains(document, b"\\u01")
