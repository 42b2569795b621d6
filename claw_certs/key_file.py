"""The file that mitmproxy signs with, looked at before it does (issue 6 item 2).

Rules. Nobody but its owner reads the key; a group does only where the proxy itself reads it by that group and does not own
it, as with a Secret of Kubernetes. Each flaw is one line with its remedy.
"""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

from claw_certs.ca import Authority, UnfitError, sound

FILE = "mitmproxy-ca.pem"
_OTHERS = stat.S_IRWXO
_GROUP = stat.S_IRWXG


def of_directory(directory: Path, now: datetime, passphrase: bytes | None = None) -> Authority | None:
    """The CA in mitmproxy's ``confdir``; None where there is none. Raises ``UnfitError`` with one line and its remedy."""
    file = directory / FILE
    try:
        with file.open("rb") as opened:
            about = os.fstat(opened.fileno())
            content = opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnfitError(
            f"the CA {file} can't be read: {error.strerror} (it must belong to who runs the proxy)"
        ) from None
    if (readers := exposed(about)) is not None:
        raise UnfitError(
            f"the key of the CA {file} is open to {readers}: chmod 600 {file}, or make another if it was read"
        )
    try:
        return sound(content, now, passphrase)
    except UnfitError as error:
        raise UnfitError(f"the CA {file} can't be used: {error} (`claw certs init --force` makes another)") from None


def exposed(about: os.stat_result, proxy: int | None = None) -> str | None:
    """Who may read or write the key that should not; ``proxy``: who it runs as, where that is not who asks."""
    if about.st_mode & _OTHERS:
        return "everybody"
    if about.st_mode & _GROUP and about.st_uid == (os.geteuid() if proxy is None else proxy):
        return "its group"
    if about.st_mode & stat.S_IWGRP:
        return "its group"
    return None
