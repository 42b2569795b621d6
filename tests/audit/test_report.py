"""The report: its size is bounded, and its form is JSON."""

from __future__ import annotations

import json

import pytest

from claw_audit.bounded_counter import MAX_ROWS, OTHERS
from claw_audit.report import document
from tests.audit.proxy_files import ProxyFiles
from tests.audit.test_audit_hostile import report


@pytest.mark.requirement("audit:constant-memory")
def test_names_beyond_the_limit_share_one_row(files_of_a_turn: ProxyFiles) -> None:
    for number in range(MAX_ROWS + 50):
        files_of_a_turn.ends(f"a{number}", agent=f"agent-{number}")
    result = report(files_of_a_turn, str(files_of_a_turn.log))
    agents = list(result.agents)
    assert len(agents) == MAX_ROWS + 1
    assert (agents[-1].agent, agents[-1].turns.total) == (OTHERS, 51)


@pytest.mark.requirement("audit:merge")
def test_a_report_is_written_as_json_with_its_times_in_utc(files_of_a_turn: ProxyFiles) -> None:
    written = document(report(files_of_a_turn))
    assert json.loads(json.dumps(written)) == written
    assert written["turns"]["total"] == 1
    assert written["first"] == written["last"]
    assert written["first"].endswith("Z")
