"""The table of edge cases is complete, and names proofs that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claw_compile.codes import CODES
from tests.compile.edge_cases import EDGE_CASES, WORDS

TESTS = Path(__file__).parents[1]


@pytest.mark.requirement("compile:edge-cases")
@pytest.mark.parametrize("name", sorted(EDGE_CASES))
def test_an_edge_case_has_its_proofs(name: str) -> None:
    assert EDGE_CASES[name].proofs
    for proof in EDGE_CASES[name].proofs:
        file, _, function = proof.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        if function:
            assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), proof
        else:
            assert re.search(r"[EW]:[0-9]+", text), proof


@pytest.mark.requirement("compile:edge-cases")
@pytest.mark.parametrize("name", sorted(EDGE_CASES))
def test_a_code_that_an_edge_case_earns_is_expected_by_one_of_its_proofs(name: str) -> None:
    earned = set(re.findall(r"[a-z0-9-]+", EDGE_CASES[name].result)) & CODES.keys()
    proofs = "".join(
        (TESTS / proof.partition("::")[0]).read_text(encoding="utf-8")
        for proof in EDGE_CASES[name].proofs
    )
    assert (
        sorted(code for code in earned if not re.search(rf"(?<![a-z-]){code}(?![a-z-])", proofs))
        == []
    )


@pytest.mark.requirement("compile:edge-cases")
def test_there_are_fifty_of_them() -> None:
    assert EDGE_CASES.keys() == {*map(str, range(1, 41)), *WORDS}
    assert len(EDGE_CASES) == 50
