"""The ports of a turn, and the parts of a mediator that all turns share."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from claw_mediate.core.observer import NO_OBSERVER, TurnObserver
from claw_mediate.core.types import ModelResponse, ToolCall, ToolResult, ToolUse
from claw_mediate.dialects.streams import ReplySink
from claw_mediate.prompt.build import PromptContext
from claw_mediate.providers.failover import ModelCall, ModelResult, ProviderFailover
from claw_mediate.providers.live_reply import FlowLimits
from claw_mediate.providers.routing import Router
from claw_mediate.tools.executor import ToolExecutor
from claw_mediate.turns.billing import Billing
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.continuity import Continuity
from claw_mediate.turns.kept.provider_objects import Owners
from claw_mediate.turns.provider_memory import ReplayableReasoning, StreamUsageRefusals
from claw_mediate.turns.recorder import Recorder
from claw_state.journal import Journal

type Model = Callable[[ModelCall], Awaitable[ModelResult]]
"""The port to the provider."""

type Tools = Callable[[ToolCall, str, float], Awaitable[ToolResult]]
"""The port to the services: call, key, seconds."""

type Note = Callable[[ModelResponse, Sequence[ToolResult]], Awaitable[None]]


async def _note_nothing(_response: ModelResponse, _results: Sequence[ToolResult]) -> None: ...


class Ports(msgspec.Struct, frozen=True):
    """Everything that a turn reaches outside itself."""

    model: Model
    tools: Tools
    now: Callable[[], float]
    observer: TurnObserver = NO_OBSERVER
    note_progress: Note = _note_nothing
    """Told of the last response that the provider has, and of what its calls gave so far.

    It is never told of an earlier response.
    """
    reasoning: ReplayableReasoning = msgspec.field(default_factory=ReplayableReasoning)
    report: Callable[[str], None] = lambda _: None
    """Told the name of an intervention."""

    sink: ReplySink | None = None
    """Takes the replies of a live turn while they come; None in any other turn."""
    flow_limits: FlowLimits = FlowLimits()
    """Those of all replies of a live turn."""
    on_ask: Callable[[ToolUse], None] = lambda _: None
    """Told that a live turn's model call is about to be sent, and with what use of tools."""
    on_json_body: Callable[[], None] = lambda: None
    """Told that the provider answered a request for a stream with one JSON body."""
    usage_refusals: StreamUsageRefusals = msgspec.field(default_factory=StreamUsageRefusals)


class Peers(NamedTuple):
    """The two sides that a mediator talks to, and the clock by which turns are measured."""

    upstream: ProviderFailover
    services: ToolExecutor
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class TurnParts:
    """The parts of a mediator that its requests pass through, before and in their turns."""

    peers: Peers
    recorder: Recorder
    billing: Billing
    journal: Journal
    continuity: Continuity
    owners: Owners
    budgets: Budgets
    prompt: PromptContext
    routing: Router
