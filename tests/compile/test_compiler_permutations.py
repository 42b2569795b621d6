"""The order of mappings and grants: whatever it is, the compiled bytes are the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claw_compile.compiler import check_pod, preview
from tests.compile.planted import ENVIRON, planted_pod
from tests.compile.worked_pods import WORKED_PODS
from tests.search_size import scale_examples

WITHOUT_ORDER = {"tools", "tools-defaults", "allow", "deny", "service-auth"}


def permuted(node: Any, random: Random, key: str = "") -> Any:
    """Return the data with its mappings and lists of grants in another order."""
    if isinstance(node, dict):
        items = list(node.items())
        random.shuffle(items)
        return {name: permuted(value, random, name) for name, value in items}
    if isinstance(node, list):
        items = [permuted(item, random) for item in node]
        if key in WITHOUT_ORDER:
            random.shuffle(items)
        return items
    return node


def compiled(pod: Path, environ: dict[str, str]) -> Any:
    plan = check_pod(pod, environ).value
    assert plan is not None
    return preview(plan)


@pytest.mark.requirement("compile:order-of-yaml-is-no-matter", "compile:same-input-same-bytes")
@pytest.mark.parametrize("name", ["planted", *(pod.name for pod in WORKED_PODS)])
def test_any_permutation_of_mappings_and_grants_compiles_to_the_same_bytes(
    tmp_path: Path, name: str
) -> None:
    if name == "planted":
        pod, environ = planted_pod(tmp_path / "pod"), ENVIRON
    else:
        worked = next(each for each in WORKED_PODS if each.name == name)
        pod, environ = worked.copy(tmp_path), dict(worked.environ)
    written = yaml.safe_load(pod.read_text(encoding="utf-8"))
    pod.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    expected = compiled(pod, environ)

    @settings(
        max_examples=scale_examples(60),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.randoms(use_true_random=False))
    def judge(random: Random) -> None:
        pod.write_text(yaml.safe_dump(permuted(written, random), sort_keys=False), encoding="utf-8")
        assert compiled(pod, environ) == expected

    judge()
