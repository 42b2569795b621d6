"""The seal of one line of history: any changed byte breaks it, however the line is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.chain import GENESIS, SEAL_BYTES, SealReader, read_seal, seal_entry

LINE, HASH = seal_entry(b'{"turn_id":"t1"}', GENESIS)


@pytest.mark.requirement("history:chain")
def test_a_sealed_line_names_its_hash_and_the_one_before() -> None:
    seal = read_seal(LINE)
    assert seal is not None
    assert (seal.prev, seal.hash, seal.is_intact) == (GENESIS, HASH, True)

    following = read_seal(seal_entry(b'{"turn_id":"t2"}', HASH)[0])
    assert following is not None
    assert following.prev == HASH


@pytest.mark.requirement("history:chain")
@given(st.integers(0, len(LINE) - 1), st.integers(1, 255))
def test_a_changed_byte_breaks_the_seal(place: int, by: int) -> None:
    changed = bytearray(LINE)
    changed[place] = (changed[place] + by) % 256
    seal = read_seal(bytes(changed))
    assert seal is None or not seal.is_intact


@pytest.mark.requirement("history:chain")
@given(st.integers(1, len(LINE)))
def test_a_line_is_read_in_pieces_of_any_size(size: int) -> None:
    reader = SealReader()
    for start in range(0, len(LINE), size):
        reader.add(LINE[start : start + size])
    assert reader.seal() == read_seal(LINE)


@pytest.mark.requirement("history:chain")
@pytest.mark.parametrize("line", [b"", b"{}\n", LINE[:-1], LINE[-SEAL_BYTES + 1 :]])
def test_a_line_without_a_whole_seal_has_none(line: bytes) -> None:
    assert read_seal(line) is None
