"""One behaviour, and where it is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    source: str
    behavior: str
