"""A text that comes in parts, cut anywhere, is shown without its secrets, as early as it can be."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claw_contract.redaction.redactor import Redactor, encoded_forms
from claw_contract.redaction.window import TextWindow
from claw_contract.secret import DOTS, Secret

SECRETS = (
    "sk-proj-4711",
    "sk-proj-47110815",  # begins with the one before
    "0815-tail",  # begins as that one ends
    "proj-47",  # within both
    "ababab",
    "aaa-ab",  # ends as the one before begins
    "aaaaaaaa",
    's3cr3t/"value"-\u00e4',
    "short",  # too short to be replaced
)
REDACTOR = Redactor([*map(Secret, SECRETS[:3]), *SECRETS[3:]])
FORMS = sorted(
    {form.decode() for secret in SECRETS if len(secret) >= 6 for form in encoded_forms(secret)}
)


def in_context(text: str) -> str:
    """Return a text within a longer one, in base64."""
    return base64.b64encode(f"x{text}yz".encode()).decode()


PARTS = st.one_of(
    st.sampled_from([*SECRETS, *FORMS]),
    st.sampled_from(SECRETS).map(in_context),
    st.sampled_from(SECRETS).map(lambda text: quote(text, safe="")),
    st.sampled_from(SECRETS).map(json.dumps),
    st.tuples(st.sampled_from(FORMS), st.integers(0, 12)).map(lambda both: both[0][: both[1]]),
    st.text("ab s-k0815\u00e4\ud800", max_size=6),
    st.sampled_from([DOTS, "The price is 50. "]),
)
TEXTS = st.lists(PARTS, max_size=8).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def cut(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def shown(parts: Sequence[str], redactor: Redactor = REDACTOR) -> str:
    window = TextWindow(redactor)
    return "".join([window.feed(part) for part in parts]) + window.flush()


def found(text: str) -> list[tuple[int, int]]:
    """Return the places of all forms, found by trying each at each place."""
    return [
        (at, at + len(form))
        for at in range(len(text))
        for form in FORMS
        if text.startswith(form, at)
    ]


def components(text: str) -> list[tuple[int, int]]:
    """Return the same, with those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found(text)):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


@pytest.mark.requirement("live:secrets")
@given(TEXTS, CUTS)
@example("sk-proj-47110815-tail", [16])  # the dots of the first stand for the second, too
@example("a proj-47, aaaaaaaaa", [18, 19])
@example("aaa-ababab", [6, 6])
def test_what_is_shown_in_parts_is_the_whole_text_redacted(text: str, places: list[int]) -> None:
    early = {start + shown for start, _ in found(text) for shown in (1, 2, 3)}
    places = [place % (len(text) + 1) for place in places]
    late = [place for place in places if place not in early]
    assert shown(cut(text, late)) == REDACTOR.text(text)


@pytest.mark.requirement("live:secrets")
@given(TEXTS, CUTS)
@example("sk-proj-47110815-tail", [16])
@example("sk-proj-4711", [4])
def test_a_long_part_is_shown_as_many_short_ones_are(text: str, places: list[int]) -> None:
    early = {start + shown for start, _ in found(text) for shown in (1, 2, 3)}
    late = sorted({place % (len(text) + 1) for place in places} - early)
    words = "The price is 50. " * 40
    parts = cut(text, late)
    parts = [words + parts[0], *parts[1:-1], (parts[-1] if len(parts) > 1 else "") + words]
    assert shown(parts) == REDACTOR.text("".join(parts))


@pytest.mark.requirement("live:secrets")
@given(TEXTS, CUTS | st.just(range(400)))
@example("short sk-proj-47110815-tail", range(400))
@example("aaaaaaaaaaa ababababab", range(400))
@example("aaaaaaaababab", [9])  # the second begins in the first, and one of its letters is shown
def test_of_a_secret_that_is_cut_in_its_beginning_three_characters_are_shown_at_most(
    text: str, places: Sequence[int]
) -> None:
    pattern = []
    copied = 0
    for start, end in components(text):
        # Where secrets overlap, the beginning of the next may be shown behind the dots of the last.
        beginnings = "|".join(re.escape(text[start : start + length]) for length in (3, 2, 1, 0))
        pattern += [re.escape(text[copied:start]), f"(?:{beginnings})", re.escape(DOTS)]
        pattern.append(f"(?:.{{0,3}}{re.escape(DOTS)})*")
        copied = end
    pattern.append(re.escape(text[copied:]))
    assert re.fullmatch("".join(pattern), shown(cut(text, places)), re.DOTALL)


@pytest.mark.requirement("live:secrets")
@given(TEXTS, CUTS | st.just(range(400)))
def test_the_characters_that_are_shown_too_many_are_counted(
    text: str, places: Sequence[int]
) -> None:
    redactor = Redactor([Secret(SECRETS[0])])  # One that does not overlap with itself
    window = TextWindow(redactor)
    parts = [window.feed(part) for part in cut(text, places)] + [window.flush()]
    assert len("".join(parts)) - window.early == len(redactor.text(text))


@pytest.mark.requirement("live:secrets")
@given(TEXTS, CUTS)
def test_no_more_is_held_than_what_begins_a_form(text: str, places: list[int]) -> None:
    window = TextWindow(REDACTOR)
    read = ""
    for part in cut(text, places):
        read += part
        window.feed(part)
        held = window._context[window._settled :]
        assert held == "" or any(
            form.startswith(window._context) and len(window._context) < len(form) for form in FORMS
        )
        assert read.endswith(held)
        assert len(window._context) < max(map(len, FORMS))


@pytest.mark.requirement("live:secrets")
def test_a_part_that_only_goes_on_with_a_beginning_is_joined_with_the_next() -> None:
    window = TextWindow(REDACTOR)
    assert [window.feed(part) for part in ("Use s", "k-", "pro", "j-", "x", " now")] == [
        "Use s",
        "k-",
        "",
        "",
        "proj-x",
        " now",
    ]
    assert window.flush() == ""


@pytest.mark.requirement("live:secrets")
def test_the_end_of_a_channel_ends_what_is_held() -> None:
    window = TextWindow(REDACTOR)
    assert window.feed("sk-proj-47110") == ""  # the longer one may follow
    assert window.flush() == DOTS + "0"
    assert (window.feed("815-tail"), window.flush()) == ("815-tail", "")
    assert (window.feed("sk-pro"), window.flush()) == ("", "sk-pro")


@pytest.mark.requirement("live:secrets")
def test_a_secret_becomes_dots_with_the_part_that_ends_it() -> None:
    window = TextWindow(REDACTOR)
    assert [window.feed("The key: 0815"), window.feed("-tail")] == ["The key: ", DOTS]


@pytest.mark.requirement("live:secrets")
def test_a_window_without_secrets_shows_everything_as_it_comes() -> None:
    window = TextWindow(Redactor(["short"]))
    part = "short"
    assert window.feed(part) is part
    assert window.flush() == ""


@pytest.mark.requirement("live:secrets")
def test_the_longest_form_is_held_behind_a_long_text() -> None:
    prose = "The price is 50. " * 40
    longest = max(FORMS, key=len)
    window = TextWindow(REDACTOR)
    assert window.feed(prose + longest[:-1]) == prose
    assert window.feed(longest[-1]) == DOTS
