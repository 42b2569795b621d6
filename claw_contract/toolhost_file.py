"""toolhost.yml: the settings of a tools host (docs/spec/tools-host.md "toolhost.yml").

An operator writes it, or the compiler does for a pod, and the host reads it. Keys, defaults, limits
and descriptions are here and nowhere else: the grammar of the pod file is made from these models
(``claw_compile/grammar/tools_host.py``).

Rules. A credential is never in the file: the file names a variable or a file of the host. Sizes are
bytes, times are seconds. Some values can be checked on the host's machine only, by a
``HostMachine``: the host passes it as the context of ``ToolHostFile.model_validate``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from claw_contract.names import AgentId
from claw_contract.secret import Secret

KIB: Final = 1 << 10
MIB: Final = 1 << 20
MAX_COMMAND_SECONDS: Final = 300
MAX_SERVER_SECONDS: Final = 600
MAX_PORT: Final = 65_535
MAX_AT_ONCE: Final = 1_000
MIN_SIZE: Final = 1 * KIB
SIZE: Final = "([0-9]{1,12})(?: ?(B|KiB|MiB|GiB))?"
VARIABLE_NAME: Final = "[A-Za-z_][A-Za-z0-9_]*"
HEADER_NAME: Final = "[A-Za-z0-9-]{1,64}"
NAMESPACE: Final = "[a-z0-9][a-z0-9-]{0,31}"
"""The name of a server or provider. It has no ``_``: tools are ``{namespace}__{tool}``."""
RESERVED_NAMESPACE: Final = "builtin"
PROTECTED: Final = (
    ".git",  # A file of that name tells git where to find the folder
    ".git/hooks/",
    ".git/config",
    ".gitconfig",
    ".gitmodules",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".mcp.json",
    ".claude/",
    ".vscode/",
    ".idea/",
    ".ripgreprc",
)
"""Files that other programs run or obey, in any folder: file tools do not write them.

``/`` ends a folder.
"""

_UNITS: Final = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30}
_REFERENCE = re.compile(rf"\$\{{({VARIABLE_NAME})\}}")
_TOKEN = re.compile(r"[!-~]+")
_URL_PATH = re.compile(r"/[^?#\s]*")
_HEALTH_PATHS: Final = frozenset({"/health", "/healthz"})
_REDIS_SCHEMES: Final = ("redis://", "rediss://")


class HostMachine(Protocol):
    """The machine of a host, with its environment, its files and its installed packages.

    Each method raises ``ValueError`` with one sentence, which names the remedy and no credential.
    """

    def read_variable(self, name: str) -> str:
        """Return a variable of the environment."""

    def read_file(self, path: str) -> str:
        """Return the credential that a file holds."""

    def find_folder(self, path: str) -> Path:
        """Return a folder that is there."""

    def take_token(self, token: Secret) -> None:
        """Refuse a token that another principal has."""

    def check_url(self, url: str) -> None:
        """Refuse a URL that can't be connected to."""

    def normalize_host(self, host: str) -> str:
        """Return a host in its one spelling."""

    def check_namespace(self, name: str) -> None:
        """Refuse a name that an installed provider has."""


class Credential(NamedTuple):
    """A credential, and the variable that it was read from, if it was one."""

    secret: Secret
    variable: str = ""


def _machine(info: ValidationInfo) -> HostMachine:
    """Return the machine. Who validates a value that only the machine can read must pass it."""
    assert info.context is not None
    machine: HostMachine = info.context
    return machine


def parse_size(text: str) -> int:
    """Return a size in bytes. Raise ``ValueError``.

    >>> parse_size("1024"), parse_size("64KiB"), parse_size("10 MiB")
    (1024, 65536, 10485760)
    """
    match = re.fullmatch(SIZE, text)
    if match is None:
        raise ValueError(
            "a size is a number of bytes, or a number with KiB, MiB or GiB, such as 10MiB"
        )
    return int(match[1]) * _UNITS[match[2]]


def _read_size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _read_credential(value: Any, info: ValidationInfo) -> Credential:
    match value:
        case Credential():
            return value
        case {"env": str(name), **rest} if not rest:
            return Credential(Secret(_machine(info).read_variable(name)), name)
        case {"file": str(path), **rest} if not rest:
            return Credential(Secret(_machine(info).read_file(path)))
    raise ValueError(
        "a credential is {env: NAME} or {file: PATH}: it does not stand in this file itself"
    )


def _read_secret(value: Any, info: ValidationInfo) -> Secret:
    return value if isinstance(value, Secret) else _read_credential(value, info).secret


def _read_token(value: Any, info: ValidationInfo) -> Credential:
    credential = _read_credential(value, info)
    if not _TOKEN.fullmatch(credential.secret.reveal()):
        raise ValueError(
            "a token has no spaces, and only the letters, digits and signs of ASCII: make "
            "another one"
        )
    _machine(info).take_token(credential.secret)
    return credential


def _read_secret_text(value: Any, info: ValidationInfo) -> Secret:
    if not isinstance(value, str):
        return _read_secret(value, info)
    return Secret(_REFERENCE.sub(lambda match: _machine(info).read_variable(match[1]), value))


def _read_redis_url(value: Any, info: ValidationInfo) -> Secret:
    url = _read_secret_text(value, info)
    if not url.reveal().startswith(_REDIS_SCHEMES):
        raise ValueError("this is no redis:// or rediss:// URL: write redis://HOST:PORT/0")
    return url


def _check_url(value: str, info: ValidationInfo) -> str:
    if info.context is not None:
        _machine(info).check_url(value)
    return value


def _normalize_host(value: str, info: ValidationInfo) -> str:
    if info.context is None:
        return value
    return _machine(info).normalize_host(value)


def _find_folder(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value:
        return value
    return _machine(info).find_folder(value)


def _check_namespace(name: str, info: ValidationInfo) -> str:
    if not re.fullmatch(NAMESPACE, name):
        raise ValueError(f"the name of a server is {NAMESPACE}, without '_': give it another name")
    if name == RESERVED_NAMESPACE:
        raise ValueError(
            f"the name {name!r} is taken by the host's own tools: give it another name"
        )
    if info.context is not None:
        _machine(info).check_namespace(name)
    return name


def _check_url_path(value: str) -> str:
    if not _URL_PATH.fullmatch(value) or value in _HEALTH_PATHS:
        raise ValueError(
            "the path starts with '/', has no '?', '#' or space, and is not that of the "
            "health: write /mcp"
        )
    return value


def _matching(pattern: str) -> StringConstraints:
    """Return the rule that all of a text matches the pattern."""
    return StringConstraints(pattern=f"^{pattern}$")


type Word = Annotated[str, StringConstraints(min_length=1)]
type Size = Annotated[int, BeforeValidator(_read_size), Field(ge=MIN_SIZE)]
type Port = Annotated[int, Field(ge=1, le=MAX_PORT)]
type Url = Annotated[str, AfterValidator(_check_url)]
type HostName = Annotated[str, AfterValidator(_normalize_host)]
type UrlPath = Annotated[str, AfterValidator(_check_url_path)]
type VariableName = Annotated[str, _matching(VARIABLE_NAME)]
type HeaderName = Annotated[str, _matching(HEADER_NAME)]
type ChannelName = Annotated[str, StringConstraints(min_length=1)]
type Namespace = Annotated[str, AfterValidator(_check_namespace)]
type Glob = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?-]{1,64}$")]
type Folder = Annotated[Path, BeforeValidator(_find_folder)]
type CredentialSecret = Annotated[Secret, PlainValidator(_read_secret)]
"""``{env: NAME}`` or ``{file: PATH}``."""
type Token = Annotated[Credential, PlainValidator(_read_token)]
"""The same, as a bearer token of one principal."""
type SecretText = Annotated[Secret, PlainValidator(_read_secret_text)]
"""A text, in which ``${NAME}`` is a variable of the host; or a credential."""
type RedisUrl = Annotated[Secret, PlainValidator(_read_redis_url)]
"""The same, as the URL of a Redis or Valkey."""


class Section(BaseModel):
    """A mapping of the file, which takes no other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    either: ClassVar[tuple[str, ...]] = ()
    """Keys of which exactly one is given."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Key → another key, without which it means nothing."""
    bounds: ClassVar[Mapping[str, str]] = {}
    """Key → another key, whose value is the highest for it. A default may be above that."""

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        if self.either and sum(self._has(key) for key in self.either) != 1:
            raise ValueError(f"write either {' or '.join(map(repr, self.either))}, and not both")

        for key, other in self.needs.items():
            if self._has(key) and not self._has(other):
                raise ValueError(f"{key!r} goes with {other!r}: write both, or neither")

        for key, highest in self.bounds.items():
            is_given = key in self.model_fields_set
            if is_given and getattr(self, key) > getattr(self, highest):
                raise ValueError(f"{key} is above {highest}: lower it")
        return self

    def _has(self, key: str) -> bool:
        value = getattr(self, key)
        return value is not None and value not in ([], {})


class ListenSection(Section):
    host: str = ""
    """The address; without one, all interfaces."""
    port: int = Field(default=8080, ge=0, le=MAX_PORT)
    path: UrlPath = "/mcp"
    allowed_hosts: list[Word] = []
    max_body: Size = 4 * MIB


class CallLimitsSection(Section):
    """The limits of one principal's calls."""

    calls_per_minute: int = Field(
        default=600, ge=1, description="How many calls of an agent start in a minute."
    )
    concurrent: int = Field(
        default=16, ge=1, le=MAX_AT_ONCE, description="How many calls of an agent run at once."
    )


class PrincipalSection(Section):
    token: Token | None = None
    """None: it can call over standard input and output only."""
    workspace: Folder
    tools: list[Glob]
    limits: CallLimitsSection = CallLimitsSection()


class LimitsSection(Section):
    result_bytes: Size = Field(default=64 * KIB, description="The size of a result.")
    read_bytes: Size = Field(default=10 * MIB, description="How much of a file is read.")
    write_bytes: Size = Field(default=10 * MIB, description="The size of a file that is written.")
    memory_bytes: Size = Field(default=256 * KIB, description="The size of MEMORY.md.")


class HostSection(Section):
    listen: ListenSection = ListenSection()
    principals: dict[AgentId, PrincipalSection] = Field(min_length=1)
    limits: LimitsSection = Field(
        default=LimitsSection(), description="Limits of the host, and of each agent."
    )
    protected: list[Word] = Field(
        default=list(PROTECTED),
        description="Files that the file tools do not write, in the place of the built-in list.",
    )
    audit_arguments: Literal["digest", "full"] = Field(
        default="digest", description="What the log has of a call's arguments."
    )


class ExecSection(Section):
    bounds = {"default_timeout_s": "max_timeout_s"}

    enabled: bool = Field(default=False, description="Register exec_shell and spawn.")
    network: bool = Field(default=False, description="Let commands use the network.")
    allow: list[Word] = Field(default=[], description="The programs that may run; default: all.")
    deny: list[Word] = Field(default=[], description="Programs that may not run.")
    default_timeout_s: float = Field(
        default=30,
        gt=0,
        le=MAX_COMMAND_SECONDS,
        description="The time of a command that names none.",
    )
    max_timeout_s: float = Field(
        default=MAX_COMMAND_SECONDS,
        gt=0,
        le=MAX_COMMAND_SECONDS,
        description="The longest time that a command may name.",
    )
    environment: dict[VariableName, str] = Field(
        default={}, description="Variables of commands, beside PATH and HOME."
    )


class SpawnSection(Section):
    max_concurrent: int = Field(
        default=5, ge=1, le=MAX_AT_ONCE, description="How many processes of an agent run at once."
    )


class UrlPolicySection(Section):
    """The limits of ``web_fetch``. Nothing opens a metadata service."""

    ports: list[Port] = Field(
        default=[80, 443], description="Ports that web_fetch may use; default: 80 and 443."
    )
    allow_private: list[HostName] = Field(
        default=[], description="Hosts with a private address that may be fetched, one by one."
    )
    allowed_domains: list[HostName] = Field(
        default=[], description="If there are any, no other domain is fetched."
    )
    blocked_domains: list[HostName] = Field(default=[], description="Domains that are not fetched.")


class SearchSection(Section):
    endpoint: Url = Field(description="The URL of the search engine.")
    backend: Literal["generic", "brave", "searxng"] = Field(
        default="generic", description="What it speaks."
    )
    api_key: CredentialSecret | None = Field(default=None, description="Its key.")


class ChannelSection(Section):
    """Either a URL to POST to, or a stream of Redis or Valkey."""

    either = ("webhook", "redis")
    needs = {"token": "webhook", "stream": "redis", "redis": "stream"}

    webhook: Url | None = Field(default=None, description="The URL that a message is sent to.")
    token: CredentialSecret | None = Field(default=None, description="The webhook's bearer token.")
    redis: RedisUrl | None = Field(
        default=None, description="The URL of a Redis or Valkey, which may be a credential."
    )
    stream: Word | None = Field(default=None, description="The stream that a message is added to.")


class MessageSection(Section):
    channels: dict[ChannelName, ChannelSection] = Field(description="Where messages may go.")


class McpServerSection(Section):
    """An MCP server behind the host: either a command, or a URL."""

    either = ("command", "url")
    needs = {"args": "command", "env": "command", "headers": "url"}

    command: Word | None = Field(
        default=None, description="The stdio server that is run; no shell reads it."
    )
    args: list[str] = Field(default=[], description="Its arguments.")
    env: dict[VariableName, SecretText] = Field(default={}, description="Its environment.")
    url: Url | None = Field(default=None, description="The server's URL.")
    headers: dict[HeaderName, SecretText] = Field(
        default={}, description="What is sent with each request to the URL."
    )
    internal_only: bool = Field(
        default=True,
        description="Only a skill's allowed_tools show its tools; nobody can be granted one.",
    )
    timeout_s: float = Field(
        default=60, gt=0, le=MAX_SERVER_SECONDS, description="The time of a call."
    )


class ToolsSection(Section):
    exec: ExecSection = Field(
        default=ExecSection(),
        description="exec_shell and spawn: commands in the agent's workspace.",
    )
    spawn: SpawnSection = Field(default=SpawnSection(), description="More about spawn.")
    url_policy: UrlPolicySection = Field(
        default=UrlPolicySection(), description="Where web_fetch may go."
    )
    web_search: SearchSection | None = Field(
        default=None, description="The search engine of web_search."
    )
    message: MessageSection | None = Field(default=None, description="The channels of message.")
    mcp_servers: dict[Namespace, McpServerSection] = Field(
        default={}, description="MCP servers behind the tools host."
    )


class ToolHostFile(Section):
    """The whole file."""

    toolhost: HostSection = Field(description="The host.")
    tools: ToolsSection = Field(default=ToolsSection(), description="What the tools may do.")
