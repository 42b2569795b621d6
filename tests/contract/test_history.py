"""A line of history as data, whatever numbers a peer has written into it."""

from __future__ import annotations

import json

import pytest

from claw_contract.history import decode_recorded


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize("number", ["1e400", "-1E99999999999999999999", "9" * 5000])
def test_a_number_that_python_can_not_hold_becomes_its_text(number: str) -> None:
    assert decode_recorded(f'{{"cost":{number}}}') == {"cost": number}


@pytest.mark.requirement("audit:damaged")
def test_other_json_is_read_as_it_is() -> None:
    document = {"cost": 1.5, "tokens": 7, "text": "1e400", "more": [None, True]}
    assert decode_recorded(json.dumps(document).encode()) == document


@pytest.mark.requirement("audit:damaged")
@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "[1,]"])
def test_text_that_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="char"):
        decode_recorded(text)
