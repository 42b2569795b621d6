"""The file with the CA's key, checked before mitmproxy signs with it.

Only the owner may read the key. A group may read it if the proxy does not own the file and reads it
as a member of that group, as with a Secret of Kubernetes. Each problem is one line with its remedy.
"""

import os
import stat
from datetime import datetime
from pathlib import Path

from claw_certs.ca import Authority, UnfitError, parse_valid_ca

CA_FILE = "mitmproxy-ca.pem"


def load_ca(directory: Path, now: datetime, passphrase: bytes | None = None) -> Authority | None:
    """Return the CA in mitmproxy's ``confdir``, or None.

    Raise ``UnfitError`` with one line that has the remedy.
    """
    file = directory / CA_FILE
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnfitError(
            f"the CA {file} can't be read: {error.strerror} (it must belong to who runs the proxy)"
        ) from None

    readers = exposed_to(status)
    if readers is not None:
        raise UnfitError(
            f"the key of the CA {file} is open to {readers}: chmod 600 {file}, or make "
            "another if it was read"
        )

    try:
        return parse_valid_ca(content, now, passphrase)
    except UnfitError as error:
        raise UnfitError(
            f"the CA {file} can't be used: {error} (`claw certs init --force` makes another)"
        ) from None


def exposed_to(status: os.stat_result, proxy: int | None = None) -> str | None:
    """Return who may wrongly read or write the key, or None.

    ``proxy``: the proxy's user, if it is not this process's.
    """
    if status.st_mode & stat.S_IRWXO:
        return "everybody"

    if status.st_mode & stat.S_IWGRP:
        return "its group"

    # A proxy that owns the file does not read it as a member of the group: others would.
    proxy_user = os.geteuid() if proxy is None else proxy
    is_owner = status.st_uid == proxy_user
    if is_owner and status.st_mode & stat.S_IRWXG:
        return "its group"
    return None
