"""The settings of a tools host (docs/spec/tools-host.md "toolhost.yml").

Each part has the sections of the file that it needs (``claw_contract.toolhost_file``).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from claw_contract.secret import Secret
from claw_contract.toolhost_file import (
    PROTECTED,
    CallLimitsSection,
    LimitsSection,
    ListenSection,
    ToolsSection,
)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: who has this token works in this workspace, with the tools that ``globs`` name."""

    name: str
    workspace: Path
    globs: tuple[str, ...]
    token: Secret | None = None  # None: over stdio only
    token_variable: str = ""  # The variable from which the token was read, if it was one
    limits: CallLimitsSection = field(default_factory=CallLimitsSection)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """A whole ``toolhost.yml``, with its credentials."""

    principals: tuple[Principal, ...]
    listen: ListenSection = field(default_factory=ListenSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    protected: tuple[str, ...] = PROTECTED
    audit_arguments: Literal["digest", "full"] = "digest"
    tools: ToolsSection = field(default_factory=ToolsSection)
