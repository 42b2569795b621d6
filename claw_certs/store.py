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

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from claw_certs import safe_fs
from claw_certs.ca import Authority, UnfitError, Wanted, make, read, sound
from claw_certs.key_file import FILE, exposed
from claw_certs.bundle import bundle, certificates

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
    with suppress(FileNotFoundError), safe_fs.directory(None, str(directory)) as top:
        return _kept(top)
    return Kept(None)


def staged(directory: Path, now: datetime) -> Authority:
    """The CA that would sign after a rotation. Raises ``OSError``, and ``StagedError`` where the proxy would refuse it."""
    with safe_fs.directory(None, str(directory)) as top:
        return _staged(top, directory, now)


def init(directory: Path, wanted: Wanted, system: bytes, owner: int | None, *, force: bool = False) -> Kept:
    """A CA where there is none, or with ``force`` in place of what is there; and what is public of it.

    Raises ``OSError``; ``UnfitError`` for one that is there and can't be read.
    """

    def fresh(_: int, private: int) -> None:
        if force or not safe_fs.exists(private, FILE):
            safe_fs.remove(private, NEXT)  # first: staged for the old one, and never to be trusted beside another
            safe_fs.write(private, FILE, make(wanted), 0o600, owner)

    return _changed(directory, system, owner, fresh)


def rotate(directory: Path, wanted: Wanted, system: bytes, owner: int | None) -> Kept:
    """The first step: another CA that is trusted beside the one that signs. Once is enough; again, it mends.

    One that was staged and could not sign is replaced.
    """

    def stages(top: int, private: int) -> None:
        if not safe_fs.exists(private, FILE):
            raise UnfitError("there is no CA yet")
        try:
            _staged(top, directory, wanted.now)
        except StagedError:
            safe_fs.write(private, NEXT, make(wanted), 0o600, owner)

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
    with safe_fs.directory(None, str(directory), 0o755) as top:
        fcntl.flock(top, fcntl.LOCK_EX)
        with safe_fs.directory(top, PRIVATE, 0o700, owner) as private, safe_fs.directory(top, PUBLIC, 0o755) as public:
            for parent, names in ((private, (FILE, NEXT, DH_PARAMETERS)), (public, (BUNDLE, CERTIFICATE))):
                for name in names:
                    safe_fs.remove(parent, safe_fs.unfinished(name))  # of a verb that was killed, perhaps with a key in it
            change(top, private)
            safe_fs.write(private, DH_PARAMETERS, _FFDHE2048, 0o600, owner)
            trusted = [each.trusted for each in _kept(top).all]
            # A runner that has the first and not the second trusts more than it needs, for a moment.
            safe_fs.write(public, BUNDLE, bundle(system, trusted), 0o644)
            safe_fs.write(public, CERTIFICATE, b"".join(trusted), 0o644)
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
    if (opened := safe_fs.read(top, PRIVATE, NEXT)) is None:
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
    opened = safe_fs.read(top, directory, name)
    return None if opened is None else opened[1]
