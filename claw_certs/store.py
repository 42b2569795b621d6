"""The pod's CA on the disk: ``.claw-ca`` next to the pod file. No other module writes there.

    private/  0700               the proxy's confdir
      mitmproxy-ca.pem           key and certificates that the proxy signs with
      next-ca.pem                key and certificates that it will sign with after a rotation
      mitmproxy-dhparam.pem      wanted by mitmproxy, which can't write there
    public/   0755
      ca-cert.pem                the roots of both CAs
      ca-bundle.pem              the same roots after the public CAs

Public files are derived from private ones, so that any verb repairs what an interrupted one left
undone. Every file appears complete, with a rename. Below the pod's directory no symlink is
followed, so that no key is written where somebody else points. One verb runs at a time. A staged CA
replaces the signing one only if the proxy would start with it and runners trust it.
"""

import errno
import fcntl
import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import certifi

from claw_certs.ca import Authority, CaRequest, UnfitError, create_ca, parse_ca, parse_valid_ca
from claw_certs.key_file import CA_FILE, exposed_to

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
"""The public group of RFC 7919. Without the file mitmproxy starts only if it can write its own."""

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY_FLAGS = _FILE_FLAGS | os.O_DIRECTORY
_TEMPORARY = ".{}.new"  # name of a file while it is being written
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_SYSTEM_STORES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, Alpine
)


class NoCaError(UnfitError):
    """There is no CA to rotate. ``claw certs init`` is the remedy."""


class StagedCaError(UnfitError):
    """The staged CA can't sign, or there is none. ``claw certs rotate`` is the remedy."""


@dataclass(frozen=True)
class StoredCas:
    """The CAs of a pod, and the certificates that its runners get."""

    signing: Authority | None
    next: Authority | None = None
    """The staged CA, which signs after the rotation."""
    trusted: tuple[bytes, ...] = ()
    """The certificates in ``ca-cert.pem``."""
    bundled: tuple[bytes, ...] = field(default=(), repr=False)
    """The certificates in ``ca-bundle.pem``, with the public CAs."""

    @property
    def all(self) -> tuple[Authority, ...]:
        return tuple(ca for ca in (self.signing, self.next) if ca is not None)

    @property
    def stale_files(self) -> tuple[str, ...]:
        """Names of the public files that do not hold exactly these CAs."""
        roots = {ca.root_pem.strip() for ca in self.all}
        stale = []
        if roots != set(self.trusted):
            stale.append(CERTIFICATE)
        if not roots <= set(self.bundled):
            stale.append(BUNDLE)
        return tuple(stale)

    @property
    def is_trusted(self) -> bool:
        """True if runners trust every CA of the pod."""
        return not self.stale_files


def read_store(directory: Path) -> StoredCas:
    """Return the CAs of a directory. Raise ``OSError``; ``UnfitError`` for a file without a CA."""
    with suppress(FileNotFoundError), open_directory(None, str(directory)) as top:
        return _read_store(top)
    return StoredCas(None)


def read_staged(directory: Path, now: datetime) -> Authority:
    """Return the CA that would sign after a rotation.

    Raise ``OSError``; ``StagedCaError`` if the proxy would refuse it.
    """
    with open_directory(None, str(directory)) as top:
        return _read_staged(top, directory, now)


def init(
    directory: Path,
    request: CaRequest,
    public_cas: bytes,
    owner: int | None,
    *,
    force: bool = False,
) -> StoredCas:
    """Create a CA if there is none, or with ``force`` in any case, and write the public files.

    Raise ``OSError``; ``UnfitError`` for an existing CA that can't be read.
    """

    def create(_: int, private: int) -> None:
        if force or CA_FILE not in os.listdir(private):
            # First, as it was staged for the old CA and must never be trusted beside another.
            remove_file(private, NEXT)
            write_file(private, CA_FILE, create_ca(request), 0o600, owner)

    return _update(directory, public_cas, owner, create)


def rotate(directory: Path, request: CaRequest, public_cas: bytes, owner: int | None) -> StoredCas:
    """Stage another CA, which is trusted beside the signing one: the first step of a rotation.

    A staged CA that can sign is kept; one that can't is replaced. Raise ``OSError``; ``NoCaError``
    if none was made yet; ``UnfitError`` if the new one can't be made, or the old one read.
    """

    def stage(top: int, private: int) -> None:
        if CA_FILE not in os.listdir(private):
            raise NoCaError("there is no CA yet")
        try:
            _read_staged(top, directory, request.now)
        except StagedCaError:
            write_file(private, NEXT, create_ca(request), 0o600, owner)

    return _update(directory, public_cas, owner, stage)


def finish(directory: Path, now: datetime, public_cas: bytes, owner: int | None) -> StoredCas:
    """Let the staged CA sign and drop the old one: the second step of a rotation.

    Raise ``OSError``; ``StagedCaError`` if nothing was changed.
    """

    def replace(top: int, private: int) -> None:
        root = _read_staged(top, directory, now).root_pem.strip()
        for name in (CERTIFICATE, BUNDLE):
            if root not in _read_certificates(top, name):
                file = directory / PUBLIC / name
                raise StagedCaError(
                    f"{file} does not hold {directory / PRIVATE / NEXT}, and so no runner trusts it"
                )
        os.rename(NEXT, CA_FILE, src_dir_fd=private, dst_dir_fd=private)
        os.fsync(private)

    return _update(directory, public_cas, owner, replace)


def _update(
    directory: Path, public_cas: bytes, owner: int | None, change: Callable[[int, int], None]
) -> StoredCas:
    """Apply ``change(top, private)`` under a lock, then write the public files."""
    with open_directory(None, str(directory), 0o755) as top:
        fcntl.flock(top, fcntl.LOCK_EX)
        with (
            open_directory(top, PRIVATE, 0o700, owner) as private,
            open_directory(top, PUBLIC, 0o755) as public,
        ):
            # An interrupted verb may have left temporary files, perhaps with a key.
            for name in (CA_FILE, NEXT, DH_PARAMETERS):
                remove_file(private, _TEMPORARY.format(name))
            for name in (BUNDLE, CERTIFICATE):
                remove_file(public, _TEMPORARY.format(name))

            change(top, private)

            write_file(private, DH_PARAMETERS, _FFDHE2048, 0o600, owner)
            roots = b"".join(ca.root_pem for ca in _read_store(top).all)
            # Between these writes a runner may trust more than it needs, and never less.
            write_file(public, BUNDLE, public_cas + roots, 0o644)
            write_file(public, CERTIFICATE, roots, 0o644)

        return _read_store(top)


def _read_store(top: int) -> StoredCas:
    return StoredCas(
        signing=_read_ca(top, CA_FILE, UnfitError),
        next=_read_ca(top, NEXT, StagedCaError),
        trusted=_read_certificates(top, CERTIFICATE),
        bundled=_read_certificates(top, BUNDLE),
    )


def _read_ca(top: int, name: str, error_type: type[UnfitError]) -> Authority | None:
    """Return the CA of a private file, or None if there is no such file.

    Raise ``error_type`` if the file holds no CA.
    """
    status_and_content = read_file(top, PRIVATE, name)
    if status_and_content is None:
        return None

    _, content = status_and_content
    try:
        return parse_ca(content)
    except UnfitError as error:
        raise error_type(f"{PRIVATE}/{name}: {error}") from None


def _read_staged(top: int, directory: Path, now: datetime) -> Authority:
    """Return the staged CA. Raise ``StagedCaError`` if the proxy would refuse to sign with it."""
    file = directory / PRIVATE / NEXT
    status_and_content = read_file(top, PRIVATE, NEXT)
    if status_and_content is None:
        raise StagedCaError(f"no rotation was begun: there is no {file}")

    status, content = status_and_content
    readers = exposed_to(status, status.st_uid)
    if readers is not None:
        raise StagedCaError(f"the key of the CA {file} is open to {readers}")

    try:
        ca = parse_valid_ca(content, now)
    except UnfitError as error:
        raise StagedCaError(f"the CA {file} can't be used: {error}") from None

    scope = ca.excessive_scope
    if scope is not None:
        raise StagedCaError(f"the CA {file} may sign for {scope}")
    return ca


def _read_certificates(top: int, name: str) -> tuple[bytes, ...]:
    file = read_file(top, PUBLIC, name)
    return tuple(pem_certificates(file[1])) if file is not None else ()


def load_public_cas(file: Path | None) -> tuple[Path, bytes]:
    """Return the file of the public CAs, and their PEM.

    It is the given file, else this machine's own, else certifi's. Raise ``OSError``;
    ``ValueError`` if the given file holds no certificate.
    """
    if file is not None:
        candidates = [file]
    else:
        own_store = ssl.get_default_verify_paths().cafile
        names = [*_SYSTEM_STORES, own_store] if own_store else [*_SYSTEM_STORES]
        stores = [Path(name) for name in names]
        candidates = [store for store in stores if store.is_file()]
        candidates.append(Path(certifi.where()))

    for candidate in candidates:
        blocks = pem_certificates(candidate.read_bytes())
        if blocks:
            return candidate, b"\n".join(blocks) + b"\n"
    raise ValueError(f"{file} holds no certificate")


def pem_certificates(content: bytes) -> list[bytes]:
    """Return the PEM blocks of all certificates in a file, which may hold other text, too."""
    return _CERTIFICATE.findall(content)


def read_file(top: int, directory: str, name: str) -> tuple[os.stat_result, bytes] | None:
    """Return the status and the content of ``directory/name`` below ``top``.

    None if there is no such file.
    """
    try:
        with open_directory(top, directory) as parent:
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=parent)
            with os.fdopen(descriptor, "rb") as file:
                return os.fstat(descriptor), file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _with_name(error, f"{directory}/{name}") from None


@contextmanager
def open_directory(
    parent: int | None, name: str, mode: int | None = None, owner: int | None = None
) -> Iterator[int]:
    """Open a directory. With ``mode``, create it if needed and set its mode and owner."""
    if mode is not None:
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=parent)
    try:
        directory = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
    except OSError as error:
        raise _with_name(error, name) from None

    try:
        if mode is not None:
            if owner is not None:
                os.fchown(directory, owner, -1)
            os.fchmod(directory, mode)  # mkdir's mode is reduced by the umask
        yield directory
    finally:
        os.close(directory)


def write_file(parent: int, name: str, content: bytes, mode: int, owner: int | None = None) -> None:
    """Write a file and put it in place with a rename, flushed to the disk."""
    temporary = _TEMPORARY.format(name)
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            if owner is not None:
                os.fchown(descriptor, owner, -1)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        os.fsync(parent)
    finally:
        remove_file(parent, temporary)


def remove_file(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)


def _with_name(error: OSError, name: str) -> OSError:
    """Return the error with the file's name and a word about symlinks.

    An error of a call with a descriptor has no name.
    """
    is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
    reason = "a symlink, or not a directory: it is not followed" if is_link else error.strerror
    return OSError(error.errno, reason, name)
