"""``claw lock [POD] [--accept SERVICE] [--images]``: write down which tools each service has.

Specification: docs/spec/compile.md "Verbs".
"""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from claw_cli.arguments import File, Pod, pod_file
from claw_cli.screen import fail, print_lines
from claw_compile.diagnostics.report import as_text
from claw_compile.loading.descriptor_lookup import DESCRIBE_LABEL, DESCRIPTOR_FILE
from claw_compile.loading.files import MAX_BYTES
from claw_compile.lock_update import ImageDescriptor, LockResult, lock_pod

_SECONDS = 60
_ACCEPT = "Take the service's tools as they are now; may be repeated."
Accept = Annotated[list[str] | None, typer.Option("--accept", metavar="SERVICE", help=_ACCEPT)]
_IMAGES = "Ask Docker for the descriptors in images that are on this machine."
Images = Annotated[bool, typer.Option("--images", help=_IMAGES)]
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def baked_descriptor(image: str) -> ImageDescriptor | None:
    """Return the image's descriptor; None if it has none, or if the image is not on this machine.

    If the image's label names a file that is missing, the descriptor has no data.
    """
    # A name that begins with a dash would be an option of Docker's.
    inspection = None if image.startswith("-") else _docker("image", "inspect", image)
    if inspection is None:
        sys.stderr.write(
            f"{image} is not on this machine, so its descriptor was not read: docker pull {image}\n"
        )
        return None

    (facts,) = json.loads(inspection)
    labels = (facts.get("Config") or {}).get("Labels") or {}
    label = labels.get(DESCRIBE_LABEL)
    path = label or f"/{DESCRIPTOR_FILE}"
    data = _copy_out(image, path)
    if data is None and label is None:
        return None

    return ImageDescriptor(path, data, _digest_of(facts))


def _digest_of(facts: dict[str, Any]) -> str | None:
    """Return the image's digest at its registry, else the id that it has on this machine."""
    repository_digests = facts.get("RepoDigests") or [""]  # each as NAME@DIGEST
    at_registry = repository_digests[0].partition("@")[2]
    for digest in (at_registry, facts.get("Id") or ""):
        if _DIGEST.fullmatch(digest):
            return str(digest)
    return None


def _copy_out(image: str, path: str) -> bytes | None:
    """Return a file of an image, cut after the bytes that a compile reads; None if it has none."""
    # Docker copies files out of containers only. This one is never started; "claw" stands for
    # the command, which an image may lack.
    created = _docker("create", image, "claw")
    if created is None:
        return None

    container = created.decode().strip()
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
    """Run Docker, and return its output; None if it fails.

    Exit 1 if there is no Docker, or if it does not answer.
    """
    try:
        process = subprocess.run(  # noqa: S603 - the user's own Docker, no shell
            ["docker", *arguments],  # noqa: S607 - found on the user's own path
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except FileNotFoundError:
        fail(
            "there is no 'docker' on this machine, which is needed to look into an image: "
            "install Docker Engine"
        )
    except subprocess.TimeoutExpired:
        fail(f"docker {arguments[0]} has not answered for {_SECONDS} seconds")

    return process.stdout if process.returncode == 0 else None


def lock(pod: Pod = None, file: File = None, accept: Accept = None, images: Images = False) -> None:
    """Write down which tools there are, so that none changes unseen.

    Exit 0; 1 for errors and for tools that have changed, 2 for wrong usage.
    """
    look_into_image = baked_descriptor if images else None
    result = lock_pod(pod_file(pod, file), os.environ, accept or (), look_into_image)
    sys.stderr.write(as_text(result.diagnostics))
    if result.value is None:
        raise typer.Exit(1)

    print_lines(_summary(result.value))


def _summary(written: LockResult) -> Iterator[str]:
    for name, service in sorted((written.content.services or {}).items()):
        yield f"{name}: {len(service.tools)} tools, from {service.source} {service.file}"

    for change, names in (
        ("added", written.added),
        ("accepted", written.accepted),
        ("removed", written.removed),
    ):
        if names:
            yield f"{change}: {', '.join(names)}"
    yield f"wrote {written.file}"
