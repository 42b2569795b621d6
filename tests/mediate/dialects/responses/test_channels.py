"""The channels of an item's events."""

from __future__ import annotations

import pytest

from claw_mediate.dialects.responses.channels import FORMS, PART_PREFIXES, is_closing


@pytest.mark.requirement("live:responses-kinds")
@pytest.mark.parametrize(
    ("channel", "closes"), [("done", True), ("part.0.text.done", True), ("part.0.added", False)]
)
def test_the_last_event_of_a_part_ends_it(channel: str, closes: bool) -> None:
    assert is_closing(channel) == closes


@pytest.mark.requirement("live:responses-channels")
def test_each_text_has_a_delta_and_an_end_in_one_channel() -> None:
    deltas = {name: form for name, form in FORMS.items() if form.text == "delta"}
    for name, form in deltas.items():
        end = FORMS[name.removesuffix(".delta") + ".done"]
        assert (end.prefix, end.suffix) == (form.prefix, f"{form.suffix}.done")
        assert end.text
    prefixes = {f"{form.prefix}." for form in FORMS.values() if form.prefix}
    assert prefixes == {*PART_PREFIXES}
