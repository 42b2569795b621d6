"""A pod of the original system, with every key of its grammar: it compiles, and what is not acted on is told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.grammar.read_original import ORIGINAL_POD_KEYS, ORIGINAL_SERVICE_KEYS
from claw_compile.loading.load import load
from claw_compile.reading.node import plain_data

POD = Path(__file__).parent / "original" / "claw-pod.yml"
ENVIRON = {
    "OPENROUTER_API_KEY": "planted-provider-key",
    "TRADING_API_TOKEN": "planted-trading-token",
    "OPERATOR_NAME": "planted-name",
    "CLAW_MASTER_SECRET": "planted-master-secret",
}


@pytest.mark.requirement("compile:original-pods")
def test_a_pod_of_the_original_compiles_and_each_key_that_is_only_carried_warns_once() -> None:
    result = check_pod(POD, ENVIRON)
    assert [str(each) for each in result.diagnostics if each.is_error] == []
    assert result.value is not None
    carried = [each.message.split("'")[1] for each in result.diagnostics if each.code.name == "not-acted-on"]
    # Of the pod and of its services; claw-api and channel-memory may stand in either.
    assert sorted(carried) == sorted({*ORIGINAL_POD_KEYS, *ORIGINAL_SERVICE_KEYS, "context.channel"})
    others = {each.code.name for each in result.diagnostics} - {"not-acted-on"}
    assert others == {"write-granted-by-all", "grant-beside-surface"}


@pytest.mark.requirement("compile:original-pods")
def test_what_is_carried_is_as_it_is_written() -> None:
    loaded = load(POD, ENVIRON).value
    assert loaded is not None
    chief = loaded.pod.service("chief")
    assert chief is not None
    invoked = plain_data(chief.carried["invoke"])
    # The name of the variable, and not its value: pod-manifest.json is no place for secrets.
    assert invoked[0]["message"] == "Open the desk, ${OPERATOR_NAME}."
    # A handle of the pod and one of a service are both there, and nothing merges them.
    assert plain_data(loaded.pod.carried["handles-defaults"])["discord"]["guilds"][0]["name"] == "desk"
    assert plain_data(chief.carried["handles"]) == {"discord": 123456789012345678}
