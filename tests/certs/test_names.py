"""Host names that a CA can be constrained to, and the reason for each that can't be."""

from __future__ import annotations

import pytest

from claw_certs.ca import create_ca, parse_ca
from claw_certs.names import ca_names
from tests.certs.example_cas import ca_request


@pytest.mark.requirement("certs:hosts")
@pytest.mark.parametrize(
    ("host", "held_to", "why"),
    [
        ("api.openai.com", "api.openai.com", ""),
        ("API.OpenAI.com.", "api.openai.com", ""),
        ("bücher.example", "xn--bcher-kva.example", ""),
        ("*.example.com", None, "not a host name"),
        ("10.0.0.5", None, "it is an address"),
        ("[::1]", None, "it is an address"),
        ("127.1", None, "read as an address"),
        ("litellm", None, "a whole top-level domain"),
        ("com", None, "a whole top-level domain"),
        ("a..b", None, "not a host name"),
        ("evil.example\nDNS:bank.example", None, "not a host name"),
        (".example.com", None, "not a host name"),
        ("x" * 64 + ".example", None, "not a host name"),
        ("", None, "not a host name"),
    ],
)
def test_a_host_is_covered_or_left_out_with_the_reason(
    host: str, held_to: str | None, why: str
) -> None:
    names = ca_names([host])
    assert names.permitted == ((held_to,) if held_to else ())
    assert why in "".join(names.left_out.values())
    if held_to:
        ca = parse_ca(create_ca(ca_request(held_to)))
        assert ca.permitted == (held_to,)
        assert ca.covers(host)
        assert not ca.covers(f"evil{held_to}")
