"""The rules that a step with NET_ADMIN sets: a real kernel accepts and enforces
them, in a network namespace.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from claw_compile.output.compose.proxy_service import REDIRECT, REDIRECTION
from tests.compile.composed import agent, compiled
from tests.compile.manifests import manifests, spec_of
from tests.not_tested import need, skip_for_kernel

IN_A_NAMESPACE = ["unshare", "-Urn", "sh", "-ec"]
TRANSPARENT = "{proxy: passthrough, mode: transparent}"


def accepted(rules: str, then: str = "nft list ruleset") -> str:
    """Return the output of ``then`` after the rules are set twice: a step that is restarted finds
    its rules already there.
    """
    need("nft")
    if subprocess.run([*IN_A_NAMESPACE, "nft list ruleset"], check=False).returncode:
        skip_for_kernel("network namespaces")
    script = f'ip link set lo up; nft "$1"; nft "$1"; {then}'
    result = subprocess.run(
        [*IN_A_NAMESPACE, script, "sh", rules], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.requirement("compose:modes")
def test_the_redirect_of_the_gateway_is_set_once_however_often_its_step_runs(
    tmp_path: Path,
) -> None:
    pod = agent().replace("cllama: passthrough", f"cllama: {TRANSPARENT}")
    assert compiled(tmp_path, pod)["services"][REDIRECT]["command"] == ["nft", REDIRECTION]
    assert accepted(REDIRECTION).count("redirect to :8083") == 1


@pytest.mark.requirement("kubernetes:modes")
@pytest.mark.parametrize("mode", ["passthrough", TRANSPARENT])
@pytest.mark.long
def test_a_pod_that_only_its_proxy_may_leave_is_one_that_nobody_else_leaves(
    mode: str, tmp_path: Path
) -> None:
    pod = agent().replace("cllama: passthrough", f"cllama: {mode}")
    guard = spec_of(manifests(tmp_path, pod), "desk-one")["initContainers"][0]
    assert guard["command"][0] == "nft"
    # Nobody has 192.0.2.9; without the rules a packet to it would leave by the interface of its
    # network.
    others = (
        "ip link add out type veth peer name far; ip addr add 192.0.2.1/24 dev out; ip link "
        "set out up; ip link set far up"
    )
    knock = 'python3 -c \'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.9", 9))\''
    knocking = f"{others}; if {knock} 2>/dev/null; then echo left; else echo stayed; fi"
    assert accepted(guard["command"][1], knocking) == "stayed\n"
    assert accepted("add table inet nothing", knocking) == "left\n"
