"""Write: the one phase that writes the disk.

Specification: docs/spec/contract.md "Layout", docs/spec/compile.md "Verbs"; decision 0019.

    <directory>/.tree/          the compiled tree; exchanged in one rename
    <directory>/context         → .tree/context; so for each name at the tree's top
    <file beside the pod>       renamed into place after the tree

Rules. A reader sees the old tree or the new one at any moment. So does a container that has
``<directory>`` mounted: the directory stays where it is, and the rename happens in it. A kill
leaves a hidden sibling, which the next write removes. Directories are 0700, files 0600 except those
that an agent reads. A directory that the compiler did not make is never replaced.
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
    "context",
    "agents",
    "auth",
    "secrets",
    "tools-hosts",
    "pod-manifest.json",
    "compose.generated.yml",
    "kubernetes.generated.yml",
}
"""The names at the top of a compiled tree."""
TREE = ".tree"  # The directory that is exchanged in one rename, in the directory that stays
_FRESH = f".{TREE}.new-"
# Of <fcntl.h> and <linux/fs.h>, for renameat2(2)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write(
    tree: Tree, directory: Path, beside: Mapping[Path, bytes] | None = None
) -> tuple[Diagnostic, ...]:
    """Replace ``directory`` by ``tree``, and each file of ``beside``, which everybody may read.

    If that can't be done, return a diagnostic, and leave the old tree as it is.

    Everything is on the disk before anything is renamed. The tree is renamed first, so that grants
    that it takes away are gone at once. If the process dies then, the old file beside the tree
    describes what ran so far.
    """
    at = start_of(str(directory))

    # A symlink stays one: the directory that it points at is replaced.
    place = Path(os.path.realpath(directory))
    try:
        foreign = _first_foreign(place)
        if foreign is not None:
            message = f"{quote(foreign)} in it is not ours"
            help_text = "choose a directory that is empty, or not there"
            return (codes.UNWRITABLE_OUTPUT.at(at, message, help_text=help_text),)

        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock_directory(place), _prepare_files(beside or {}) as temporary_files:
            _replace(tree, place)
            for path, temporary in temporary_files.items():
                temporary.replace(path)
    except OSError as error:
        return (codes.UNWRITABLE_OUTPUT.at(at, f"the output can't be written: {error.strerror}"),)
    return ()


def write_master(path: Path, master: Secret) -> tuple[Diagnostic, ...]:
    """Write a new master secret into a file that only its owner reads.

    An existing file is an error, and stays as it is.
    """
    try:
        _create(path, f"{master.reveal()}\n".encode())
    except OSError as error:
        return (_unwritable(path, error),)
    return ()


def replace_file(path: Path, content: bytes) -> tuple[Diagnostic, ...]:
    """Replace one file that is for everybody, in one rename; a symlink stays one."""
    place = Path(os.path.realpath(path))
    # Of its own name: two writers at a time must not share a file.
    temporary = place.with_name(f".{place.name}.new-{secrets.token_hex(4)}")
    try:
        try:
            _create(temporary, content, 0o644)
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        return (_unwritable(path, error),)
    return ()


def _unwritable(path: Path, error: OSError) -> Diagnostic:
    message = f"it can't be written: {error.strerror}"
    return codes.UNWRITABLE_OUTPUT.at(start_of(str(path)), message)


def _first_foreign(place: Path) -> str | None:
    """Return a name in the directory that the compiler did not make, or None."""
    if not place.exists():
        return None
    if not place.is_dir():
        return place.name

    for name in sorted(path.name for path in place.iterdir()):
        is_ours = name == TREE or name in OURS or name.startswith(_FRESH)
        if not is_ours:
            return name
    return None


@contextmanager
def _lock_directory(place: Path) -> Iterator[None]:
    """Hold a lock on the directory.

    Without it two compiles at a time would remove each other's unfinished trees.
    """
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _prepare_files(files: Mapping[Path, bytes]) -> Iterator[Mapping[Path, Path]]:
    """Write each file under a temporary name beside it; give path → temporary path."""
    temporary_files = {path: path.with_name(f".{path.name}.new") for path in files}
    try:
        for path, temporary in temporary_files.items():
            # The rename would fail, and by then the tree would be the new one.
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{path.name} is a directory")
            temporary.unlink(missing_ok=True)
            _create(temporary, files[path], 0o644)
        yield temporary_files
    finally:
        for temporary in temporary_files.values():
            temporary.unlink(missing_ok=True)


def _replace(tree: Tree, place: Path) -> None:
    for leftover in place.glob(f"{_FRESH}*"):
        shutil.rmtree(leftover)

    fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place))
    try:
        for path, content in tree.items():
            for part in reversed(path.parents):
                (fresh / part).mkdir(mode=0o700, exist_ok=True)
            _create(fresh / path, content, 0o644 if is_for_its_agent(path) else 0o600)

        # Links first: one to a new name leads nowhere for a moment, but no name of the new tree is
        # ever missing.
        names = {path.parts[0] for path in tree}
        _link(place, names)
        _swap(fresh, place / TREE)
        for name in OURS - names:
            _remove(place / name)
    finally:
        # After the exchange, ``fresh`` is the old tree; after an error, the unfinished new one.
        if fresh.exists():
            shutil.rmtree(fresh)


def _link(place: Path, names: Iterable[str]) -> None:
    for name in names:
        link = place / name
        if not link.is_symlink():
            # An earlier version of claw wrote a file here, and no link.
            _remove(link)
            link.symlink_to(Path(TREE, name))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _create(path: Path, content: bytes, mode: int = 0o600) -> None:
    # Exclusive: neither an existing file nor a symlink that somebody put there is written to.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask takes away
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, place: Path) -> None:
    if not place.exists():
        fresh.rename(place)
        return
    if _exchange(fresh, place):
        return

    # This system has no atomic exchange: for a moment there is no tree, but never half a one.
    old = Path(tempfile.mkdtemp(prefix=_FRESH, dir=place.parent))
    place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories in one step; return False if the system can't.

    Only Linux has ``renameat2``, and Python has no function for it.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False

    status = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return bool(status == 0)


def read_compiled_tree(directory: Path, compose_file: Path) -> Mapping[PurePosixPath, bytes]:
    """Return the files that the last compile wrote, by path in the tree.

    The Compose file is among them by its name.

    Return nothing where nothing was compiled. Raise ``OSError`` when a file can't be read.
    """
    files: dict[PurePosixPath, bytes] = {}
    if compose_file.is_file():
        files[PurePosixPath(compose_file.name)] = compose_file.read_bytes()

    root = Path(os.path.realpath(directory)) / TREE
    for place, _, names in os.walk(root, onerror=_unreadable):
        for name in names:
            path = Path(place) / name
            # Not through a symlink, and not from a pipe that would wait for ever.
            if stat.S_ISREG(path.lstat().st_mode):
                relative = PurePosixPath(path.relative_to(root).as_posix())
                files[relative] = path.read_bytes()
    return files


def _unreadable(error: OSError) -> None:
    # ``os.walk`` would pass over a directory that it can't list.
    if not isinstance(error, FileNotFoundError):
        raise error
