"""One known attack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    name: str
    how: str
    """The attacker's input."""
    held_off_by: tuple[str, ...] = ()
    """Ids of requirements."""
    instead: str = ""
    """The reason why there is nothing to attack, if that is so."""
