"""The files of history and log, as lines."""

from __future__ import annotations

import os

import pytest

from claw_audit.sources import MAX_LINE_BYTES, read_lines
from tests.audit.proxy_files import ProxyFiles
from tests.audit.test_audit_hostile import report


@pytest.mark.requirement("audit:damaged")
def test_a_file_that_can_not_be_opened_is_named_and_the_others_count(
    files_of_a_turn: ProxyFiles,
) -> None:
    files_of_a_turn.turn("t9", agent="clerk")
    files_of_a_turn.file("clerk").unlink()
    os.mkfifo(files_of_a_turn.file("clerk"))
    result = report(files_of_a_turn, str(files_of_a_turn.log) + ".gone")
    assert result.turns.total == 1
    assert result.unread.files == [
        f"{files_of_a_turn.file('clerk')}: is not a regular file",
        f"{files_of_a_turn.log}.gone: No such file or directory",
    ]


@pytest.mark.requirement("audit:constant-memory")
def test_a_line_that_is_too_long_is_skipped() -> None:
    left = [b"x" * (1 << 20)] * (3 * (MAX_LINE_BYTES >> 20)) + [b"\nshort\n", b"last"]
    result = [(one.number, one.data, one.offset) for one in read_lines(left)]
    size = 3 * MAX_LINE_BYTES
    assert result == [(1, None, 0), (2, b"short\n", size + 1), (3, b"last", size + 7)]
