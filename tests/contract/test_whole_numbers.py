"""Whole numbers in text: any length and any script has an answer."""

from __future__ import annotations

import pytest

from claw_contract.whole_numbers import whole_number


@pytest.mark.requirement("compile:no-traceback")
@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1\n", "1_0", "1.0", "８", "²", "9" * 19, "9" * 5000]
)
def test_what_is_no_whole_number_is_none(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.requirement("compile:no-traceback")
def test_a_number_up_to_the_maximum_is_read() -> None:
    assert [whole_number(text, 64) for text in ("0", "064", "65")] == [0, 64, None]
    assert whole_number("9" * 18) == 10**18 - 1
