"""tools.json: the tools of one agent, and how the proxy calls them.

Specification: docs/spec/contract.md "tools.json".

The model sees ``name`` (as an alias), ``description`` and ``inputSchema`` of a tool; the rest is
for the proxy.
"""

import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from claw_contract.base import Contract, JsonObject, error_line
from claw_contract.secret import Secret, SecretRef

MAX_ROUNDS = 8
TIMEOUT_PER_TOOL_MS = 30_000
TOTAL_TIMEOUT_MS = 120_000
MAX_TOOL_RESULT_BYTES = 16_384
SOFT_DEADLINE_RATIO = 0.9
MAX_PARALLEL = 8

type Effect = Literal["read", "write", "unknown"]
"""The effect of a call on the world. ``unknown`` is treated as ``write``."""
type Delivery = Literal["mediated", "native"]
"""The way in which an agent gets a tool (docs/spec/mcp.md).

``mediated``: the proxy offers it to the model. ``native``: the runner calls it at the broker.
"""
type StreamMode = Literal["live", "buffered"]
"""When a runner that asked for a stream gets its answer.

``live``: while the model writes. ``buffered``: once the answer is whole.
"""
type PreambleMode = Literal["show", "hide"]
"""The treatment, in a live stream, of what the model writes before a managed call.

``hide``: each reply waits until it is known whether it is the answer.
"""

_NOT_PLAIN = re.compile(r"[^\x21-\x7e]|[?#\\]")
CLAW_ID = "claw_id"
"""The parameter that holds the authenticated agent, whatever the model sends for it."""
PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_]+)\}")
"""``{name}`` in an HTTP path, which stands for an argument."""


class NoAuth(Contract):
    type: Literal["none"] = "none"


class BearerAuth(Contract):
    type: Literal["bearer"]
    token: Secret | SecretRef


class HeaderAuth(Contract):
    type: Literal["header"]
    header: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    token: Secret | SecretRef


class BasicAuth(Contract):
    type: Literal["basic"]
    username: str
    password: Secret | SecretRef


Auth = Annotated[NoAuth | BearerAuth | HeaderAuth | BasicAuth, Field(discriminator="type")]


def checked_base_url(url: str) -> str:
    """Return the URL. Raise ``ValueError``, which never contains it, if it is no base URL."""
    parts = urlsplit(url)
    names_host = (
        parts.scheme in {"http", "https"}
        and parts.hostname
        and "@" not in parts.netloc
        and parts.port != 0
    )
    if not names_host or _NOT_PLAIN.search(url):
        raise ValueError(
            "a base URL is http(s)://host[:port][/path], without user, query or fragment"
        )
    return url


BaseUrl = Annotated[str, AfterValidator(checked_base_url)]
UrlPath = Annotated[str, StringConstraints(pattern=r"^/[^\s?#\\]*$")]


class HttpExecution(Contract):
    """One HTTP request for each call.

    Arguments go into the query of GET and DELETE, else into a JSON body.
    """

    transport: Literal["http"]
    service: str
    base_url: BaseUrl
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: UrlPath
    body: Literal["json"] | None = None
    body_key: str | None = None
    auth: Auth = NoAuth()

    @model_validator(mode="after")
    def _path_stays_inside(self) -> Self:
        if any(segment in {".", ".."} for segment in self.path.split("/")):
            raise ValueError("a path must not hold '.' or '..' segments")
        return self


class McpExecution(Contract):
    """One ``tools/call`` over streamable HTTP."""

    transport: Literal["mcp"]
    service: str
    base_url: BaseUrl
    path: UrlPath = "/mcp"
    tool_name: str
    auth: Auth = NoAuth()


Execution = Annotated[HttpExecution | McpExecution, Field(discriminator="transport")]


class Annotations(Contract):
    """The annotations that the proxy acts on.

    An annotation of a wrong type quarantines the tool. Annotations that are not listed here stay.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", populate_by_name=True)

    read_only: Annotated[bool | None, Field(alias="readOnly")] = None
    read_only_hint: Annotated[bool | None, Field(alias="readOnlyHint")] = None
    idempotent: bool | None = None
    idempotent_hint: Annotated[bool | None, Field(alias="idempotentHint")] = None
    parallel_safe: bool = False
    terminal_on_success: Annotated[bool, Field(alias="x-claw.terminalOnSuccess")] = False
    repeatable: Annotated[bool, Field(alias="x-claw.repeatable")] = False
    timeout_ms: Annotated[int | None, Field(alias="x-claw.timeout_ms", gt=0)] = None
    max_result_bytes: Annotated[int | None, Field(alias="x-claw.max_result_bytes", gt=0)] = None

    @property
    def effect(self) -> Effect:
        """The declared effect.

        ``readOnly`` (ours) overrides ``readOnlyHint`` (MCP's); without both it is unknown.
        """
        is_read_only = self.read_only if self.read_only is not None else self.read_only_hint
        if is_read_only is None:
            return "unknown"
        return "read" if is_read_only else "write"


class Tool(Contract):
    """One granted tool. ``name`` is canonical: ``<service>.<tool>``."""

    name: Annotated[str, StringConstraints(min_length=3, max_length=256)]
    description: str = ""
    input_schema: Annotated[JsonObject, Field(alias="inputSchema")]
    annotations: Annotations = Annotations()
    execution: Execution
    delivery: Delivery = "mediated"

    @model_validator(mode="after")
    def _belongs_to_its_service(self) -> Self:
        if not self.name.startswith(f"{self.execution.service}."):
            raise ValueError(
                f"the name must begin with its service, {self.execution.service!r}, and a dot"
            )
        if self.input_schema.get("type", "object") != "object":
            raise ValueError("inputSchema must be an object schema")
        return self

    @cached_property
    def visible_schema(self) -> JsonObject:
        """The schema that the model sees and must obey: the declared one without ``claw_id``."""
        schema = {"type": "object", **self.input_schema}

        properties = schema.get("properties")
        if isinstance(properties, dict) and CLAW_ID in properties:
            schema["properties"] = {
                name: value for name, value in properties.items() if name != CLAW_ID
            }

        required = schema.get("required")
        if isinstance(required, list) and CLAW_ID in required:
            schema["required"] = [name for name in required if name != CLAW_ID]
            if not schema["required"]:
                del schema["required"]  # draft 4 forbids an empty list
        return schema

    @cached_property
    def visible_schema_text(self) -> str:
        """The same as JSON: every call is checked against it."""
        return json.dumps(self.visible_schema)

    @property
    def effect(self) -> Effect:
        """The effect of a call. A DELETE is never a read, whatever its annotations say."""
        if isinstance(self.execution, HttpExecution) and self.execution.method == "DELETE":
            return "write"
        return self.annotations.effect

    @property
    def runs_in_parallel(self) -> bool:
        return self.annotations.parallel_safe or self.effect == "read"


def _default_if_zero(default: int) -> AfterValidator:
    return AfterValidator(lambda limit: limit if limit > 0 else default)


class Policy(Contract):
    """Limits of a turn, and how its answer streams. An absent limit, or zero, means the default."""

    max_rounds: Annotated[int, _default_if_zero(MAX_ROUNDS)] = MAX_ROUNDS
    timeout_per_tool_ms: Annotated[int, _default_if_zero(TIMEOUT_PER_TOOL_MS)] = TIMEOUT_PER_TOOL_MS
    total_timeout_ms: Annotated[int, _default_if_zero(TOTAL_TIMEOUT_MS)] = TOTAL_TIMEOUT_MS
    max_tool_result_bytes: Annotated[int, _default_if_zero(MAX_TOOL_RESULT_BYTES)] = (
        MAX_TOOL_RESULT_BYTES
    )
    on_budget: Literal["finalize", "error"] = "finalize"
    soft_deadline_ratio: Annotated[float, Field(gt=0, lt=1)] = SOFT_DEADLINE_RATIO
    max_parallel: Annotated[int, _default_if_zero(MAX_PARALLEL)] = MAX_PARALLEL
    stream: StreamMode = "buffered"
    preamble: PreambleMode = "show"


class Manifest(Contract):
    """All of tools.json, as the compiler writes it."""

    version: Literal[1]
    tools: tuple[Tool, ...] = ()
    policy: Policy = Policy()


class QuarantinedTool(Contract):
    """A tool that is not offered because its entry is invalid.

    ``reason``: one line without values.
    """

    name: str
    reason: str


class _Envelope(Contract):
    version: Literal[1]
    tools: tuple[Any, ...] = ()
    policy: Policy = Policy()


def read_manifest(data: bytes) -> tuple[Manifest, tuple[QuarantinedTool, ...]]:
    """Return the manifest of the valid tools in tools.json, and the tools that are quarantined.

    Raise ``ValidationError`` if the document itself is malformed: then the whole agent fails
    closed (docs/spec/contract.md, "tools.json").
    """
    envelope = _Envelope.model_validate_json(data)
    tools: dict[str, Tool] = {}
    quarantined: list[QuarantinedTool] = []
    for index, entry in enumerate(envelope.tools):
        name = entry.get("name") if isinstance(entry, dict) else None
        label = name if isinstance(name, str) else f"tools[{index}]"
        try:
            tool = Tool.model_validate(entry)
        except ValidationError as error:
            quarantined.append(QuarantinedTool(name=label, reason=error_line(error)))
            continue

        if tool.name in tools:
            reason = "the name is declared twice; the first one stays"
            quarantined.append(QuarantinedTool(name=label, reason=reason))
            continue

        tools[tool.name] = tool

    manifest = Manifest(version=1, tools=tuple(tools.values()), policy=envelope.policy)
    return manifest, tuple(quarantined)
