"""The stages of tests: how much of the real world a test needs.

A test's stage is that of its folder (tests/README.md).

``python -m tests.stages`` writes the examples of that page anew.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePath

STAGES: dict[str, tuple[str, ...]] = {
    "pure": (
        "audit",
        "compile",
        "contract",
        "test_development.py",
        "test_examples.py",
        "test_mirror.py",
        "test_order.py",
        "test_requirements.py",
    ),
    "desk": ("mediate", "turns"),
    "loopback": ("attacks", "cli", "failures", "mcp", "state", "test_peers.py", "tools"),
    "proxy": (
        "certs",
        "crash",
        "docs",
        "fleet",
        "mcp_peers",
        "pods",
        "proxy",
        "sdks",
        "test_bench.py",
        "web",
    ),
    "namespaces": ("gateway", "image"),
}
"""Each stage with its folders, or single modules, of ``tests/``; the cheapest first."""

TESTS = Path(__file__).parent
PAGE = TESTS / "README.md"
_STAGE_OF_PLACE = {place: stage for stage, places in STAGES.items() for place in places}
_EXAMPLE = re.compile(r"(From `([\w/.]+)::(\w+)`:\n\n```python\n)(.*?)(?=```)", re.DOTALL)


def stage_of(file: PurePath) -> str:
    """Return the stage of a test module, given by its path below ``tests/``;
    KeyError if its folder has none.
    """
    return _STAGE_OF_PLACE[file.parts[0]]


def with_examples(page: str) -> str:
    """Return the page with each example as its test stands in the code."""
    return _EXAMPLE.sub(
        lambda example: example[1] + source_of(TESTS / example[2], example[3]), page
    )


def source_of(file: Path, name: str) -> str:
    """Return the lines of a test, its marks included; LookupError if the module has
    no such test.
    """
    source = file.read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min(part.lineno for part in (*node.decorator_list, node))
            return "\n".join([*source.splitlines()[first - 1 : node.end_lineno], ""])
    raise LookupError(f"{file} has no test {name}")


if __name__ == "__main__":
    PAGE.write_text(with_examples(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
