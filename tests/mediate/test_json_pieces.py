"""Large documents in pieces: what is found in them is what is found in one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable

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


@pytest.mark.requirement("bodies:bounded")
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("head", HEADS)
def test_a_member_is_found_wherever_a_piece_ends(head: bytes) -> None:
    for before in range(2 * PIECE):
        body = b'{"a":"' + b"x" * before + b'",' + head + b"}"
        spans = [*pieces_of(body)]
        assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
        assert spans[-1][1] == len(body)
        assert [named.name for named in find_named_models(body)] == ["x"], before


@pytest.mark.requirement("bodies:bounded")
@pytest.mark.usefixtures("small_pieces")
def test_an_id_is_found_wherever_a_piece_ends() -> None:
    for before in range(2 * PIECE):
        for own in (b'"file_id" : "f"', b'"file\\u005fid":"f"', b'"container"' + b" " * 200 + b':{"id":"f"}'):
            body = b'{"a":"' + b"x" * before + b'","b":[{' + own + b"}]}"
            assert [named.id for named in find_named_objects(body, DIALECT_RULES)] == ["f"], (before, own)


@pytest.mark.usefixtures("small_pieces")
def test_a_short_text_is_found_wherever_a_piece_ends() -> None:
    escape = re.compile(rb"\\u00[0-9]{2}")
    for before in range(3 * PIECE):
        document = b"x" * before + b"\\u0061" + b"y" * PIECE
        assert contains(document, b"\\u00")
        assert contains_match(document, escape, 6)
        assert not contains(document, b"\\u01")


def longest_hold(work: Callable[[], object]) -> float:
    """Return the share of some work in a thread in which no other thread got on, by steps that another thread makes."""
    over = threading.Event()

    def run() -> None:
        work()
        over.set()

    threading.Thread(target=run).start()
    steps = 0
    while not over.wait(0.001):
        steps += 1
    return 1 / (1 + steps)


@pytest.mark.requirement("bodies:bounded")
def test_other_threads_go_on_while_a_large_body_is_searched() -> None:
    parts = [{"type": "text", "text": "x" * 40}] * 200_000
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
    assert longest_hold(lambda: find_named_models(body)) < 0.2
