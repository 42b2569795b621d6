"""metadata.json, which says whom a token admits, and the other small files of a
context directory.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from claw_contract.metadata import Metadata


def metadata(**more: Any) -> Metadata:
    return Metadata.model_validate({"service": "a", "pod": "p", **more})


FULL = metadata(token="analyst:secret")
BARE = metadata(token="secret")
HASHED = metadata(token_sha256=hashlib.sha256(b"analyst:secret").hexdigest())


@pytest.mark.requirement("contract:token-forms")
@pytest.mark.parametrize("stored", [FULL, BARE, HASHED])
def test_each_stored_form_admits_its_own_token_only(stored: Metadata) -> None:
    assert stored.admits("analyst", "secret")
    wrong = [
        ("analyst", "Secret"),
        ("analyst", ""),
        ("analyst", "secret "),
        ("other", "wrong"),
        ("analyst", "analyst:secret"),
    ]
    assert [pair for pair in wrong if stored.admits(*pair)] == []


@pytest.mark.parametrize("stored", [FULL, HASHED])
def test_a_token_that_names_its_agent_admits_no_other(stored: Metadata) -> None:
    assert not stored.admits("other", "secret")
    assert not stored.admits("", "analyst:secret")


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_compared_without_a_fault(agent: str, secret: str) -> None:
    admitted = [stored.admits(agent, secret) for stored in (FULL, HASHED)]
    assert admitted == [(agent, secret) == ("analyst", "secret")] * 2


@pytest.mark.requirement("contract:token-forms")
@pytest.mark.parametrize("stored", [FULL, BARE, HASHED])
def test_bytes_that_are_no_text_are_wrong_and_no_fault(stored: Metadata) -> None:
    assert not stored.admits("analyst", "\udcff")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"token": "a:b", "token_sha256": "0" * 64},
        {"token": ""},
        {"token_sha256": "0" * 63},
        {"token_sha256": "A" * 64},
    ],
)
def test_exactly_one_sound_credential_is_required(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        metadata(**more)


def test_a_budget_of_whole_dollars_is_read() -> None:
    read = metadata(token="a:b", budget={"limit_usd": 5, "window": "24h"})
    assert read.budget is not None
    assert read.budget.limit_usd == 5.0
