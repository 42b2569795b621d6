"""Write: the one phase that writes the disk (docs/spec/contract.md "Layout", docs/spec/compile.md
"Verbs"; decision 0019).

    <directory>/.tree/          the compiled tree; exchanged in one rename
    <directory>/context         → .tree/context; so for each name at the tree's top
    <file beside the pod>       renamed into place behind the tree

Rules. Who reads at any moment sees the old tree or the new one, also a container that has
``<directory>`` mounted: it stays where it is, and the rename happens in it. A kill leaves a hidden
sibling, which the next write removes. Directories are 0700, files 0600 but for those that an agent
reads. A directory that the compiler did not make is never replaced.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, quote, start_of
from claw_compile.output.emit import Tree, is_for_its_agent
from claw_contract.secret import Secret

OURS = {
    *("context", "agents", "auth", "secrets", "tools-hosts"),
    *("pod-manifest.json", "compose.generated.yml", "kubernetes.generated.yml"),
}
"""The names at the top of a compiled tree."""
TREE = ".tree"  # The directory that is exchanged in one rename, in the directory that stays
_FRESH = f".{TREE}.new-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write(
    tree: Tree, directory: Path, beside: Mapping[Path, bytes] | None = None
) -> tuple[Diagnostic, ...]:
    """Replace ``directory`` by ``tree``, and each file of ``beside``, which is for
    everybody to read.

    A diagnostic, and the old tree untouched, when that can't be done. The tree comes first: what it
    takes away is gone at once, and a file that is older than it describes what ran so far. All is
    on the disk before anything is renamed.
    """
    at = start_of(str(directory))
    # A symlink stays one: what it points at is replaced.
    place = Path(os.path.realpath(directory))
    try:
        if (foreign := _first_foreign(place)) is not None:
            help_text = "choose a directory that is empty, or not there"
            return (
                codes.UNWRITABLE_OUTPUT.at(
                    at, f"{quote(foreign)} in it is not ours", help_text=help_text
                ),
            )
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock_directory(place), _prepare_files(beside or {}) as temporary_files:
            _replace(tree, place)
            for path, ready in temporary_files.items():
                ready.replace(path)
    except OSError as error:
        return (codes.UNWRITABLE_OUTPUT.at(at, f"the output can't be written: {error.strerror}"),)
    return ()


def write_master(path: Path, master: Secret) -> tuple[Diagnostic, ...]:
    """Write a new master secret into a file that only its owner reads; an existing
    file is an error, and kept.
    """
    try:
        _create(path, f"{master.reveal()}\n".encode())
    except OSError as error:
        return (
            codes.UNWRITABLE_OUTPUT.at(
                start_of(str(path)), f"it can't be written: {error.strerror}"
            ),
        )
    return ()


def replace_file(path: Path, content: bytes) -> tuple[Diagnostic, ...]:
    """Replace one file that is for everybody, in one rename; a symlink stays one."""
    place = Path(os.path.realpath(path))
    fresh = place.with_name(f".{place.name}.new-{secrets.token_hex(4)}")
    try:
        try:
            _create(fresh, content, 0o644)
            fresh.replace(place)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        return (
            codes.UNWRITABLE_OUTPUT.at(
                start_of(str(path)), f"it can't be written: {error.strerror}"
            ),
        )
    return ()


def _first_foreign(place: Path) -> str | None:
    if not place.exists():
        return None
    if not place.is_dir():
        return place.name
    names = sorted(path.name for path in place.iterdir())
    return next(
        (name for name in names if name not in {TREE, *OURS} and not name.startswith(_FRESH)), None
    )


@contextmanager
def _lock_directory(place: Path) -> Iterator[None]:
    """Hold a lock on the directory: two compiles at a time would remove each
    other's unfinished trees.
    """
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _prepare_files(files: Mapping[Path, bytes]) -> Iterator[Mapping[Path, Path]]:
    ready = {path: path.with_name(f".{path.name}.new") for path in files}
    try:
        for path, temporary in ready.items():
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{path.name} is a directory")
            temporary.unlink(missing_ok=True)
            _create(temporary, files[path], 0o644)
        yield ready
    finally:
        for temporary in ready.values():
            temporary.unlink(missing_ok=True)


def _replace(tree: Tree, place: Path) -> None:
    for left_over in place.glob(f"{_FRESH}*"):
        shutil.rmtree(left_over)
    fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place))
    try:
        for path, content in tree.items():
            for part in reversed(path.parents):
                (fresh / part).mkdir(mode=0o700, exist_ok=True)
            _create(fresh / path, content, 0o644 if is_for_its_agent(path) else 0o600)
        names = {path.parts[0] for path in tree}
        _link(place, names)
        _swap(fresh, place / TREE)
        for name in OURS - names:
            _remove(place / name)
    finally:
        # The old tree after the exchange, or the unfinished new one.
        if fresh.exists():
            shutil.rmtree(fresh)


def _link(place: Path, names: Iterable[str]) -> None:
    for name in names:
        link = place / name
        if not link.is_symlink():
            _remove(link)  # from before there was a directory that stays
            link.symlink_to(Path(TREE, name))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _create(path: Path, content: bytes, mode: int = 0o600) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask takes away
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, place: Path) -> None:
    if not place.exists():
        fresh.rename(place)
    elif not _exchange(fresh, place):
        # No atomic exchange on this system: for a moment there is no tree, and never half a one.
        old = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place.parent))
        place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(
        rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
    )


def read_compiled_tree(directory: Path, compose_file: Path) -> Mapping[PurePosixPath, bytes]:
    """Return the files that the last compile wrote, by path in the tree, and the
    Compose file by its name.

    Return nothing where nothing was compiled. Raise ``OSError`` when a file can't be read.
    """
    root = Path(os.path.realpath(directory)) / TREE
    files: dict[PurePosixPath, bytes] = {}
    if compose_file.is_file():
        files[PurePosixPath(compose_file.name)] = compose_file.read_bytes()
    for place, _, names in os.walk(root, onerror=_unreadable):
        for name in names:
            path = Path(place) / name
            if stat.S_ISREG(path.lstat().st_mode):
                files[PurePosixPath(path.relative_to(root).as_posix())] = path.read_bytes()
    return files


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
