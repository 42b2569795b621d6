"""The headers of a runner that go on to a provider, and those that do not."""

from __future__ import annotations

import pytest

from claw_contract.secret import Secret
from claw_mediate.http.headers import ResponseHeaders, names_containing, provider_headers
from tests.failures.planted import AGENT_SECRET, FORMS

SECRET = Secret(AGENT_SECRET)


@pytest.mark.requirement("hostile:token-elsewhere")
@pytest.mark.parametrize("form", [form for form in FORMS if form != "every character escaped"])
def test_a_header_that_holds_the_agents_credential_in_any_form_goes_no_further(form: str) -> None:
    headers = [("X-Own", f"Basic {FORMS[form](AGENT_SECRET)}"), ("x-kept", "caf\udcc3\udca9")]
    assert provider_headers(headers, SECRET) == headers[1:]
    assert names_containing(headers, SECRET) == ("X-Own",)


@pytest.mark.requirement("hostile:token-elsewhere")
def test_also_a_credential_that_is_too_short_to_be_looked_for_elsewhere() -> None:
    assert provider_headers([("x-own", "a:bc"), ("x-kept", "c")], Secret("bc")) == [("x-kept", "c")]


@pytest.mark.requirement("connections:http")
@pytest.mark.parametrize(
    "name", ["Connection", "TE", "Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Expect"]
)
def test_what_belongs_to_the_runners_own_connection_and_message_goes_no_further(name: str) -> None:
    assert provider_headers([(name, "x")], SECRET) == []


@pytest.mark.requirement("connections:http")
def test_a_header_of_a_response_that_comes_twice_is_shown_once() -> None:
    assert ResponseHeaders([("b", "1"), ("a", "2")]).items() == [("b", "1"), ("a", "2")]
    assert ResponseHeaders([("b", "1"), ("a", "2"), ("b", "3")]).items() == [
        ("b", "1, 3"),
        ("a", "2"),
    ]
