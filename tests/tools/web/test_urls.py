"""Where ``web_fetch`` does not go: addresses in all spellings, names that lead to
them, and URLs with two readings.
"""

from __future__ import annotations

import ast
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import claw_tools
from claw_contract.toolhost_file import UrlPolicySection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.dialer import find_refusal
from claw_tools.web.fetch import WebFetch
from claw_tools.web.urls import parse_url
from tests.raw import answers
from tests.tools.web.calls import (
    LOCAL,
    call,
    connections,
    fails,
    fetcher,
    refusal,
    resolver,
    serving,
)

DENIED, INVALID, FAILED = (
    ErrorCode.PERMISSION_DENIED,
    ErrorCode.INVALID_ARGS,
    ErrorCode.EXECUTION_FAILED,
)
CLOSED = (
    *(
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
    ),
    *(
        "100.64.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
    ),
    *(
        "240.0.0.1",
        "255.255.255.255",
        "192.88.99.1",
        "::1",
        "::",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "ff02::1",
    ),
    *("2001:db8::1", "3fff::1", "5f00::1", "100::1"),
)
METADATA = (
    *(
        "169.254.169.254",
        "169.254.170.2",
        "169.254.169.253",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
    ),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe", "fe80::1"),
)
HOLDERS = {
    "mapped": "::ffff:{v4}",
    "compatible": "::{v4}",
    "translated": "::ffff:0:{v4}",
    "nat64": "64:ff9b::{v4}",
    "local nat64": "64:ff9b:1::{v4}",
    "6to4": "2002:{hex}::1",
    "teredo": "2001:0:{hex}::1",
}
OPEN = (
    "93.184.216.34",
    "1.1.1.1",
    "8.8.8.8",
    "100.128.0.1",
    "2606:2800:220:1::1",
    "2a00:1450:4001::8a",
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


def url_of(address: str) -> str:
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


@pytest.mark.requirement("fetch:addresses", "fetch:metadata")
@pytest.mark.parametrize("address", [*CLOSED, *METADATA])
async def test_a_closed_address_is_refused_as_a_literal_and_as_the_address_of_a_name(
    address: str,
) -> None:
    tool = WebFetch(UrlPolicySection(), resolver(page_example=[address]))
    assert await refusal(tool, url=url_of(address)) is DENIED
    assert await refusal(tool, url="http://page.example/") is DENIED


@pytest.mark.requirement("fetch:metadata")
@pytest.mark.parametrize("address", METADATA)
async def test_no_setting_opens_a_metadata_service(address: str) -> None:
    hosts = [address, "page.example"]
    tool = WebFetch(
        UrlPolicySection(allow_private=hosts, allowed_domains=hosts),
        resolver(page_example=[address]),
    )
    assert await refusal(tool, url=url_of(address)) is DENIED
    assert await refusal(tool, url="http://page.example/") is DENIED


@pytest.mark.requirement("fetch:ipv4-in-ipv6")
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("held", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "93.184.216.34"])
async def test_no_form_of_ipv6_carries_an_address_of_ipv4(holder: str, held: str) -> None:
    v4 = int(IPv4Address(held))
    address = str(IPv6Address(HOLDERS[holder].format(v4=held, hex=f"{v4 >> 16:x}:{v4 & 0xFFFF:x}")))
    hosts = [address, "page.example"]
    tool = WebFetch(UrlPolicySection(allow_private=hosts), resolver(page_example=[address]))
    assert await refusal(tool, url=url_of(address)) is DENIED
    assert await refusal(tool, url="http://page.example/") is DENIED


@pytest.mark.requirement("fetch:addresses")
@pytest.mark.parametrize("address", OPEN)
def test_a_public_address_is_open(address: str) -> None:
    assert find_refusal(ip_address(address), allow_private=False) is None


@pytest.mark.requirement("fetch:ipv4-in-ipv6")
@given(st.ip_addresses(v=4), st.sampled_from(sorted(HOLDERS)), st.booleans())
@settings(max_examples=200)
def test_whatever_address_is_held_the_holder_is_closed(
    held: IPv4Address, holder: str, allow: bool
) -> None:
    v4 = int(held)
    address = IPv6Address(HOLDERS[holder].format(v4=held, hex=f"{v4 >> 16:x}:{v4 & 0xFFFF:x}"))
    assert find_refusal(address, allow_private=allow) is not None or str(address) == "::1"


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


@pytest.mark.requirement("fetch:every-answer")
async def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    tool = WebFetch(
        UrlPolicySection(),
        resolver(page_example=["93.184.216.34", "2606:2800:220:1::1", "10.0.0.7"]),
    )
    assert await refusal(tool, url="http://page.example/") is DENIED


@pytest.mark.requirement("fetch:no-address")
async def test_a_name_without_an_address_fails() -> None:
    with connections() as made:
        nothing = await fails(
            WebFetch(UrlPolicySection(), resolver(page_example=[])), url="http://page.example/"
        )
        unknown = await fails(
            WebFetch(UrlPolicySection(), _no_such_name), url="http://page.example/"
        )
    assert made == []
    assert (nothing.code, unknown.code) == (FAILED, FAILED)
    assert (
        nothing.message == unknown.message == "the host can't be reached: its name has no address."
    )


def _no_such_name(_host: str, _port: int) -> list[object]:
    raise OSError(-2, "Name or service not known")


@pytest.mark.requirement("fetch:rebinding", "fetch:host-stays")
async def test_a_resolver_that_changes_its_answer_changes_nothing() -> None:
    asked: list[str] = []
    changing = iter(["127.0.0.1", "10.0.0.7"])

    def rebind(host: str, port: int) -> object:
        asked.append(host)
        return resolver(**{host.replace(".", "_"): [next(changing)]})(host, port)

    async with serving(answers(200, b"first", "text/plain")) as peer:
        tool = fetcher(peer, look_up=rebind, allow_private=["page.example"])
        with connections() as made:
            page = await call(tool, url=f"http://page.example:{peer.port}/")
        assert (page["text"], asked, made) == (
            "first",
            ["page.example"],
            [("127.0.0.1", peer.port)],
        )
        assert f"host: page.example:{peer.port}".encode() in peer.received[0].lower()


@pytest.mark.requirement("fetch:private-host")
async def test_a_private_host_is_opened_by_its_name_and_no_other_at_its_address() -> None:
    async with serving(answers(200, b"inside", "text/plain")) as peer:
        names = resolver(wiki_internal=[LOCAL], other_internal=[LOCAL])
        tool = fetcher(peer, look_up=names, allow_private=["Wiki.Internal."])
        assert (await call(tool, url=f"http://wiki.internal:{peer.port}/"))["text"] == "inside"
        for host in ("other.internal", LOCAL, "sub.wiki.internal", "localhost"):
            assert (await fails(tool, url=f"http://{host}:{peer.port}/")).code in {DENIED, FAILED}
        assert len(peer.received) == 1


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


@pytest.mark.requirement("fetch:one-dialer")
def test_only_the_dialer_opens_connections() -> None:
    opening = {
        "open_connection",
        "create_connection",
        "AsyncClient",
        "Client",
        "sock_connect",
        "connect",
        "urlopen",
    }
    found = set()
    for file in (*_sources("web"), *_sources("message")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found |= {(file.name, name)} if name in opening else set()
    ours = {
        ("exchange.py", "connect"),
        ("channels.py", "connect"),
    }  # Dialer.connect; a stream's server is the operator's
    assert found == {("dialer.py", "open_connection"), *ours}


def _sources(folder: str) -> list[Path]:
    return sorted((Path(str(claw_tools.__file__)).parent / folder).glob("*.py"))
