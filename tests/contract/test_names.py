"""Agent ids, and the aliases under which a model sees tools."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.names import ALIAS_LIMIT, assign_aliases, hashed_alias, is_agent_id

CANONICAL = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}\.[A-Za-z0-9_-]{1,48}", fullmatch=True)


@pytest.mark.requirement("contract:agent-id")
@pytest.mark.parametrize("text", ["a", "analyst-0", "0", "a.b_c-d", "a" * 63])
def test_agent_ids_are_lower_case_names(text: str) -> None:
    assert is_agent_id(text)


@pytest.mark.requirement("contract:agent-id")
@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "a..b",
        "/",
        "a/b",
        "../a",
        "A",
        "aB",
        "-a",
        ".a",
        "_a",
        "a" * 64,
        "a\n",
        "a b",
        "ä",
        "a\0",
        "a%2e",
        "a\\b",
    ],
)
def test_nothing_else_is_an_agent_id(text: str) -> None:
    assert not is_agent_id(text)


@given(st.text(max_size=80))
def test_an_agent_id_is_one_path_segment_whatever_is_asked(text: str) -> None:
    if is_agent_id(text):
        assert re.fullmatch(r"[a-z0-9._-]{1,63}", text)
        assert text not in {".", ".."}


@pytest.mark.requirement("names:aliases")
@given(
    st.lists(CANONICAL, max_size=12),
    st.lists(CANONICAL.map(lambda name: name.replace(".", "__")), max_size=6),
)
def test_aliases_are_unique_safe_short_and_never_the_runners(
    names: list[str], taken: list[str]
) -> None:
    chosen = assign_aliases(names, taken)
    assert list(chosen) == list(dict.fromkeys(names))
    assert len(set(chosen.values())) == len(chosen)
    assert not set(chosen.values()) & set(taken)
    assert all(
        re.fullmatch(rf"[A-Za-z0-9_-]{{1,{ALIAS_LIMIT}}}", alias) for alias in chosen.values()
    )
    assert assign_aliases(names, taken) == chosen


@pytest.mark.requirement("names:aliases")
def test_a_plain_alias_is_service_two_underscores_tool() -> None:
    assert assign_aliases(["trading-api.get_quote", "a.b.c"]) == {
        "trading-api.get_quote": "trading-api__get_quote",
        "a.b.c": "a_b__c",
    }


@pytest.mark.requirement("names:aliases")
def test_names_that_would_share_an_alias_differ_by_their_hash() -> None:
    names = ["a.b.c", "a_b.c"]
    assert assign_aliases(names) == {name: hashed_alias(name) for name in names}


@pytest.mark.requirement("names:aliases")
def test_an_alias_that_the_runner_uses_gives_way() -> None:
    assert assign_aliases(["desk.x"], ["desk__x"]) == {"desk.x": hashed_alias("desk.x")}
    assert assign_aliases(["desk.x"], ["desk__x", hashed_alias("desk.x")])[
        "desk.x"
    ] == hashed_alias("desk.x#1")


@pytest.mark.requirement("names:aliases")
def test_a_name_of_exactly_the_limit_is_kept_and_one_more_is_cut() -> None:
    fits, too_long = "s." + "t" * (ALIAS_LIMIT - 3), "s." + "t" * (ALIAS_LIMIT - 2)
    assert assign_aliases([fits])[fits] == "s__" + "t" * (ALIAS_LIMIT - 3)
    assert len(assign_aliases([too_long])[too_long]) == ALIAS_LIMIT
    assert assign_aliases([too_long])[too_long] == hashed_alias(too_long)
