"""claw.describe, versions 1 and 2: a service's description of itself.

Specification: docs/spec/compile.md "Descriptors".

The models check shapes only. The compiler checks relations between parts (``http`` and ``mcp``, a
path's parameters and the schema), because it can point at the place.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from claw_contract.base import Contract, JsonObject
from claw_contract.manifest import Annotations, Effect, UrlPath


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _name_transport(value: Any) -> Any:
    """Return the one name of a transport that descriptors name in four ways."""
    return "streamable_http" if value in {"", "http", "streamable-http"} else value


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,48}$")]


class DescriptorAuth(Contract):
    """The credential that the service expects.

    ``env``: the variable of the service's own environment that holds the token, or the password of
    ``username``.
    """

    type: Annotated[Literal["bearer", "header", "basic", "none"], BeforeValidator(_lower)]
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = None
    username: Annotated[str, StringConstraints(pattern=r"^[!-9;-~]{1,200}$")] | None = None


class DescriptorFeed(Contract):
    name: Annotated[str, StringConstraints(min_length=1)]
    path: Annotated[str, StringConstraints(pattern=r"^/")]
    ttl: Annotated[int, Field(gt=0)]
    description: str = ""


class DescriptorEndpoint(Contract):
    """An endpoint for operators; an agent never sees it."""

    method: str
    path: Annotated[str, StringConstraints(pattern=r"^/")]
    description: str = ""


class DescriptorMcp(Contract):
    transport: Annotated[Literal["streamable_http"], BeforeValidator(_name_transport)] = (
        "streamable_http"
    )
    path: UrlPath = "/mcp"


class DescriptorHttp(Contract):
    """The HTTP request that a call becomes."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: UrlPath
    body: Annotated[Literal["json"] | None, BeforeValidator(_none_if_empty)] = None
    body_key: Annotated[str | None, BeforeValidator(_none_if_empty)] = None


class DescriptorTool(Contract):
    """One tool in the vocabulary of MCP. The model never sees ``http``."""

    name: ToolName
    description: str = ""
    input_schema: Annotated[JsonObject, Field(alias="inputSchema")]
    http: DescriptorHttp | None = None
    annotations: Annotations = Annotations()

    @property
    def effect(self) -> Effect:
        """The effect of a call. A DELETE is never a read."""
        if self.http is not None and self.http.method == "DELETE":
            return "write"
        return self.annotations.effect


class DescriptorMemoryPath(Contract):
    path: UrlPath


class DescriptorMemory(Contract):
    recall: DescriptorMemoryPath | None = None
    retain: DescriptorMemoryPath | None = None
    forget: DescriptorMemoryPath | None = None


class DescriptorV1(Contract):
    """Version 1: feeds, endpoints, auth, skill.

    ``x-claw-discovery`` describes the origin of a snapshot.
    """

    version: Literal[1]
    description: str = ""
    feeds: tuple[DescriptorFeed, ...] = ()
    endpoints: tuple[DescriptorEndpoint, ...] = ()
    auth: DescriptorAuth | None = None
    skill: str | None = None
    discovery: Annotated[JsonObject | None, Field(alias="x-claw-discovery")] = None


class DescriptorV2(DescriptorV1):
    """Version 2 adds tools, MCP and memory."""

    version: Literal[2]  # type: ignore[assignment]
    mcp: DescriptorMcp | None = None
    tools: tuple[DescriptorTool, ...] = ()
    memory: DescriptorMemory | None = None


type Descriptor = DescriptorV1 | DescriptorV2
