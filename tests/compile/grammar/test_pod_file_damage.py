"""Any value at any place of the grammar: diagnostics with places, no traceback, and
no value of a variable.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claw_compile.codes import CODES
from claw_compile.compiler import check_pod, preview
from claw_compile.diagnostics.report import as_json, as_text

ORIGINAL = Path(__file__).parents[1] / "original"
POD = yaml.safe_load((ORIGINAL / "claw-pod.yml").read_text(encoding="utf-8")) | {
    "x-claw-more": None
}
POD["x-claw"]["secrets"] = {
    "one": {"env": "TRADING_API_TOKEN"},
    "two": {"file": "./descriptors/memory.json"},
}
POD["services"]["analyst"]["x-claw"]["service-auth"] = [
    {"service": "trading-api", "secret": "one", "principal": "desk"}
]
POD["services"]["analyst"]["x-claw"]["delivery"] = "native"
POD["services"]["trading-api"]["x-claw"] |= {
    "base-url": "http://trading-api:4000",
    "auth": {"type": "bearer", "env": "TRADING_API_TOKEN"},
    "mcp": {"path": "/mcp"},
}
POD["services"]["wrapped"] = {
    "x-claw": {
        "mcp-stdio": {"command": "npx", "args": ["-y"]},
        "describe-file": "./descriptors/memory.json",
    }
}
PLANTED = "planted-value"
ENVIRON = {
    "OPENROUTER_API_KEY": "planted-provider-key",
    "TRADING_API_TOKEN": "planted-trading-token",
    "OPERATOR_NAME": "planted-name",
    "CLAW_MASTER_SECRET": "planted-master-secret",
}
VALUES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1e400,
        2**70,
        "",
        " ",
        "...",
        "x",
        "${UNSET}",
        "${",
        "é\n",
        "../x",
        "a" * 5000,
    ),
    *([], [None], [[]], ["..."], {}, {"x": 1}),
]
type Step = str | int


def places(node: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Yield every place of the grammar below ``x-claw``, of the pod and of each service."""
    children = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for step, child in children:
        here = (*path, step)
        if "x-claw" in here:
            yield here
        yield from places(child, here)


PLACES = sorted(places(POD), key=str)


def with_value(path: tuple[Step, ...], value: Any) -> Any:
    pod: Any = yaml.safe_load(yaml.safe_dump(POD))
    parent = pod
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return pod


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(ORIGINAL, tmp_path_factory.mktemp("damage") / "pod"))


def judge(directory: Path, pod: Any, planted: str) -> None:
    file = directory / "claw-pod.yml"
    file.write_text(yaml.safe_dump(pod, sort_keys=False), encoding="utf-8")
    result = check_pod(file, {**ENVIRON, "PLANT": planted})
    if result.value is not None:
        preview(result.value)
    assert (result.value is None) == any(diagnostic.is_error for diagnostic in result.diagnostics)
    report = as_text(result.diagnostics) + as_json(result.diagnostics)
    assert not [value for value in (*ENVIRON.values(), PLANTED) if value in report]
    assert all(diagnostic.code.name in CODES for diagnostic in result.diagnostics)


@pytest.mark.requirement("compile:original-pods")
def test_the_pod_is_sound_before_it_is_damaged(directory: Path) -> None:
    judge(directory, POD, PLANTED)
    assert check_pod(directory / "claw-pod.yml", ENVIRON).value is not None


@pytest.mark.requirement("compile:no-traceback")
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(PLACES), value=st.sampled_from(VALUES))
def test_any_value_at_any_place_of_the_grammar_gives_diagnostics_and_raises_nothing(
    directory: Path, path: tuple[Step, ...], value: Any
) -> None:
    judge(directory, with_value(path, value), PLANTED)


@pytest.mark.requirement("compile:secrets-never-printed")
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(PLACES), form=st.sampled_from(["", "/", ".md", "://x", "@b c"]))
def test_no_place_of_the_grammar_shows_the_value_of_its_variable_or_raises(
    directory: Path, path: tuple[Step, ...], form: str
) -> None:
    judge(directory, with_value(path, f"${{PLANT}}{form}"), PLANTED)
