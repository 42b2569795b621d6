"""A pod's files as they are loaded: what is none is one diagnostic."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod


def only_code(pod_file: Path) -> str:
    result = check_pod(pod_file, {})
    assert result.value is None
    (diagnostic,) = result.diagnostics
    assert (diagnostic.span.file, diagnostic.span.line) == (str(pod_file), 1)
    return diagnostic.code.name


@pytest.mark.requirement("compile:no-traceback")
def test_a_pod_file_that_is_missing_a_directory_or_a_pipe_is_one_diagnostic(tmp_path: Path) -> None:
    assert only_code(tmp_path / "nothing.yml") == "unreadable-file"
    assert only_code(tmp_path) == "unreadable-file"
    os.mkfifo(tmp_path / "pipe")
    assert only_code(tmp_path / "pipe") == "unreadable-file"
    (tmp_path / "latin1.yml").write_bytes(b"x-claw: caf\xe9\n")
    assert only_code(tmp_path / "latin1.yml") == "not-utf8"
    (tmp_path / "empty.yml").write_bytes(b"# nothing\n")
    assert only_code(tmp_path / "empty.yml") == "not-a-mapping"
