"""Each module of the source has a test file of its name, in the folder that mirrors its own."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(file.parent.name for file in ROOT.glob("claw_*/__init__.py"))

ALSO = {"claw_mediate": ("turns", "proxy")}
"""Folders that test a package as a whole: transcripts of turns, and the real mitmdump."""

SHOWN_BY: dict[str, str] = {
    # An interface of one implementer
    "claw_mediate/dialects/kept.py": "tests/mediate/dialects/responses/test_kept.py",
    # The interfaces of streams: each dialect has its own
    "claw_mediate/dialects/streams.py": "tests/mediate/dialects/test_base_any_reply.py",
    # An error that each dialect raises
    "claw_mediate/dialects/errors.py": "tests/mediate/dialects/openai/test_failures.py",
    # The ports of a turn: data, and a default that does nothing
    "claw_mediate/turns/ports.py": "tests/mediate/turns/test_replay.py",
    # An interface and its errors: they do nothing until a tool is called
    "claw_tools/tool.py": "tests/tools/test_registry.py",
    "claw_tools/errors.py": "tests/tools/test_registry.py",
    # Standard input and output, which only a process has
    "claw_mcp/stdio_server.py": "tests/tools/test_serve_stdio.py",
}
"""Modules that only a test of something larger can show: the module, or its folder, and that test."""


def modules_with_functions(package: str) -> list[Path]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        module
        for module in sorted((ROOT / package).rglob("*.py"))
        if not module.stem.startswith("__")
        and any(isinstance(node, functions) for node in ast.walk(ast.parse(module.read_text())))
    ]


def has_test_file(module: Path) -> bool:
    package, *below = module.relative_to(ROOT).parent.parts
    tests = ROOT / "tests"
    mirror = tests.joinpath(package.removeprefix("claw_"), *below)
    folders = [mirror, *(tests / folder for folder in ALSO.get(package, ()))]
    return any(
        name == f"test_{module.stem}.py" or name.startswith(f"test_{module.stem}_")
        for folder in folders
        for name in files_of(folder)
    )


@functools.cache
def files_of(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("test_*.py")]


@pytest.mark.requirement("development:tests-mirror-the-source")
@pytest.mark.parametrize("package", PACKAGES)
def test_each_module_has_a_test_file_of_its_name(package: str) -> None:
    missing = [
        name
        for module in modules_with_functions(package)
        if not has_test_file(module)
        and (name := str(module.relative_to(ROOT))) not in SHOWN_BY
        and str(Path(name).parent) not in SHOWN_BY
    ]
    assert missing == []


@pytest.mark.requirement("development:tests-mirror-the-source")
def test_what_is_shown_by_a_larger_test_is_there() -> None:
    assert [name for name in SHOWN_BY if not (ROOT / name).exists()] == []
    assert [test for test in SHOWN_BY.values() if not (ROOT / test).exists()] == []
