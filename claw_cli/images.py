"""What an image says of itself: its label ``claw.describe``, and the descriptor in it. The one place that asks Docker for it.

No container is started: one is made of the image, a file is copied out of it, and it is removed. An image that is not here is
not pulled; that is told.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from typing import Any

import typer

from claw_compile.loading.descriptor_lookup import DESCRIBE_LABEL, DESCRIPTOR_FILE
from claw_compile.loading.files import MAX_BYTES
from claw_compile.lock_update import ImageDescriptor

_SECONDS = 60
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def baked(image: str) -> ImageDescriptor | None:
    """The image's descriptor; None when it has none, or is not here."""
    if image.startswith("-") or (found := _docker("image", "inspect", image)) is None:
        sys.stderr.write(f"{image} is not here, and so not asked: docker pull {image}\n")
        return None
    (facts,) = json.loads(found)
    labels = (facts.get("Config") or {}).get("Labels") or {}
    label = labels.get(DESCRIBE_LABEL)
    path = label or f"/{DESCRIPTOR_FILE}"
    data = _copied(image, path)
    if data is None and label is None:
        return None
    return ImageDescriptor(path, data, _digest(facts))


def _digest(facts: dict[str, Any]) -> str | None:
    """The digest by which a registry knows the image, else its local id."""
    repository = next(iter(facts.get("RepoDigests") or ()), "")
    known = (repository.partition("@")[2], facts.get("Id") or "")
    return next((digest for digest in known if _DIGEST.fullmatch(digest)), None)


def _copied(image: str, path: str) -> bytes | None:
    made = _docker("create", image, "claw")
    if made is None:
        return None
    container = made.decode().strip()
    try:
        archive = _docker("cp", "-L", f"{container}:{path}", "-")
    finally:
        _docker("rm", container)
    if archive is None:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            if file is not None:
                return file.read(MAX_BYTES + 1)
    return None


def _docker(*arguments: str) -> bytes | None:
    """What Docker answers; None when it refuses."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603, S607 - the user's own Docker, no shell
    except FileNotFoundError:
        sys.stderr.write("there is no 'docker' on this machine, and only it knows what an image holds\n")
        raise typer.Exit(1) from None
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"docker {arguments[0]} has not answered for {_SECONDS} seconds\n")
        raise typer.Exit(1) from None
    return done.stdout if done.returncode == 0 else None
