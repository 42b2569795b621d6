"""Names of a pod file: whatever they are, no two of them become one object in Kubernetes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_compile.diagnostics.diagnostic import Result
from claw_compile.output.kubernetes.objects import object_name
from tests.compile.manifests import compiled, read, spec_of

type Pod = dict[str, Any]

_WORDS = (
    "desk",
    "proxy",
    "env",
    "deny",
    "volume",
    "a",
    "state",
    "secret",
    "secrets",
    "context",
    "auth",
    "ca",
    "public",
    "0",
)
_members = (
    st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3)
    .map("-".join)
    .filter(lambda name: name[0].isalpha())
)
_kept = st.one_of(
    _members, _members.map(str.upper), _members.map(lambda name: name.replace("-", "."))
)


def with_what_they_become(names: list[str]) -> list[str]:
    """Return the names, and the object names made of them: a user may give one
    thing the digested name of another.
    """
    return [
        *dict.fromkeys(
            [*names, *(object_name("desk", name).removeprefix("desk-") for name in names)]
        )
    ]


def pod_of(
    agents: list[str], services: list[str], volumes: list[str], secrets: list[str], count: int = 1
) -> Pod:
    """Return a pod whose agents and services have variables, and whose agents have
    all the volumes.
    """
    claw = {"agent": "AGENTS.md", "cllama": {"proxy": "passthrough", "mode": "transparent"}}
    surfaces = [f"volume://{volume}" for volume in volumes]
    members: Pod = {
        name: {"image": "x", "x-claw": claw | {"surfaces": surfaces}} for name in agents
    }
    members[agents[0]]["x-claw"]["count"] = count
    members |= {
        name: {"image": "x", "expose": [90], "environment": {"A": "b"}} for name in services
    }
    defaults = {
        "proxy": "passthrough",
        "env": {"CLAW_METRICS_ADDR": ":9464", "CLAW_METRICS_TOKEN": "m"},
    }
    named = {name: {"file": "AGENTS.md"} for name in secrets}
    authority = {"pod": "desk", "cllama-defaults": defaults, "secrets": named}
    return {"x-claw": authority, "services": members, "volumes": dict.fromkeys(volumes)}


def names(result: Result[Any]) -> list[tuple[str, str]]:
    """Return kind and name of each object, and of the Secrets that are made by hand."""
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.message) for diagnostic in result.diagnostics
    ]
    documents = yaml.safe_load_all(result.value.deployed.read_text(encoding="utf-8"))
    by_hand = [
        diagnostic.message.split("'")[1]
        for diagnostic in result.diagnostics
        if diagnostic.code.name == "made-by-hand"
    ]
    objects = [(document["kind"], document["metadata"]["name"]) for document in documents]
    return [*objects, *(("Secret", name) for name in by_hand)]


@pytest.mark.requirement("kubernetes:names")
@settings(max_examples=60, deadline=None)
@given(
    members=st.lists(_members, min_size=2, max_size=6, unique=True),
    volumes=st.lists(_kept, max_size=3, unique=True),
    secrets=st.lists(_kept, max_size=3, unique=True),
    count=st.sampled_from([1, 2]),
)
def test_no_two_objects_are_of_one_kind_and_one_name(
    members: list[str], volumes: list[str], secrets: list[str], count: int
) -> None:
    volumes, secrets = with_what_they_become(volumes), with_what_they_become(secrets)
    agents, services = members[: len(members) // 2], members[len(members) // 2 :]
    if count > 1:
        services = [name for name in services if not name.startswith(f"{agents[0]}-")]
        agents = [agents[0], *(name for name in agents[1:] if not name.startswith(f"{agents[0]}-"))]
    with tempfile.TemporaryDirectory() as directory:
        object_names = names(
            compiled(Path(directory), json.dumps(pod_of(agents, services, volumes, secrets, count)))
        )
    assert sorted(set(object_names)) == sorted(object_names)


@pytest.mark.requirement("kubernetes:names")
def test_a_member_takes_neither_the_proxys_settings_nor_a_policy_nor_another_ones_state(
    tmp_path: Path,
) -> None:
    pod = pod_of(["proxy", "deny", "volume-a"], ["b"], ["a-state"], [])
    result = compiled(tmp_path, json.dumps(pod))
    assert result.value is not None
    objects = read(result.value.deployed)
    proxy = spec_of(objects, "desk-proxy")
    (settings_of_proxy,) = (
        each["secretRef"]["name"] for each in proxy["initContainers"][1]["envFrom"]
    )
    (own,) = (each["secretRef"]["name"] for each in proxy["containers"][0]["envFrom"])
    assert "CLAW_METRICS_TOKEN" in objects["Secret", settings_of_proxy]["data"]
    assert not {"CLAW_METRICS_TOKEN", "CLAW_METRICS_ADDR"} & objects["Secret", own]["data"].keys()
    assert objects["NetworkPolicy", "desk.deny"]["spec"]["podSelector"] == {
        "matchLabels": {"claw.pod": "desk"}
    }
    claims = [
        volume
        for volume in spec_of(objects, "desk-volume-a")["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert (
        len({volume["persistentVolumeClaim"]["claimName"] for volume in claims}) == len(claims) == 2
    )


@pytest.mark.requirement("kubernetes:names")
def test_names_whose_digests_are_one_are_refused_with_both_places(tmp_path: Path) -> None:
    long = "v" * 48
    first, second = f"{long}-51865", f"{long}-82733"
    assert object_name("desk", first) == object_name("desk", second)  # a collision, found by search
    volumes = f"""
x-claw: {{pod: desk}}
services:
  one: {{image: x, volumes: ["{first}:/a"]}}
  two: {{image: x, volumes: ["{second}:/a"]}}
volumes: {{{first}: , {second}: }}
"""
    result = compiled(tmp_path, volumes)
    assert result.value is None
    (duplicate,) = (each for each in result.diagnostics if each.code.name == "duplicate-object")
    assert (duplicate.span.line, [note.span.line for note in duplicate.notes]) == (5, [4])
    assert "PersistentVolumeClaim" in duplicate.message
    assert not (tmp_path / ".claw-runtime").exists()
