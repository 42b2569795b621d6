"""A gateway that lets ungoverned traffic through: unopened, and with nothing of ours in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.gateway.compiled import OPENAI_KEY
from tests.gateway.reaching import CHAT, OPENAI, bytes_to, head, over_tls, post
from tests.gateway.test_runners import ASKED
from tests.gateway.topology import ELSEWHERE, OTHER, PROVIDER, PROVIDER_6, PROXY, Topology
from tests.peers import text


@pytest.mark.requirement("transparent:not-opened")
def test_another_host_shows_its_own_certificate_and_hears_what_the_runner_says(
    allowing: Topology,
) -> None:
    allowing.elsewhere.routes["GET", "/"] = JSONResponse({"who": "other"})
    heard = over_tls(allowing, ELSEWHERE, OTHER, head("GET /", f"host: {OTHER}"))
    assert heard.signer == "other-ca"
    assert heard.data.endswith(b'{"who":"other"}')
    assert allowing.pod.log()[-1]["type"] != "request"


@pytest.mark.requirement("transparent:not-opened")
@pytest.mark.parametrize(
    "name", [OTHER, None, "cloudflare-ech.com"], ids=["foreign", "none", "the outer name of ECH"]
)
@pytest.mark.parametrize("host", [PROVIDER, PROVIDER_6], ids=["IPv4", "IPv6"])
def test_without_a_governed_name_a_provider_is_a_host_like_others_and_gets_no_key(
    allowing: Topology, host: str, name: str | None
) -> None:
    heard = over_tls(
        allowing, host, name, head("GET /v1/models", f"host: {OPENAI}", "authorization: Bearer own")
    )
    assert heard.signer == "provider-ca"
    assert [asked.headers["authorization"] for asked in allowing.provider.received] == [
        "Bearer own"
    ]


@pytest.mark.requirement("transparent:names-decide")
def test_a_governed_name_at_an_address_that_is_not_governed_goes_to_the_provider_and_not_there(
    allowing: Topology,
) -> None:
    allowing.provider.says(text("From the provider."))
    answer = post(allowing, f"https://{ELSEWHERE}{CHAT}", ASKED, headers={"host": OTHER})
    assert answer.json()["choices"][0]["message"]["content"] == "From the provider."
    assert allowing.elsewhere.received == []
    assert allowing.provider.received[0].headers["authorization"] == f"Bearer {OPENAI_KEY}"


@pytest.mark.requirement("transparent:names-decide")
def test_whom_a_key_is_given_to_is_not_for_the_runners_handshake_to_name(
    allowing: Topology,
) -> None:
    allowing.provider.says(JSONResponse({"data": []}))
    asked = head("GET /v1/models", f"host: {OTHER}", f"authorization: Bearer {allowing.token}")
    heard = over_tls(allowing, allowing.front, OTHER, asked, tunnel=OPENAI)
    assert heard.data.endswith(
        b'{"data":[]}'
    )  # from a provider whose certificate is for its own name


@pytest.mark.requirement("egress:not-itself")
def test_a_runner_that_leads_the_proxy_to_itself_makes_it_dial_once_and_no_more(
    allowing: Topology,
) -> None:
    assert allowing.pod.process is not None
    opened = Path(f"/proc/{allowing.pod.process.pid}/fd")
    before = len([*opened.iterdir()])
    for port, line in ((8082, f"GET http://{PROXY}:8082/"), (8083, "GET /")):
        heard = bytes_to(allowing, PROXY, port, head(line, f"host: {PROXY}:{port}"))
        assert heard.startswith(b"HTTP/1.1 502 ")
    assert len([*opened.iterdir()]) < before + 10


@pytest.mark.requirement("transparent:plain-http")
@pytest.mark.parametrize("named", [OPENAI, f"{OPENAI}:80", "API.OpenAI.com."])
@pytest.mark.parametrize("host", [PROVIDER, ELSEWHERE])
def test_over_plain_http_nobody_is_taken_for_a_provider(
    allowing: Topology, host: str, named: str
) -> None:
    heard = bytes_to(
        allowing,
        host,
        80,
        head("GET /v1/models", f"host: {named}", f"authorization: Bearer {allowing.token}"),
    )
    assert b"403" in heard.partition(b"\r\n")[0]
    assert b"not_over_tls" in heard
    assert allowing.open.received == []


@pytest.mark.requirement("transparent:plain-http")
def test_plain_http_of_others_passes_as_it_is(allowing: Topology) -> None:
    allowing.open.routes["GET", "/news"] = JSONResponse({"what": "news"})
    assert bytes_to(allowing, ELSEWHERE, 80, head("GET /news", f"host: {OTHER}")).endswith(
        b'{"what":"news"}'
    )


@pytest.mark.requirement("transparent:passes-through")
def test_what_is_not_mediated_is_forwarded_over_tls_that_is_verified_as_ours_is(
    allowing: Topology,
) -> None:
    allowing.provider.says(JSONResponse({"data": []}))
    asked = head("GET /v1/models", f"host: {OPENAI}", f"authorization: Bearer {allowing.token}")
    assert over_tls(allowing, PROVIDER, OPENAI, asked).data.endswith(b'{"data":[]}')
    assert allowing.provider.received[0].headers["authorization"] == f"Bearer {OPENAI_KEY}"
