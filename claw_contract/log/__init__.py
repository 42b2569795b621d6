"""All lines of the log, one JSON object each, on stdout (docs/spec/contract.md "The log").

A reader ignores unknown types and members. An ``error`` line that ends a request has a ``status_code``; any other has none.
"""

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
