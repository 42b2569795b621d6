"""The settings of a tools host, as ``toolhost.yml`` gives them
(docs/spec/tools-host.md "toolhost.yml").

Sizes are bytes and times seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from claw_contract.secret import Secret

MIB: Final = 1 << 20
PROTECTED: Final = (
    *(
        ".git",
        ".git/hooks/",
        ".git/config",
        ".gitconfig",
        ".gitmodules",
    ),  # A file .git says where git finds the others
    *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile"),
    *(".mcp.json", ".claude/", ".vscode/", ".idea/", ".ripgreprc"),
)
"""Files that other programs run or obey, wherever they stand: file tools do not write them.

``/`` ends a folder.
"""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The limits of the file tools and of the memory."""

    max_read: int = 10 * MIB
    max_write: int = 10 * MIB  # Also of what edit_file reads
    max_page: int = (
        60 << 10
    )  # JSON of one read_file: whole lines, so that max_result cuts none of them
    max_entries: int = 1_000
    max_memory: int = 256 << 10  # Of MEMORY.md
    protected: tuple[str, ...] = PROTECTED


@dataclass(frozen=True, slots=True)
class ExecSettings:
    """The limits of commands.

    ``allow`` and ``deny`` are names of programs; without ``allow`` every program may run.
    """

    enabled: bool = False
    network: bool = False
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    default_seconds: float = 30.0
    max_seconds: float = 300.0
    spawn_seconds: float = 60.0
    max_spawned: int = 5
    max_processes: int = 256
    max_memory: int = 1 << 30
    max_file: int = 1 << 30
    max_shown: int = (
        64 << 10
    ) - 512  # JSON of both streams in a result, so that max_result cuts neither
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  # Beside PATH, HOME, LANG, TMPDIR and TERM


@dataclass(frozen=True, slots=True)
class UrlPolicy:
    """Limits of ``web_fetch``.

    ``allow_private`` opens hosts one by one; no setting opens a metadata service.
    """

    ports: tuple[int, ...] = (80, 443)
    allow_private: tuple[str, ...] = ()
    allowed_domains: tuple[str, ...] = ()  # Where there are any, no other
    blocked_domains: tuple[str, ...] = ()
    max_seconds: float = 45.0
    max_bytes: int = 10 * MIB


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The search engine of ``web_search``."""

    endpoint: str
    backend: Literal["generic", "brave", "searxng"] = "generic"
    api_key: Secret | None = None


@dataclass(frozen=True, slots=True)
class WebhookChannel:
    """A channel of ``message`` that is a URL to POST to."""

    url: str
    token: Secret | None = None


@dataclass(frozen=True, slots=True)
class StreamChannel:
    """A channel of ``message`` that is a stream of Redis or Valkey."""

    url: Secret  # It may hold a password
    stream: str


type MessageChannel = WebhookChannel | StreamChannel


@dataclass(frozen=True, slots=True)
class McpServerSettings:
    """An MCP server behind the host: a command, or a URL."""

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, Secret] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, Secret] = field(default_factory=dict)
    internal_only: bool = True
    call_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: who has this token works in this workspace, with the tools that ``globs`` name."""

    name: str
    workspace: Path
    globs: tuple[str, ...]
    token: Secret | None = None  # None: over stdio only
    token_variable: str = ""  # Where the token was read from, if it was a variable
    calls_per_minute: int = 600
    max_concurrent: int = 16


@dataclass(frozen=True, slots=True)
class HostSettings:
    """A whole ``toolhost.yml``."""

    principals: tuple[Principal, ...]
    host: str = ""
    port: int = 8080
    path: str = "/mcp"
    allowed_hosts: frozenset[str] = frozenset()
    max_body: int = 4 * MIB
    max_result: int = 64 << 10
    files: FileSettings = field(default_factory=FileSettings)
    exec: ExecSettings = field(default_factory=ExecSettings)
    urls: UrlPolicy = field(default_factory=UrlPolicy)
    search: SearchSettings | None = None
    channels: Mapping[str, MessageChannel] = field(default_factory=dict)
    mcp_servers: tuple[McpServerSettings, ...] = ()
    audit_arguments: Literal["digest", "full"] = "digest"
