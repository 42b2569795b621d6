"""The reading of a request at each endpoint of a dialect."""

from __future__ import annotations

import json

import pytest

from claw_mediate.core.api_paths import Endpoint
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.endpoints import DIALECTS, read_request

ASKED = json.dumps({"model": "m", "input": "Hello"}).encode()
UNREADABLE = json.dumps({"model": "m", "messages": 7, "input": 7}).encode()


@pytest.mark.requirement("responses:compact")
@pytest.mark.parametrize(
    ("endpoint", "rule", "is_kept"),
    [
        ("/responses", None, True),
        ("/responses/compact", "compact", False),
        ("/responses/input_tokens", None, False),
    ],
)
def test_only_an_answer_to_a_model_call_is_a_response_that_can_be_named(
    endpoint: Endpoint, rule: str | None, *, is_kept: bool
) -> None:
    view = read_request(DIALECTS[endpoint], ASKED, has_tools=True)
    assert view.kept is not None
    assert (view.side_request, view.kept.keeps_response) == (rule, is_kept)


@pytest.mark.requirement("injection:without-grants")
@pytest.mark.parametrize("endpoint", DIALECTS)
def test_a_request_that_is_not_understood_is_read_for_its_model_where_nothing_depends_on_it(
    endpoint: Endpoint,
) -> None:
    row = DIALECTS[endpoint]
    with pytest.raises(UnreadableRequestError):
        read_request(row, UNREADABLE, has_tools=True)

    if row.may_name_kept:
        with pytest.raises(UnreadableRequestError):
            read_request(row, UNREADABLE, has_tools=False)
    else:
        assert read_request(row, UNREADABLE, has_tools=False).model == "m"
