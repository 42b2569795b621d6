"""The log: one JSON object a line on stdout (spec/contract.md "The log"). Here are all of its lines.

A reader that meets a type, or a member, that it does not know ignores it. Of two lines whose type is ``error``, that of a
request which is over has a ``status_code``.
"""

from __future__ import annotations

from claw_contract.log.event import COMMON as COMMON
from claw_contract.log.event import EventType as EventType
from claw_contract.log.surroundings import (
    FaultEvent,
    FeedFetchEvent,
    FeedInjectionEvent,
    ManifestEvent,
    MemoryOpEvent,
    ProviderPoolEvent,
    StateEvent,
)
from claw_contract.log.turns import (
    ContinuityEvent,
    FailedEvent,
    FailoverEvent,
    InterventionEvent,
    JoinEvent,
    RequestEvent,
    ResponseEvent,
    ResumeEvent,
    ToolCallEvent,
)

type LogEvent = (
    RequestEvent
    | ResponseEvent
    | FailedEvent
    | ToolCallEvent
    | InterventionEvent
    | FailoverEvent
    | ContinuityEvent
    | ResumeEvent
    | JoinEvent
    | ProviderPoolEvent
    | FeedFetchEvent
    | FeedInjectionEvent
    | MemoryOpEvent
    | ManifestEvent
    | StateEvent
    | FaultEvent
)
