"""Random pods: Compose accepts the generated file, and nobody reaches more than the
pod declares.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.compiler import compile_pod
from claw_compile.output.deployment import HOLDER
from tests.compile.composed import DESCRIPTOR, MASTER, networks
from tests.compile.oracle import compose_config

SERVICES = ("desk", "shelf", "store")
type Pod = dict[str, Any]

_networks = st.sampled_from(
    [None, ["default"], ["back"], {"back": {"aliases": ["x"]}}, {"back": None, "default": None}]
)
_waits = st.sampled_from([None, ["one"], {"one": {"condition": "service_started"}}, ["desk"]])
_labels = st.sampled_from([None, ["a=b"], {"a": "b"}])


def _without_nothing(body: Pod) -> Pod:
    return {key: value for key, value in body.items() if value is not None}


@st.composite
def agents(draw: st.DrawFn) -> Pod:
    surfaces = draw(
        st.lists(
            st.sampled_from([f"service://{name}" for name in SERVICES]), unique=True, max_size=2
        )
    )
    surfaces += draw(st.sampled_from([[], ["egress://"], ["volume://notes rw"]]))
    tools = draw(st.lists(st.sampled_from(SERVICES), unique=True, max_size=2))
    claw = {
        "agent": "AGENTS.md",
        "count": draw(st.sampled_from([None, 1, 3])),
        "surfaces": surfaces,
        "tools": [{"service": name, "allow": ["get"]} for name in tools],
        "cllama": {
            "proxy": "passthrough",
            "mode": draw(st.sampled_from(["base-url", "proxy", "transparent"])),
        },
    }
    body = {"image": "runner:1", "labels": draw(_labels), "x-claw": _without_nothing(claw)}
    return _without_nothing(body)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    described = {"expose": ["80"], "x-claw": {"describe-file": "desk.json"}}
    services: Pod = {
        name: _without_nothing(
            {
                "image": f"{name}:1",
                "networks": draw(_networks),
                "labels": draw(_labels),
                **described,
            }
        )
        for name in SERVICES
    }
    services |= {"one": draw(agents()), "two": draw(agents())}
    services["last"] = _without_nothing({"image": "last:1", "depends_on": draw(_waits)})
    return {"name": "p", "x-claw": {"pod": "p"}, "services": services, "networks": {"back": {}}}


@pytest.mark.requirement("compose:oracle", "compose:derived-networks")
@settings(max_examples=40, deadline=None)
@given(pods())
def test_compose_takes_any_pod_and_nobody_reaches_more_than_it_says(pod: Pod) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in (
            ("AGENTS.md", "# C\n"),
            ("desk.json", DESCRIPTOR),
            ("claw-pod.yml", json.dumps(pod)),
        ):
            (directory / file).write_text(text, encoding="utf-8")
        result = compile_pod(directory / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER})
        assert result.value is not None, [
            (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
        ]
        config = compose_config(directory / "compose.generated.yml")
    members = networks(config)
    ours = {network: names for network, names in members.items() if network.startswith("claw-")}
    proxy = {"cllama", HOLDER}
    for agent in ("one", "two"):
        claw = pod["services"][agent]["x-claw"]
        surfaces = {
            each.removeprefix("service://")
            for each in claw["surfaces"]
            if each.startswith("service://")
        }
        count = claw.get("count", 1)
        for container in (
            [agent] if count == 1 else [f"{agent}-{ordinal}" for ordinal in range(count)]
        ):
            (network,) = [network for network, names in members.items() if container in names]
            assert members[network] - proxy == {container, *surfaces}
            assert config["networks"][network].get("internal", False) is (
                "egress://" not in claw["surfaces"]
            )
    called = {
        grant["service"]
        for agent in ("one", "two")
        for grant in pod["services"][agent]["x-claw"]["tools"]
    }
    assert {network for network in ours if network.startswith("claw-tool-")} == {
        f"claw-tool-{name}" for name in called
    }
    for service in SERVICES:
        own = pod["services"][service].get("networks", ["default"])
        assert {
            network
            for network, names in members.items()
            if service in names and network not in ours
        } == set(own)
