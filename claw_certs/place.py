"""The pod's CA on the disk: ``.claw-ca`` beside the pod file, and the only code that writes there.

    private/  0700   mitmproxy-ca.pem       key and certificates that the proxy signs with; the directory is its confdir
                     next-ca.pem            those that it will sign with after a rotation
                     mitmproxy-dhparam.pem  wanted by mitmproxy, which can't write there
    public/   0755   ca-cert.pem            the roots of both
                     ca-bundle.pem          the same behind the public CAs

Rules. What is public is made from what is private, so that any verb mends what a kill left undone. Every file appears whole,
by a rename. No symlink is followed below the pod's directory: a key must not be written where somebody else points. One
verb at a time. A CA that signs goes for one only that the proxy would start on, and that runners were given.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from claw_certs.authority import Authority, UnfitError, Wanted, make, read, sound
from claw_certs.key_file import FILE, exposed
from claw_certs.public import bundle, certificates

NEXT = "next-ca.pem"
DH_PARAMETERS = "mitmproxy-dhparam.pem"
CERTIFICATE, BUNDLE = "ca-cert.pem", "ca-bundle.pem"
PRIVATE, PUBLIC = "private", "public"
_FFDHE2048 = b"""\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
"""
"""The group of RFC 7919: public, and mitmproxy starts without it only where it can write its own."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class StagedError(UnfitError):
    """Why the CA that was staged can't sign, or that there is none: ``rotate`` mends it."""


@dataclass(frozen=True)
class Kept:
    """The CAs of a pod. ``next`` waits for its turn; runners get ``trusted`` alone, or ``bundled`` with the public ones."""

    signing: Authority | None
    next: Authority | None = None
    trusted: tuple[bytes, ...] = ()
    bundled: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def all(self) -> tuple[Authority, ...]:
        return tuple(each for each in (self.signing, self.next) if each is not None)

    @property
    def stale(self) -> tuple[str, ...]:
        """The public files that are not of these."""
        own = {each.trusted.strip() for each in self.all}
        holds = {CERTIFICATE: own == set(self.trusted), BUNDLE: own <= set(self.bundled)}
        return tuple(name for name, is_whole in holds.items() if not is_whole)

    @property
    def is_trusted(self) -> bool:
        """Whether runners get these."""
        return not self.stale


def kept(directory: Path) -> Kept:
    """What is there now. Raises ``OSError``, and ``UnfitError`` for a file that holds no CA."""
    with suppress(FileNotFoundError), _directory(None, str(directory)) as top:
        return _kept(top)
    return Kept(None)


def staged(directory: Path, now: datetime) -> Authority:
    """The CA that would sign after a rotation. Raises ``OSError``, and ``StagedError`` where the proxy would refuse it."""
    with _directory(None, str(directory)) as top:
        return _staged(top, directory, now)


def init(directory: Path, wanted: Wanted, system: bytes, owner: int | None, *, force: bool = False) -> Kept:
    """A CA where there is none, or with ``force`` in place of what is there; and what is public of it.

    Raises ``OSError``; ``UnfitError`` for one that is there and can't be read.
    """

    def fresh(_: int, private: int) -> None:
        if force or not _exists(private, FILE):
            _remove(private, NEXT)  # first: staged for the old one, and never to be trusted beside another
            _write(private, FILE, make(wanted), 0o600, owner)

    return _changed(directory, system, owner, fresh)


def rotate(directory: Path, wanted: Wanted, system: bytes, owner: int | None) -> Kept:
    """The first step: another CA that is trusted beside the one that signs. Once is enough; again, it mends.

    One that was staged and could not sign is replaced.
    """

    def stages(top: int, private: int) -> None:
        if not _exists(private, FILE):
            raise UnfitError("there is no CA yet")
        try:
            _staged(top, directory, wanted.now)
        except StagedError:
            _write(private, NEXT, make(wanted), 0o600, owner)

    return _changed(directory, system, owner, stages)


def finish(directory: Path, now: datetime, system: bytes, owner: int | None) -> Kept:
    """The second step: the CA that was staged signs, and the old one is gone.

    Raises ``OSError``; ``StagedError`` where nothing is changed.
    """

    def signs(top: int, private: int) -> None:
        root = _staged(top, directory, now).trusted.strip()
        for name in (CERTIFICATE, BUNDLE):
            if root not in _public(top, name):
                held = directory / PUBLIC / name
                raise StagedError(f"{held} does not hold {directory / PRIVATE / NEXT}, and so no runner trusts it")
        os.rename(NEXT, FILE, src_dir_fd=private, dst_dir_fd=private)
        os.fsync(private)

    return _changed(directory, system, owner, signs)


def _changed(directory: Path, system: bytes, owner: int | None, change: Callable[[int, int], None]) -> Kept:
    with _directory(None, str(directory), 0o755) as top:
        fcntl.flock(top, fcntl.LOCK_EX)
        with _directory(top, PRIVATE, 0o700, owner) as private, _directory(top, PUBLIC, 0o755) as public:
            for parent, names in ((private, (FILE, NEXT, DH_PARAMETERS)), (public, (BUNDLE, CERTIFICATE))):
                for name in names:
                    _remove(parent, _fresh(name))  # of a verb that was killed, perhaps with a key in it
            change(top, private)
            _write(private, DH_PARAMETERS, _FFDHE2048, 0o600, owner)
            trusted = [each.trusted for each in _kept(top).all]
            # A runner that has the first and not the second trusts more than it needs, for a moment.
            _write(public, BUNDLE, bundle(system, trusted), 0o644)
            _write(public, CERTIFICATE, b"".join(trusted), 0o644)
        return _kept(top)


def _kept(top: int) -> Kept:
    found = []
    for name in (FILE, NEXT):
        content = _content(top, PRIVATE, name)
        try:
            found.append(None if content is None else read(content))
        except UnfitError as error:
            unfit = StagedError if name == NEXT else UnfitError
            raise unfit(f"{PRIVATE}/{name}: {error}") from None
    return Kept(found[0], found[1], _public(top, CERTIFICATE), _public(top, BUNDLE))


def _staged(top: int, directory: Path, now: datetime) -> Authority:
    file = directory / PRIVATE / NEXT
    if (opened := _opened(top, PRIVATE, NEXT)) is None:
        raise StagedError(f"no rotation was begun: there is no {file}")
    about, content = opened
    if (readers := exposed(about, about.st_uid)) is not None:
        raise StagedError(f"the key of the CA {file} is open to {readers}")
    try:
        found = sound(content, now)
    except UnfitError as error:
        raise StagedError(f"the CA {file} can't be used: {error}") from None
    if (wide := found.too_wide) is not None:
        raise StagedError(f"the CA {file} may sign for {wide}")
    return found


def _public(top: int, name: str) -> tuple[bytes, ...]:
    return tuple(certificates(_content(top, PUBLIC, name) or b""))


def _content(top: int, directory: str, name: str) -> bytes | None:
    opened = _opened(top, directory, name)
    return None if opened is None else opened[1]


def _opened(top: int, directory: str, name: str) -> tuple[os.stat_result, bytes] | None:
    """Of one and the same file."""
    try:
        with (
            _directory(top, directory) as parent,
            os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent), "rb") as file,
        ):
            return os.fstat(file.fileno()), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _named(error, f"{directory}/{name}") from None


@contextmanager
def _directory(parent: int | None, name: str, mode: int | None = None, owner: int | None = None) -> Iterator[int]:
    """A directory, open; with ``mode`` it is made, and has that mode."""
    if mode is not None:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
    try:
        opened = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise _named(error, name) from None
    try:
        if mode is not None:
            if owner is not None:
                os.fchown(opened, owner, -1)
            os.fchmod(opened, mode)  # whatever the umask takes away
        yield opened
    finally:
        os.close(opened)


def _write(parent: int, name: str, content: bytes, mode: int, owner: int | None = None) -> None:
    """One file, whole or not at all."""
    fresh = _fresh(name)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, owner, -1)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(fresh, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    finally:
        _remove(parent, fresh)


def _fresh(name: str) -> str:
    return f".{name}.new"


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _named(error: OSError, name: str) -> OSError:
    """Which file it was: a descriptor's error does not say. A symlink is told as one."""
    is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
    return OSError(error.errno, "a symlink, or no directory: it is not followed" if is_link else error.strerror, name)
