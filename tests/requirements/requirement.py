"""One behaviour, and its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    source: str
    behavior: str
