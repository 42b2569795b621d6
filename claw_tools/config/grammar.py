"""The keys of toolhost.yml, and what each may be (docs/spec/tools-host.md "toolhost.yml")."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from claw_contract.names import AgentId
from claw_tools.config.values import (
    Folder,
    Glob,
    HeaderName,
    Host,
    Key,
    Namespace,
    Port,
    RedisUrl,
    Seconds,
    SecretText,
    Size,
    Token,
    Url,
    UrlPath,
    VariableName,
    Word,
)
from claw_tools.settings import MIB, PROTECTED


class Section(BaseModel):
    """A mapping of the file. It has no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Listen(Section):
    host: str = ""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    path: UrlPath = "/mcp"
    allowed_hosts: list[Word] = []
    max_body: Size = 4 * MIB


class CallLimits(Section):
    calls_per_minute: Annotated[int, Field(ge=1)] = 600
    concurrent: Annotated[int, Field(ge=1)] = 16


class PrincipalSection(Section):
    token: Token | None = None
    workspace: Folder
    tools: list[Glob]
    limits: CallLimits = CallLimits()


class Limits(Section):
    result_bytes: Size = 64 << 10
    read_bytes: Size = 10 * MIB
    write_bytes: Size = 10 * MIB
    memory_bytes: Size = 256 << 10


class ToolHost(Section):
    listen: Listen = Listen()
    principals: Annotated[dict[AgentId, PrincipalSection], Field(min_length=1)]
    limits: Limits = Limits()
    protected: list[Word] = list(PROTECTED)
    audit_arguments: Literal["digest", "full"] = "digest"


class Exec(Section):
    enabled: bool = False
    network: bool = False
    allow: list[Word] = []
    deny: list[Word] = []
    default_timeout_s: Annotated[float, Field(gt=0, le=300)] = 30
    max_timeout_s: Annotated[float, Field(gt=0, le=300)] = 300
    environment: dict[VariableName, str] = {}

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if (
            "default_timeout_s" in self.model_fields_set
            and self.default_timeout_s > self.max_timeout_s
        ):
            raise ValueError("default_timeout_s is above max_timeout_s: lower it")
        return self


class Spawn(Section):
    max_concurrent: Annotated[int, Field(ge=1, le=1_000)] = 5


class Urls(Section):
    ports: list[Port] = [80, 443]
    allow_private: list[Host] = []
    allowed_domains: list[Host] = []
    blocked_domains: list[Host] = []


class WebSearch(Section):
    endpoint: Url
    backend: Literal["generic", "brave", "searxng"] = "generic"
    api_key: Key | None = None


class Channel(Section):
    webhook: Url | None = None
    token: Key | None = None
    redis: RedisUrl | None = None
    stream: Word | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.webhook is None) == (self.redis is None):
            raise ValueError("a channel has either 'webhook' or 'redis'")
        if (self.redis is None) != (self.stream is None) or (
            self.token is not None and self.webhook is None
        ):
            raise ValueError("'redis' goes with 'stream', and 'token' with 'webhook'")
        return self


class Message(Section):
    channels: dict[Word, Channel] = {}


class Server(Section):
    command: Word | None = None
    args: list[str] = []
    env: dict[VariableName, SecretText] = {}
    url: Url | None = None
    headers: dict[HeaderName, SecretText] = {}
    internal_only: bool = True
    timeout_s: Seconds = 60

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either 'command' or 'url'")
        if (self.command is None and (self.args or self.env)) or (
            self.url is None and self.headers
        ):
            raise ValueError("'args' and 'env' go with 'command', and 'headers' with 'url'")
        return self


class Tools(Section):
    exec: Exec = Exec()
    spawn: Spawn = Spawn()
    url_policy: Urls = Urls()
    web_search: WebSearch | None = None
    message: Message = Message()
    mcp_servers: dict[Namespace, Server] = {}


class ToolHostFile(Section):
    """The whole file."""

    toolhost: ToolHost
    tools: Tools = Tools()
