"""The examples in docstrings give the results that they show."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
from pathlib import Path

PACKAGES = (
    *("claw_audit", "claw_certs", "claw_cli", "claw_compile", "claw_contract"),
    *("claw_mcp", "claw_mediate", "claw_state", "claw_tools"),
)


def has_examples(module: str) -> bool:
    """Look for a prompt in the source, which is much faster than to look into each
    object of a module.
    """
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ">>> " in Path(spec.origin).read_text(encoding="utf-8")


def test_the_examples_of_docstrings_hold() -> None:
    held = 0
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # No module of mitm/ has an example, and mitmproxy warns about itself when it is
            # imported.
            if (
                not found.name.endswith("__main__")
                and ".mitm" not in found.name
                and has_examples(found.name)
            ):
                result = doctest.testmod(importlib.import_module(found.name))
                assert result.failed == 0, found.name
                held += result.attempted
    assert held > 0
