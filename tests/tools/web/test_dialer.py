"""Places that no tool connects to: addresses in all spellings, and names that lead to them."""

from __future__ import annotations

import ast
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import claw_tools
from claw_contract.toolhost_file import UrlPolicySection
from claw_tools.errors import ErrorCode
from claw_tools.web.dialer import find_refusal
from claw_tools.web.fetch import WebFetch
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
    package = Path(str(claw_tools.__file__)).parent
    for file in (*sorted((package / "web").glob("*.py")), package / "message.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found |= {(file.name, name)} if name in opening else set()
    ours = {
        ("exchange.py", "connect"),
        ("message.py", "connect"),
    }  # Dialer.connect; a stream's server is the operator's
    assert found == {("dialer.py", "open_connection"), *ours}
