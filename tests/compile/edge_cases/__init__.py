"""Fifty edge cases of the original system, the result of each here, and the tests that prove it.

Forty have a number as their key, ten a word.
"""

from __future__ import annotations

from tests.compile.edge_cases.descriptors import DESCRIPTORS
from tests.compile.edge_cases.edge_case import EdgeCase
from tests.compile.edge_cases.files import FILES
from tests.compile.edge_cases.grammar import GRAMMAR
from tests.compile.edge_cases.output import OUTPUT

EDGE_CASES: dict[str, EdgeCase] = GRAMMAR | DESCRIPTORS | FILES | OUTPUT
WORDS = {
    *(
        "label",
        "stale",
        "ambiguous-feed",
        "many-feeds",
        "no-models",
        "unreachable",
        "healthcheck",
        "networks",
        "colon",
    ),
    "handles",
}
