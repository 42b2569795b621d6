"""Changes of a transcript: hidden messages, and what is left of the runner's."""

from __future__ import annotations

import pytest

from claw_mediate.core.weave import Insert, Replace, change_hidden, hidden_messages, join_messages


@pytest.mark.requirement("live:continuity-split")
def test_only_hidden_messages_are_changed_and_what_is_the_runners_stays() -> None:
    weaves = {0: Insert(b"a"), 2: Replace(b"a", b"a"), 4: Replace(b"", b"a"), 6: Insert(b"b")}
    assert change_hidden(weaves, lambda hidden: hidden.replace(b"a", b"")) == {
        2: Replace(b"", b"a"),
        4: Replace(b"", b"a"),
        6: Insert(b"b"),
    }


@pytest.mark.requirement("live:continuity-split")
def test_hidden_messages_are_told_in_their_order() -> None:
    weaves = {4: Insert(b"c"), 0: Replace(b"a,b", b"rest"), 2: Replace(b"", b"rest")}
    assert hidden_messages(weaves) == b"a,b,c"
    assert Replace(b"a", b"b").messages == b"a,b"
    assert Replace(b"", b"").messages == b""
    assert join_messages([b"", b"a", b""]) == b"a"
