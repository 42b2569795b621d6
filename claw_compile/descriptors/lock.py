"""``claw.lock``: the tools that each service had when they were last reviewed.

Specification: docs/spec/compile.md "Verbs", claw lock.

It is JSON with sorted names, one fact a line, so that a change of it reads as a change of
permissions. ``epochs`` are those of the agents' tokens. Without ``services`` the tools are not
locked. A descriptor that is in an image is copied into the lock, because a compile asks no Docker.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor, Source
from claw_compile.diagnostics.diagnostic import Diagnostic, Result, Span, quote
from claw_compile.parsing.node import MapNode, Node, child, kind, plain_data, span_at
from claw_contract.base import JsonObject
from claw_contract.descriptor import DescriptorTool, DescriptorV2
from claw_contract.manifest import Effect
from claw_contract.names import AgentId

LOCK_FILE = "claw.lock"
VERSION = 1
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class _LockPart(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", populate_by_name=True)


class LockedTool(_LockPart):
    """One tool as it was reviewed.

    ``call`` is how the proxy calls it; ``digest`` is of everything that the descriptor says of it.
    """

    effect: Effect
    call: str
    schema_digest: Annotated[Digest, Field(alias="inputSchema")]
    digest: Digest


class LockedService(_LockPart):
    """One descriptor.

    ``image`` is the pod's word for it, ``image_digest`` what Docker had under that name.
    """

    source: Source
    file: str
    digest: Digest
    image: str | None = None
    image_digest: Digest | None = None
    descriptor: JsonObject | None = None
    tools: dict[str, LockedTool]


class LockContent(_LockPart):
    version: Literal[1] = 1
    epochs: dict[AgentId, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    services: dict[str, LockedService] | None = None


@dataclass(frozen=True)
class Lock:
    """A lock that was read, and its tree for places."""

    file: str
    content: LockContent
    root: Node

    @property
    def services(self) -> Mapping[str, LockedService] | None:
        return self.content.services

    def place(self, *path: str) -> Span:
        """Return the place of a service in the lock, or of one of its tools."""
        return span_at(self.root, ("services", *path))

    def descriptor(self, service: str) -> Node | None:
        """Return the tree of the descriptor that an image holds."""
        return child(self.root, "services", service, "descriptor")


def read_lock(file: str, root: Node) -> Result[Lock]:
    """Return the lock, or what is wrong with it; nothing of a damaged lock is used."""
    diagnostics = tuple(_version(root))
    if diagnostics:
        return Result(None, diagnostics)
    try:
        content = LockContent.model_validate_json(json.dumps(plain_data(root)), strict=True)
    except ValidationError as error:
        return Result(None, tuple(_shape_errors(error, root)))
    return Result(Lock(file, content, root))


def _version(root: Node) -> Iterator[Diagnostic]:
    if not isinstance(root, MapNode):
        yield codes.BAD_LOCK.at(root.span, f"a lock is an object, and this is {kind(root)}")
        return

    version = root.value("version")
    if version is None:
        yield codes.BAD_LOCK.at(root.span, "the lock has no 'version'")
        return

    number = plain_data(version)
    # In Python, True equals 1; in a lock it is no version.
    if number == VERSION and not isinstance(number, bool):
        return

    is_newer = isinstance(number, int) and number > VERSION
    message = f"this claw reads version {VERSION} of the lock"
    help_text = "a newer claw made it: use that one" if is_newer else None
    yield codes.BAD_LOCK.at(version.span, message, help_text=help_text)


def _shape_errors(error: ValidationError, root: Node) -> Iterator[Diagnostic]:
    for problem in error.errors(include_input=False, include_url=False, include_context=False):
        # pydantic adds "[key]" to the path of a mapping's key.
        path = tuple(part for part in problem["loc"] if part != "[key]")
        # Escaped as ``quote`` does, but without its quotation marks.
        place = quote(".".join(map(str, path)))[1:-1]
        yield codes.BAD_LOCK.at(span_at(root, path), f"{place}: {problem['msg']}")


def lock_service(
    service_descriptor: ServiceDescriptor, file: str, image: str | None
) -> LockedService:
    """Return the lock's entry of a descriptor; ``file`` is its path from the pod's directory."""
    tools = {tool.name: lock_tool(service_descriptor, tool) for tool in service_descriptor.tools}
    return LockedService(
        source=service_descriptor.source,
        file=file,
        digest=service_descriptor.digest,
        image=image,
        tools=tools,
    )


def lock_tool(service_descriptor: ServiceDescriptor, tool: DescriptorTool) -> LockedTool:
    """Return the lock's entry of one tool. The order of a schema's keys does not matter."""
    call = _call(service_descriptor, tool)
    document = tool.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return LockedTool(
        effect=tool.effect,
        call=call,
        schema_digest=sha256(_canonical(tool.input_schema)),
        digest=sha256(_canonical({"call": call, "tool": document})),
    )


def _call(service_descriptor: ServiceDescriptor, tool: DescriptorTool) -> str:
    if tool.http is not None:
        return f"{tool.http.method} {tool.http.path}"

    descriptor = service_descriptor.descriptor
    path = ""
    if isinstance(descriptor, DescriptorV2) and descriptor.mcp is not None:
        path = descriptor.mcp.path
    return f"MCP {path}"


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def sha256(data: bytes) -> str:
    """Return a digest as the lock writes it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def render_lock(content: LockContent) -> bytes:
    """Return the bytes of the lock's file.

    Names are sorted; an image's descriptor keeps its own order.
    """
    data: dict[str, Any] = {
        "version": content.version,
        "epochs": dict(sorted(content.epochs.items())),
    }

    if content.services is not None:
        data["services"] = {}
        for name, each in sorted(content.services.items()):
            entry = each.model_dump(mode="json", by_alias=True, exclude_none=True)
            data["services"][name] = entry | {"tools": dict(sorted(entry["tools"].items()))}
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
