"""What a turn asks of the world, what it hears back, and how it ends. All three sets are closed unions."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum

from claw_mediate.core.types import ModelResponse, Round, ToolCall, ToolResult


class ToolUse(Enum):
    """What the next model call may do with tools."""

    AS_ASKED = "as asked"
    """The runner's own ``tool_choice``."""
    RELEASED = "released"
    """A forced choice has been obeyed; from here on ``auto``, else the model could never end."""
    FORBIDDEN = "forbidden"
    """The last call of a spent turn: tools stay in the request and are forbidden by choice."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model, with the hidden rounds so far. ``seconds`` is what is left of the turn."""

    rounds: tuple[Round, ...]
    use: ToolUse
    seconds: float


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls at the same time; the answers keep their order. ``seconds`` bounds each of them."""

    calls: tuple[ToolCall, ...]
    round: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelReplied:
    reply: ModelResponse
    now: float


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model could not be asked, or answered with an error. ``body`` is the provider's own, when it gave one."""

    status: int
    code: str
    message: str
    now: float
    body: bytes | None = None
    content_type: str = "application/json"
    retry_after: str = ""
    """What the provider's header asks for."""


@dataclass(frozen=True, slots=True)
class ToolsAnswered:
    answers: tuple[ToolResult, ...]
    now: float


@dataclass(frozen=True, slots=True)
class Deliver:
    """The turn's answer for the runner. ``terminal``: a tool ended the turn, and its call is not shown."""

    reply: ModelResponse
    rounds: tuple[Round, ...]
    usage: tuple[dict[str, object], ...]
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The turn failed. ``failure`` is the provider's own error where it must be passed on."""

    status: int
    code: str
    message: str
    rounds: tuple[Round, ...] = ()
    usage: tuple[dict[str, object], ...] = ()
    failure: ModelFailed | None = None


type Command = AskModel | RunTools
type Heard = ModelReplied | ModelFailed | ToolsAnswered
type Outcome = Deliver | Refuse
type Asks[T] = Generator[Command, Heard, T]
