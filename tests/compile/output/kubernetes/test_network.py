"""The policies between the members of a pod in Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.composed import agent
from tests.compile.manifests import manifests, peers, reaches_the_world


@pytest.mark.requirement("kubernetes:policies")
def test_everything_is_denied_but_what_is_derived(tmp_path: Path) -> None:
    rest = "  hidden: {image: h, networks: [back]}\nnetworks: {back: {internal: true}}"
    objects = manifests(tmp_path, agent(rest=rest))
    policies = {name: each for (kind, name), each in objects.items() if kind == "NetworkPolicy"}
    everybody = policies["desk.deny"]["spec"]
    assert everybody["podSelector"] == {"matchLabels": {"claw.pod": "desk"}}
    assert not {"ingress", "egress"} & everybody.keys()
    assert peers(policies["desk-one"]["spec"]["egress"], "to") == {"desk"}
    assert policies["desk-one"]["spec"]["ingress"] == []
    assert peers(policies["desk-desk"]["spec"]["ingress"], "from") == {"one", "bystander"}
    assert peers(policies["desk-bystander"]["spec"]["egress"], "to") == {"desk"}
    assert policies["desk-hidden"]["spec"]["ingress"] == []
    assert {
        name
        for name, each in policies.items()
        if "egress" in each["spec"] and reaches_the_world(each)
    } == {
        "desk-one",
        "desk-desk",
        "desk-bystander",
    }
