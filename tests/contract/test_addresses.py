"""The kinds of IP addresses, among them those that Python calls global and that are not."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from claw_contract.addresses import classify_address


@pytest.mark.requirement("fetch:addresses", "fetch:ipv4-in-ipv6", "fetch:metadata")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("93.184.216.34", "global"),
        ("2606:2800:220:1::1", "global"),
        ("10.1.2.3", "private"),
        ("127.0.0.1", "private"),
        ("100.64.0.1", "private"),  # a carrier's own network
        ("fd00::1", "private"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),  # Azure; Python calls it global
        ("100.100.100.200", "metadata"),  # Alibaba, within a carrier's network
        ("fd00:ec2::254", "metadata"),  # AWS, within a private network
        ("224.0.0.1", "special"),
        ("0.0.0.0", "special"),
        ("240.0.0.1", "special"),
        ("203.0.113.5", "special"),  # documentation
        ("::ffff:127.0.0.1", "special"),
        ("64:ff9b::7f00:1", "special"),  # NAT64 of 127.0.0.1
        ("2002:7f00:1::", "special"),  # 6to4 of 127.0.0.1
    ],
)
def test_an_address_is_of_one_kind(text: str, kind: str) -> None:
    assert classify_address(ip_address(text)) == kind
