"""Addresses that an ungoverned connection may lead to, and the check of what is really dialled."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_network
from typing import Any

import pytest

from claw_mediate.mitm.gate.destinations import (
    ClosedAddressError,
    check_dial,
    find_refusal,
    install_check,
)

CLOSED = (
    *(
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
    ),
    *("224.0.0.1", "255.255.255.255", "168.63.129.16", "198.18.0.1", "192.0.2.1"),
    *(
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fe80::1%1",
    ),
)


@pytest.mark.requirement("egress:no-private")
@pytest.mark.parametrize("host", CLOSED)
def test_an_address_that_is_not_global_is_refused(host: str) -> None:
    assert find_refusal(host, ()) is not None


@pytest.mark.requirement("egress:no-private")
@pytest.mark.parametrize(
    "host", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "example.com"]
)
def test_a_global_address_and_a_name_are_not(host: str) -> None:
    assert find_refusal(host, ()) is None


@pytest.mark.requirement("egress:no-private")
def test_a_network_that_the_operator_names_is_open_and_a_metadata_service_never() -> None:
    assert find_refusal("10.1.2.3", [ip_network("10.0.0.0/8")]) is None
    assert find_refusal("10.1.2.3", [ip_network("10.2.0.0/16")]) is not None
    assert find_refusal("169.254.169.254", [ip_network("0.0.0.0/0")]) is not None


@pytest.mark.requirement("egress:no-private")
async def test_a_name_that_also_leads_to_private_addresses_is_dialled_at_its_global_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["10.0.0.1", "93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]]

    async def resolve(_host: Any, port: Any, **_: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in answers.pop(0)
        ]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", resolve, raising=False)
    install_check(loop)

    async def dial() -> list[Any]:
        check_dial(())
        return [place for *_, place in await loop.getaddrinfo("rebound.test", 80)]

    assert await asyncio.create_task(dial()) == [("93.184.216.34", 80)]
    with pytest.raises(ClosedAddressError):
        await asyncio.create_task(dial())
    # A task that dials what the configuration names is not checked.
    assert len(await loop.getaddrinfo("provider.test", 80)) == 1
