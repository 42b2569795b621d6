"""Check: the images of what is governed say which they are (spec/compile.md "Diagnostics", unpinned image)."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.loading.load import Loaded
from claw_compile.parsing.interpolation import interpolate
from claw_compile.parsing.node import ScalarNode
from claw_compile.policy.agent import Resolved

_MOVING = "latest"


def check_images(loaded: Loaded, resolved: Resolved) -> Iterator[Diagnostic]:
    """Every agent and every service that one uses, whose image may be another one tomorrow."""
    used = {name for agent in resolved.agents for name in (agent.spec.name.text, *agent.providers)}
    for service in loaded.pod.services:
        image = _image(service) if service.name.text in used else None
        if image is not None and not _is_pinned(interpolate(image.text, loaded.variables.lookup).text):
            message = f"the image of {service.name.text} names no version, and may be another one tomorrow"
            yield codes.UNPINNED_IMAGE.at(image.span, message)


def _image(service: ServiceSpec) -> ScalarNode | None:
    """What is built here is what it is."""
    if service.body is None or service.body.get("build") is not None:
        return None
    image = service.body.value("image")
    return image if isinstance(image, ScalarNode) and not image.is_null else None


def _is_pinned(image: str) -> bool:
    """Whether a reference has a digest, or a tag that is not the one that moves. A port is before the last slash."""
    if "@" in image:
        return True
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return bool(colon) and tag not in {"", _MOVING}
