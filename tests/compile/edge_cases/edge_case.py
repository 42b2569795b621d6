"""An entry of the table of edge cases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EdgeCase:
    """One edge case.

    ``result`` is ours; if the original system behaves differently, ``because`` is the reason.

    A proof is a case (``cases/…``), or a test: ``file::function``, from the tests' directory.
    """

    given: str
    result: str
    proofs: tuple[str, ...]
    because: str = ""


REMEDY = (
    "compile/test_remedies.py::test_a_mistake_is_told_with_what_it_is_about_and_how_it_goes_away"
)
