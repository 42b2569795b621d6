"""Every behaviour that the specification asks for, as data: id → source and one sentence. A module for each area.

``test_requirements.py`` fails when an entry has no test, or when a test names an entry that is not here.
Read these lists to learn what was built.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.requirements.requirement import Requirement

AREAS: dict[str, dict[str, Requirement]] = {
    area.name: import_module(f"{__name__}.{area.name}").REQUIREMENTS
    for area in iter_modules(__path__)
    if area.name != "requirement"
}

REQUIREMENTS: dict[str, Requirement] = {
    name: requirement for area in AREAS.values() for name, requirement in area.items()
}
