"""docs/failures.md is the table with which the product is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failures.live import LIVE_FAILURES
from tests.failures.provider import FAILURES
from tests.failures.table import page
from tests.requirements import REQUIREMENTS


@pytest.mark.requirement("failure:documented")
def test_the_page_is_the_table() -> None:
    file = Path(__file__).parent.parent.parent / "docs" / "failures.md"
    assert file.read_text(encoding="utf-8") == page(), (
        "python -m tests.failures.table > docs/failures.md"
    )


def test_no_failure_is_told_twice() -> None:
    assert (
        len({failure.name for failure in FAILURES})
        == len({failure.what for failure in FAILURES})
        == len(FAILURES)
    )


@pytest.mark.requirement("failure:documented")
def test_each_failure_of_a_live_turn_is_shown_by_tests() -> None:
    for failure in LIVE_FAILURES:
        assert failure.shown_by, failure.what
        assert [each for each in failure.shown_by if each not in REQUIREMENTS] == []
