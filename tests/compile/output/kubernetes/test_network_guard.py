"""The openings that an agent's surfaces make in the guard of its pod, and the
diagnostics about them.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from tests.compile.composed import agent
from tests.compile.manifests import compiled, manifests, peers, spec_of

CLOSED = "add chain inet claw leave { type filter hook output priority filter; policy drop; }"
NO_WORLD = [
    *(
        "10.1.2.3",
        "100.100.100.200",
        "127.0.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
    ),
    *("172.31.0.1", "192.168.0.1", "198.18.0.1", "224.0.0.251", "240.0.0.1", "255.255.255.255"),
    *(
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
    ),
    *("64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "64:ff9b::a83f:8110", "::ffff:10.0.0.1"),
]
WORLD = ["1.1.1.1", "168.63.129.17", "223.255.255.254", "2606:4700::1111", "64:ff9b::101:101"]


def nets_of(rule: str) -> list[str]:
    return rule.partition("{ ")[2].partition(" }")[0].split(", ")


def pod_with(surfaces: list[str], web: str = "expose: [9000]", mode: str = "base-url") -> str:
    """Return an agent with these surfaces and a tool; ``web`` has the ports of the
    service of that name.
    """
    claw = f", surfaces: {surfaces}"
    cllama = f"cllama: {{proxy: passthrough, mode: {mode}}}"
    return agent(claw, rest=f"  web: {{image: 'web:1', {web}}}").replace(
        "cllama: passthrough", cllama
    )


def allowed(rules: str) -> set[str]:
    """Return the rules that let the agent's user send, without those for the pod
    itself and those that every pod has.
    """
    start = "add rule inet claw leave "
    lines = (
        rule.removeprefix(start).removesuffix(" accept")
        for rule in rules.split("; ")
        if rule.startswith(start)
    )
    always = (
        "meta skuid",
        "ip daddr 127",
        "ip6 daddr ::1",
        "ct state",
        "icmpv6",
        "meta l4proto tcp reject",
        "reject",
    )
    return {line for line in lines if not line.startswith(always)}


def rules_of(directory: Path, pod: str) -> str:
    rules: str = spec_of(manifests(directory, pod), "desk-one")["initContainers"][0]["command"][1]
    return rules


def reported(directory: Path, pod: str, *codes: str) -> list[tuple[str, str]]:
    diagnostics = compiled(directory, pod).diagnostics
    return [(each.code.name, each.message) for each in diagnostics if each.code.name in codes]


@pytest.mark.requirement("kubernetes:surfaces")
@pytest.mark.parametrize("mode", ["base-url", "proxy", "transparent"])
def test_a_surface_opens_its_services_ports_at_the_clusters_addresses_alone(
    mode: str, tmp_path: Path
) -> None:
    web = "expose: [9000, '53/udp'], ports: ['7000:9001']"
    rules = rules_of(tmp_path, pod_with(["service://web"], web, mode))
    assert CLOSED in rules
    opened = {rule for rule in allowed(rules) if "th dport 53" not in rule}
    v4, v6 = (
        "ip daddr { 10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16 }",
        "ip6 daddr { fc00::/7 }",
    )
    assert opened == {
        *(f"{nets} meta l4proto tcp th dport {{ 9000, 9001 }}" for nets in (v4, v6)),
        *(f"{nets} meta l4proto udp th dport {{ 53 }}" for nets in (v4, v6)),
    }


@pytest.mark.requirement("kubernetes:surfaces")
def test_an_agent_without_surfaces_leaves_its_pod_for_nothing(tmp_path: Path) -> None:
    assert allowed(rules_of(tmp_path, pod_with([]))) == set()


@pytest.mark.requirement("kubernetes:surfaces")
def test_egress_opens_the_world_and_no_private_address(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, pod_with(["egress://"]))
    assert CLOSED in rules
    opened = {rule for rule in allowed(rules) if "th dport" not in rule}
    assert {rule.split("{")[0] for rule in opened} == {"ip daddr != ", "ip6 daddr != "}
    assert all(
        net in str(opened) for net in ("10.0.0.0/8", "169.254.0.0/16", "fc00::/7", "fe80::/10")
    )


@pytest.mark.requirement("kubernetes:world")
def test_no_address_that_is_not_global_is_part_of_the_world(tmp_path: Path) -> None:
    """Neither for a policy nor for the filter, which a real ``nft`` reads."""
    objects = manifests(tmp_path, pod_with(["egress://"]))
    rules: str = spec_of(objects, "desk-one")["initContainers"][0]["command"][1]
    (world,) = (
        rule["to"]
        for rule in objects["NetworkPolicy", "desk-one"]["spec"]["egress"]
        if any("ipBlock" in peer for peer in rule["to"])
    )
    closed = {ip_network(net) for peer in world for net in peer["ipBlock"]["except"]}
    for address in map(ip_address, NO_WORLD):
        assert any(address in net for net in closed), address
    for address in map(ip_address, WORLD):
        assert not any(address in net for net in closed), address
    assert {
        ip_network(net) for rule in allowed(rules) if "!=" in rule for net in nets_of(rule)
    } == closed


@pytest.mark.requirement("kubernetes:surfaces")
def test_who_is_reached_on_a_surfaces_ports_through_the_policy_alone_is_told(
    tmp_path: Path,
) -> None:
    assert reported(tmp_path, pod_with(["service://web"]), "shared-reach") == [
        ("shared-reach", "on a port of its surfaces one reaches desk, too")
    ]
    assert reported(tmp_path, pod_with(["egress://"]), "shared-reach") == []
    assert reported(tmp_path, pod_with(["service://desk"]), "shared-reach") == []


@pytest.mark.requirement("kubernetes:surfaces")
@pytest.mark.parametrize("port", [80, 443])
def test_a_transparent_agent_with_a_surface_on_a_redirected_port_is_refused(
    port: int, tmp_path: Path
) -> None:
    pod = pod_with(["service://web"], f"expose: [{port}]", "transparent")
    result = compiled(tmp_path, pod)
    assert result.value is None
    (error,) = (each for each in result.diagnostics if each.is_error)
    assert (error.code.name, error.message) == (
        "surface-redirected",
        f"what one sends to port {port} goes to its proxy",
    )
    assert pod.splitlines()[error.span.line - 1][error.span.column - 1 :].startswith(
        "'service://web'"
    )


@pytest.mark.requirement("kubernetes:surfaces")
def test_what_of_a_surface_is_redirected_is_told_and_not_let_out(tmp_path: Path) -> None:
    pod = pod_with(["service://web", "egress://"], "expose: [80, 443/udp, 9000]", "transparent")
    assert reported(tmp_path, pod, "surface-redirected", "surface-partly-redirected") == [
        ("surface-partly-redirected", "what one sends to port 80 goes to its proxy"),
        ("surface-partly-redirected", "one reaches governed hosts only on the ports 80 and 443"),
    ]
    opened = allowed(rules_of(tmp_path, pod))
    assert {
        rule.split("l4proto ")[1]
        for rule in opened
        if "100.64.0.0/10, 172" in rule and "169" not in rule
    } == {
        "tcp th dport { 9000 }",
        "udp th dport { 443 }",
    }


@pytest.mark.requirement("kubernetes:surfaces")
def test_other_modes_reach_a_surface_on_any_port(tmp_path: Path) -> None:
    rules = rules_of(tmp_path, pod_with(["service://web"], "expose: [80, 443]"))
    assert "tcp th dport { 80, 443 }" in rules
    assert "redirect" not in rules


@pytest.mark.requirement("kubernetes:surfaces", "kubernetes:not-carried")
def test_a_surface_without_a_port_and_a_port_that_is_none_are_told(tmp_path: Path) -> None:
    odd = "ports: [{target: 9000, protocol: 'tcp accept; flush ruleset'}, {target: 70000}]"
    pod = pod_with(["service://web"], odd)
    messages = [message for _, message in reported(tmp_path, pod, "not-carried")]
    assert len([each for each in messages if "no port of TCP, UDP or SCTP" in each]) == 2
    assert [each for each in messages if "'web' names no port" in each]
    assert "flush ruleset" not in rules_of(tmp_path, pod)


@pytest.mark.requirement("kubernetes:surfaces", "kubernetes:policies")
def test_a_surface_on_one_of_several_is_allowed_by_the_policies_too(tmp_path: Path) -> None:
    two = "  two: {image: 't:1', expose: [9000], x-claw: {agent: AGENTS.md, count: 2}}"
    objects = manifests(tmp_path, agent(", surfaces: ['service://two-1']", rest=two))
    policies = {
        name: each["spec"] for (kind, name), each in objects.items() if kind == "NetworkPolicy"
    }
    assert peers(policies["desk-one"]["egress"], "to") == {"desk", "two-1"}
    assert peers(policies["desk-two-1"]["ingress"], "from") == {"one"}
