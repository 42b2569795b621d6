"""``cllama`` in each of its forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from tests.compile.resolving import agent


@pytest.mark.requirement("compile:proxy")
@pytest.mark.parametrize(
    ("claw", "proxies", "mode"),
    [
        ("", ["passthrough"], "base-url"),
        (", cllama: null", [], "base-url"),
        (", cllama: []", [], "base-url"),
        (", cllama: passthrough", ["passthrough"], "base-url"),
        (", cllama: [passthrough]", ["passthrough"], "base-url"),
        (", cllama: {proxy: [passthrough], mode: transparent}", ["passthrough"], "transparent"),
    ],
)
def test_cllama_takes_a_name_a_list_or_a_mapping(
    tmp_path: Path, claw: str, proxies: list[str], mode: str
) -> None:
    only = agent(tmp_path, claw)
    assert only.cllama is not None
    assert [proxy.text for proxy in only.cllama.proxies] == proxies
    assert (only.has_proxy, only.mode) == (bool(proxies), mode)


@pytest.mark.requirement("compile:proxy", "compile:no-traceback")
@pytest.mark.parametrize("workers", ["9" * 5000, "３", "65"])
def test_workers_that_are_no_number_up_to_64_are_an_error_at_their_place(
    tmp_path: Path, workers: str
) -> None:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    file = tmp_path / "claw-pod.yml"
    file.write_text(
        "x-claw: {pod: desk}\nservices:\n  one:\n    x-claw:\n      agent: AGENTS.md\n"
        f"      cllama:\n        proxy: passthrough\n        workers: '{workers}'\n",
        encoding="utf-8",
    )
    (told,) = (each for each in check_pod(file, {}).diagnostics if each.code.name == "bad-value")
    assert "'workers' is a number from 1 to 64, or auto" in told.message
    assert told.span.line == 8
    assert told.help
