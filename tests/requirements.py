"""Every behaviour that the specification asks for, as data: id → source and one sentence.

``test_requirements.py`` fails when an entry has no test, or when a test names an entry that is not here.
Read this list to learn what was built.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    source: str
    behavior: str


CONTRACT: dict[str, Requirement] = {}

COMPILE: dict[str, Requirement] = {}

MEDIATE: dict[str, Requirement] = {}

PROXY: dict[str, Requirement] = {}

REQUIREMENTS = CONTRACT | COMPILE | MEDIATE | PROXY
