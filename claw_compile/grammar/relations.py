"""What else an agent may have beside tools: feeds, skills, models, memory, budget, context; and where credentials are.

Rules. As everywhere in the grammar: absent is ``None`` in its owner, and what is there but empty suppresses the pod's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_compile.diagnostics.diagnostic import Span
from claw_compile.parsing.node import ScalarNode
from claw_contract.context_files import ContextBlock
from claw_contract.metadata import Budget

MEMORY_TIMEOUT_MS = 300


@dataclass(frozen=True)
class NamedFeed:
    """A feed that a service's descriptor declares: ``name``, or ``service/name`` where several declare it."""

    name: ScalarNode


@dataclass(frozen=True)
class OwnFeed:
    """``{name, source, path, ttl, description}``: a feed that no descriptor declares. ``ttl`` in seconds."""

    name: ScalarNode
    source: ScalarNode
    path: ScalarNode
    ttl: int | None
    description: str
    span: Span


type Feed = NamedFeed | OwnFeed


@dataclass(frozen=True)
class Skill:
    """A file that the agent may read; known by its base name."""

    path: ScalarNode


@dataclass(frozen=True)
class Models:
    """``models``: slot → ``provider/model``, or None where it suppresses the pod's. ``fallback`` is one list, replaced whole.

    With no slots and no fallback (``{}`` or ``null``) all of the pod's are suppressed.
    """

    key: Span
    slots: tuple[tuple[ScalarNode, str | None], ...] = ()
    fallback: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.slots and self.fallback is None


@dataclass(frozen=True)
class Spending:
    """``budget``; none when it is ``null``."""

    key: Span
    budget: Budget | None


@dataclass(frozen=True)
class MemoryOf:
    """``memory {service, timeout-ms}``; no service when it is ``null``."""

    key: Span
    service: ScalarNode | None
    timeout_ms: int = MEMORY_TIMEOUT_MS


@dataclass(frozen=True)
class Blocks:
    """``context.blocks``, in the order in which they stand in the prompt."""

    key: Span
    blocks: tuple[ContextBlock, ...]


@dataclass(frozen=True)
class Stdio:
    """``mcp-stdio {command, args}``: the server that the wrapper of this service runs."""

    command: ScalarNode
    args: tuple[ScalarNode, ...] = ()


@dataclass(frozen=True)
class PodSecret:
    """One entry of the pod's ``secrets``: ``NAME: {env: VARIABLE}`` or ``NAME: {file: ./path}``. Tokens refer to it by name."""

    name: ScalarNode
    source: Literal["env", "file"]
    of: ScalarNode


@dataclass(frozen=True)
class Principal:
    """One entry of an agent's ``service-auth {service, secret|env, principal}``: its own credential at a service."""

    service: ScalarNode
    source: Literal["env", "secret"]
    of: ScalarNode
    principal: str
    span: Span
