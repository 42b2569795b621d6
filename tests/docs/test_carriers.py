"""The carriers of a request that ARCHITECTURE.md lists."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "scripts" / "check_structure.py"))
CLASS = """
class Holder:
    route: Route | None
    def __init__(self, context: "TurnContext", *, ports: Ports | None = None) -> None: ...
    def other(self, call: ModelCall) -> None: ...
"""


@pytest.mark.requirement("development:carriers")
def test_a_class_is_given_its_fields_and_the_parameters_with_which_it_is_made() -> None:
    (holder,) = ast.parse(CLASS).body
    assert {*CHECK["given_types"](holder)} == {"Route", "None", "TurnContext", "Ports"}


@pytest.mark.requirement("development:carriers")
def test_every_class_that_is_given_a_carrier_is_on_the_page() -> None:
    modules = [CHECK["read"](path) for path in sorted((ROOT / "claw_mediate").rglob("*.py"))]
    modules += [CHECK["read"](ROOT / "claw_state" / "journal.py")]
    carriers, wrong = CHECK["carriers_of_request"](modules)
    assert wrong == []
    assert len(carriers) == 16
