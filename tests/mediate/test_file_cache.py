"""Files that may change at any time: their versions, what is read of them, and credentials."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_contract.secret import Secret, SecretRef
from claw_mediate.file_cache import (
    MAX_FILE_BYTES,
    LookTimer,
    MissingCredentialError,
    file_version,
    is_of_the_file,
    read_file,
    resolve_secret,
)


@pytest.mark.requirement("agents:reload")
def test_a_file_that_changes_has_another_version_even_with_its_old_size_and_time(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tools.json"
    assert file_version(file) is None
    assert file_version(file / "below") is None

    file.write_bytes(b"one")
    first = file_version(file)
    assert first is not None
    assert file_version(file) == first

    before = file.stat()
    replacement = tmp_path / "staged"
    replacement.write_bytes(b"two")
    replacement.rename(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file_version(file) not in {None, first}


def pipe(file: Path) -> None:
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.mkdir()


def too_long(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)


@pytest.mark.requirement("agents:broken")
@pytest.mark.parametrize("make", [pipe, directory, too_long, lambda _: None])
def test_only_a_regular_file_of_a_sane_size_is_read(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    file = tmp_path / "tools.json"
    make(file)
    with pytest.raises(OSError, match=r"regular file|No such file|Is a directory"):
        read_file(file)


@pytest.mark.requirement("agents:broken")
def test_files_of_an_open_directory_are_its_own_after_it_was_replaced(tmp_path: Path) -> None:
    context = tmp_path / "analyst"
    context.mkdir()
    (context / "tools.json").write_bytes(b"old")
    descriptor = os.open(context, os.O_RDONLY | os.O_DIRECTORY)
    try:
        context.rename(tmp_path / "before")
        context.mkdir()
        (context / "tools.json").write_bytes(b"new")
        assert read_file("tools.json", dir_fd=descriptor) == b"old"
    finally:
        os.close(descriptor)


@pytest.mark.requirement("feeds:reference")
def test_a_reference_is_a_file_of_the_secrets_directory_without_its_line_break(
    tmp_path: Path,
) -> None:
    (tmp_path / "desk").write_text("s3cret-of-the-desk\n", encoding="utf-8")
    assert resolve_secret(tmp_path, SecretRef(secret="desk")).reveal() == "s3cret-of-the-desk"
    assert resolve_secret(tmp_path, Secret("literal")).reveal() == "literal"


@pytest.mark.requirement("feeds:reference")
@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_reference_to_no_readable_text_is_a_missing_credential(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "desk").write_bytes(content)
    with pytest.raises(MissingCredentialError):
        resolve_secret(tmp_path, SecretRef(secret="desk"))


@pytest.mark.requirement("agents:reload")
def test_a_look_is_due_after_its_time_and_when_the_clock_went_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.1
    monkeypatch.setattr(time, "monotonic", lambda: now)
    timer = LookTimer(0.05)
    assert timer.is_due()
    timer.restart()
    assert not timer.is_due()
    now = 1000.2
    assert timer.is_due()
    timer.restart()
    now = 3.0
    assert timer.is_due()
    timer.restart()
    assert not timer.is_due()
    timer.reset()
    assert timer.is_due()
    always = LookTimer(0)
    always.restart()
    assert always.is_due()


@pytest.mark.requirement("agents:reload-after-error")
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM])
def test_an_error_of_the_machine_is_none_of_the_file(code: int) -> None:
    assert not is_of_the_file(OSError(code, os.strerror(code)))
    assert is_of_the_file(OSError(errno.EACCES, "Permission denied"))
