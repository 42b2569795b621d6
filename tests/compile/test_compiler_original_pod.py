"""A pod of the original system, with every key of its grammar: it compiles, and each key that is
not acted on warns once.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from claw_compile.compiler import check_pod, preview
from claw_compile.grammar.pod_file import ORIGINAL_POD_KEYS, ORIGINAL_SERVICE_KEYS
from claw_compile.loading.load import load
from claw_compile.output.emit import carried_data
from claw_compile.parsing.node import Source
from claw_compile.parsing.yaml_reader import read_yaml

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
    carried = [
        each.message.split("'")[1]
        for each in result.diagnostics
        if each.code.name == "not-acted-on"
    ]
    # The keys of the pod and of its services; claw-api and channel-memory may be in either.
    assert sorted(carried) == sorted(
        {*(key.name for key in (*ORIGINAL_POD_KEYS, *ORIGINAL_SERVICE_KEYS)), "context.channel"}
    )
    others = {each.code.name for each in result.diagnostics} - {"not-acted-on"}
    assert others == {"write-granted-by-all", "grant-beside-surface"}


@pytest.mark.requirement("compile:order-of-yaml-is-no-matter")
def test_the_order_of_its_keys_changes_no_byte(tmp_path: Path) -> None:
    pod = yaml.safe_load(POD.read_text(encoding="utf-8"))
    trees = []
    for seed in (1, 2):
        directory = tmp_path / str(seed) / "pod"
        shutil.copytree(POD.parent, directory)
        text = yaml.safe_dump(shuffled(pod, random.Random(seed)), sort_keys=False)
        (directory / "claw-pod.yml").write_text(text, encoding="utf-8")
        plan = check_pod(directory / "claw-pod.yml", ENVIRON).value
        assert plan is not None
        trees.append(preview(plan))
    assert trees[0] == trees[1]


def shuffled(data: Any, dice: random.Random) -> Any:
    """Return the data with the keys of every mapping in another order; lists keep
    theirs, which may mean something.
    """
    match data:
        case dict():
            keys = dice.sample(list(data), len(data))
            return {key: shuffled(data[key], dice) for key in keys}
        case list():
            return [shuffled(each, dice) for each in data]
        case _:
            return data


@pytest.mark.requirement("compile:original-pods")
def test_what_is_carried_is_as_it_is_written() -> None:
    loaded = load(POD, ENVIRON).value
    assert loaded is not None
    chief = loaded.pod.service("chief")
    assert chief is not None
    invoked = carried_data(chief.carried["invoke"])
    # The variable's name, and not its value: pod-manifest.json is no place for secrets.
    assert invoked[0]["message"] == "Open the desk, ${OPERATOR_NAME}."
    # The handles of the pod and those of a service are both there, and are not merged.
    assert (
        carried_data(loaded.pod.carried["handles-defaults"])["discord"]["guilds"][0]["name"]
        == "desk"
    )
    assert carried_data(chief.carried["handles"]) == {"discord": "123456789012345678"}


@pytest.mark.requirement("compile:original-pods")
@pytest.mark.parametrize(
    ("written", "carried"),
    [
        ("0123", "0123"),
        ("40", 40),
        ("9007199254740993", "9007199254740993"),
        (".inf", ".inf"),
        ("1e400", "1e400"),
        ("0.50", "0.50"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("'40'", "40"),
        ("{b: 1, a: [x]}", {"a": ["x"], "b": 1}),
    ],
)
def test_numbers_that_readers_would_have_otherwise_are_carried_in_their_spelling(
    written: str, carried: object
) -> None:
    root = read_yaml(Source("pod", f"key: {written}\n")).value
    assert root is not None
    data = carried_data(root.entries[0].value)
    assert (data, type(data)) == (carried, type(carried))
