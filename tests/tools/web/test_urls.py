"""URLs with two readings are refused, and domains match by whole labels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.toolhost_file import UrlPolicySection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.fetch import WebFetch
from claw_tools.web.urls import parse_url
from tests.tools.web.calls import fails, refusal, resolver

DENIED, INVALID, FAILED = (
    ErrorCode.PERMISSION_DENIED,
    ErrorCode.INVALID_ARGS,
    ErrorCode.EXECUTION_FAILED,
)
SPELLINGS = (
    *(
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "0",
        "0x0",
    ),
    *(
        "127.0.0.1.",
        "１２７.０.０.１",
        "127。0。0。1",
        "①②⑦.0.0.1",
        "127.0.0.0x1",
        "1.2.3.4.5",
        "256.0.0.1",
        "4294967297",
    ),
    *(
        "[::1%25lo]",
        "[fe80::1%25eth0]",
        "127%2e0.0.1",
        "[::FFFF:7F00:1]",
        "a..b",
        "-a",
        "evil.com..",
        "foo.0x7f",
    ),
    *("x.example:80:80", "[::1", "[v1.x]", "::1", "[]", "."),
)
TRICKS = (
    *(
        "http://x.example@127.0.0.1/",
        "http://user:secret@x.example/",
        "http://x.example\\@127.0.0.1/",
        "http:\\\\x.example",
    ),
    *(
        "http://x.example\t/",
        "http://x.example/\n",
        "http://x.example/a b",
        "http:///x",
        "http://",
        " http://x.example/",
    ),
    *(
        "//x.example/",
        "x.example",
        "http:x.example",
        "file:///etc/passwd",
        "gopher://x/",
        "ftp://x/",
        "javascript:alert(1)",
    ),
    *(
        "http://x.example:22/",
        "http://x.example:6379/",
        "http://x.example:99999/",
        "http://x.example:0/",
        "http://x:-1/",
    ),
    *(
        "http://x.example:/",
        "http://x.example:8_0/",
        "http://x.example:８０80/",
        f"http://x.example/{'a' * 10_240}",
    ),
    *(
        "http://x.example/\u202e",
        "http://x.example/\x00",
        "http://x.exa\u200bmple/",
        "http://x/\ud800",
        "http://x/\x7f",
    ),
)


@pytest.mark.requirement("fetch:spellings")
@pytest.mark.parametrize("host", SPELLINGS)
async def test_an_odd_spelling_of_a_host_is_refused(host: str) -> None:
    assert await refusal(WebFetch(UrlPolicySection()), url=f"http://{host}/") is DENIED
    assert await refusal(WebFetch(UrlPolicySection()), url=f"HTTP://{host}:80?x") is DENIED


@pytest.mark.requirement("fetch:url-tricks")
@pytest.mark.parametrize("url", TRICKS)
async def test_a_url_with_two_readings_is_refused(url: str) -> None:
    assert await refusal(WebFetch(UrlPolicySection()), url=url) is INVALID


@pytest.mark.requirement("fetch:url-tricks")
@pytest.mark.parametrize(
    "host",
    ["good.example℀evil.example", "good.example／x", "good.example＠127.0.0.1", "good.example？"],
)
async def test_a_character_that_unfolds_into_a_delimiter_is_refused(host: str) -> None:
    assert await refusal(WebFetch(UrlPolicySection()), url=f"http://{host}/") is DENIED


@pytest.mark.requirement("fetch:url-tricks")
@given(st.text(alphabet="ab.:/@?#[]\\%0127xﬀ１。\t ", max_size=30))
@settings(max_examples=300)
def test_what_goes_out_of_any_url_is_a_plain_host_and_a_line_of_ascii(rest: str) -> None:
    try:
        url = parse_url(f"http://{rest}")
    except ToolError:
        return
    assert parse_url(str(url)) == url
    assert url.target.isascii()
    assert url.target.isprintable()
    assert not set(url.host) & set("/@?#[]\\% \t")


@pytest.mark.requirement("fetch:domains")
async def test_domains_match_by_whole_labels() -> None:
    public = ["93.184.216.34"]
    names = resolver(
        evil_com=public, notevil_com=["10.0.0.1"], a_evil_com=public, good_com=["10.0.0.1"]
    )
    blocking = WebFetch(UrlPolicySection(blocked_domains=["Evil.com"]), names)
    for host in ("evil.com", "EVIL.com.", "a.evil.com", "ｅvil.com"):
        assert "blocked_domains" in (await fails(blocking, url=f"http://{host}/")).message
    assert (
        "private" in (await fails(blocking, url="http://notevil.com/")).message
    )  # past the names, and then refused
    allowing = WebFetch(UrlPolicySection(allowed_domains=["good.com", "bücher.example"]), names)
    assert "allowed_domains" in (await fails(allowing, url="http://evil.com/")).message
    assert (
        "private" in (await fails(allowing, url="http://good.com/")).message
    )  # it opens no private address
    assert "no address" in (await fails(allowing, url="http://www.bücher.example/")).message


@pytest.mark.requirement("fetch:domains")
async def test_an_address_is_no_domain_of_labels() -> None:
    tool = WebFetch(UrlPolicySection(allowed_domains=["1.1.1.1"]))
    assert "allowed_domains" in (await fails(tool, url="http://9.1.1.1/")).message


@pytest.mark.requirement("fetch:policy-entries")
@pytest.mark.parametrize(
    "entry",
    ["*.evil.com", "", "http://evil.com", "evil.com/x", "evil.com:8080", "0x7f.1", "a b", "x@y"],
)
@pytest.mark.parametrize("key", ["allow_private", "allowed_domains", "blocked_domains"])
def test_an_entry_that_is_no_host_is_an_error(key: str, entry: str) -> None:
    with pytest.raises(ValueError, match=f"url_policy.{key}: .* is no host"):
        WebFetch(UrlPolicySection(**{key: [entry]}))


@pytest.mark.requirement("fetch:policy-entries")
def test_addresses_and_names_are_entries() -> None:
    WebFetch(
        UrlPolicySection(
            allow_private=["10.0.0.1", "fd00::1", "wiki.internal", "wiki"],
            blocked_domains=["com.", "bücher.de"],
        )
    )
