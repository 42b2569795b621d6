"""The tree is replaced in one step, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

from claw_compile.output import write as writing
from claw_compile.output.write import write

OLD = {PurePosixPath("context/one/AGENTS.md"): b"old"}
NEW = {PurePosixPath("context/one/AGENTS.md"): b"new", PurePosixPath("agents/one/env"): b"A=1\n"}


class ProcessDeath(BaseException):
    """A stand-in for the end of the process."""


class _DyingTree(Mapping[PurePosixPath, bytes]):
    """A tree that ends the process before its second file."""

    def __getitem__(self, key: PurePosixPath) -> bytes:
        return NEW[key]

    def __len__(self) -> int:
        return len(NEW)

    def __iter__(self) -> Iterator[PurePosixPath]:
        yield next(iter(NEW))
        raise ProcessDeath


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def content(directory: Path) -> bytes:
    return (directory / "context/one/AGENTS.md").read_bytes()


@pytest.mark.requirement("compile:private-files")
@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_directories_are_0700_and_files_0600_but_for_those_that_the_agent_reads(
    tmp_path: Path, umask: int
) -> None:
    read = [
        PurePosixPath("context/one", name)
        for name in ("AGENTS.md", "CLAWDAPUS.md", "skills/a/b.md")
    ]
    kept = [
        PurePosixPath(name)
        for name in ("context/one/tools.json", "agents/one/env", "auth/skills/AGENTS.md")
    ]
    before = os.umask(umask)
    try:
        assert write(dict.fromkeys([*read, *kept], b"x"), tmp_path / "out") == ()
    finally:
        os.umask(before)
    tree = tmp_path / "out" / ".tree"
    modes = {path: stat.S_IMODE((tree / path).stat().st_mode) for path in [*read, *kept]}
    assert modes == dict.fromkeys(read, 0o644) | dict.fromkeys(kept, 0o600)
    places = [tmp_path / "out", *(path for path in (tmp_path / "out").rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in places} == {0o700}


@pytest.mark.requirement("compile:atomic")
def test_the_whole_tree_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write(NEW, tmp_path / "out")
    write(OLD, tmp_path / "out")
    assert names(tmp_path / "out") == [".tree", "context"]
    assert content(tmp_path / "out") == b"old"
    assert names(tmp_path) == ["out"]


def test_an_interrupted_write_leaves_the_old_tree(tmp_path: Path) -> None:
    write(OLD, tmp_path / "out")
    with pytest.raises(ProcessDeath):
        write(_DyingTree(), tmp_path / "out")
    assert content(tmp_path / "out") == b"old"
    assert names(tmp_path / "out") == [".tree", "context"]


def test_what_a_kill_left_behind_is_removed_by_the_next_write(tmp_path: Path) -> None:
    (tmp_path / "out" / "..tree.new-abc" / "context").mkdir(parents=True)
    (tmp_path / ".made.yml.new").write_text("half a f", encoding="utf-8")
    assert write(NEW, tmp_path / "out", {tmp_path / "made.yml": b"{}\n"}) == ()
    assert names(tmp_path / "out") == [".tree", "agents", "context"]
    assert names(tmp_path) == ["made.yml", "out"]


def test_a_tree_from_before_there_was_a_directory_that_stays_is_replaced(tmp_path: Path) -> None:
    for name in ("context/one", "auth"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "out/context/one/AGENTS.md").write_bytes(b"older")
    assert write(NEW, tmp_path / "out") == ()
    assert content(tmp_path / "out") == b"new"
    assert names(tmp_path / "out") == [".tree", "agents", "context"]


def test_a_file_beside_the_tree_is_readable_by_all_and_written_with_it(
    tmp_path: Path,
) -> None:
    write(OLD, tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (diagnostic,) = write(
        NEW, tmp_path / "out", {tmp_path / "made.yml": b"{}\n", tmp_path / "taken": b"{}\n"}
    )
    assert diagnostic.code.name == "unwritable-output"
    assert content(tmp_path / "out") == b"old"
    assert names(tmp_path) == ["out", "taken"]
    assert write(NEW, tmp_path / "out", {tmp_path / "made.yml": b"{}\n"}) == ()
    assert stat.S_IMODE((tmp_path / "made.yml").stat().st_mode) == 0o644


def test_a_reader_that_opened_the_old_tree_reads_it_to_the_end(tmp_path: Path) -> None:
    write(OLD, tmp_path / "out")
    held = os.open(tmp_path / "out" / "context" / "one" / "AGENTS.md", os.O_RDONLY)
    write(NEW, tmp_path / "out")
    assert os.read(held, 10) == b"old"
    os.close(held)
    assert content(tmp_path / "out") == b"new"


def test_a_system_without_an_atomic_exchange_still_gets_the_whole_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_exchange", lambda _one, _other: False)
    write(OLD, tmp_path / "out")
    assert write(NEW, tmp_path / "out") == ()
    assert content(tmp_path / "out") == b"new"
    assert names(tmp_path) == ["out"]


@pytest.mark.requirement("compile:never-replaces-foreign-files")
def test_a_directory_with_foreign_files_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("ten years of work", encoding="utf-8")
    (diagnostic,) = write(NEW, tmp_path / "out")
    assert diagnostic.code.name == "unwritable-output"
    assert names(tmp_path / "out") == ["thesis.txt"]


def test_an_output_that_can_not_be_written_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        (diagnostic,) = write(NEW, place)
        assert diagnostic.code.name == "unwritable-output"
