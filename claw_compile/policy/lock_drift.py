"""Changes since the tools were locked; some may not be compiled (docs/spec/compile.md, claw lock).

A service is refused until it is accepted if a locked tool is gone or has changed in anything, or if
a granted tool was never locked. A tool that nobody is granted may be added freely.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.lock import Lock, LockedService, LockedTool, lock_tool
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span
from claw_compile.loading.load import LoadedPod
from claw_compile.parsing.node import span_at
from claw_compile.policy.agent import ResolvedPod

WRITE = "  +WRITE"
"""The mark of a change that lets agents write."""


@dataclass(frozen=True)
class Change:
    """The change of one tool: ``before`` is None for a new one, ``after`` for one that is gone."""

    tool: str
    before: LockedTool | None
    after: LockedTool | None
    span: Span | None = None

    def __str__(self) -> str:
        before = self.before
        after = self.after
        if before is None:
            assert after is not None
            mark = WRITE if after.effect != "read" else ""
            return f"+ {self.tool} ({after.effect}): {after.call}{mark}"
        if after is None:
            return f"- {self.tool} ({before.effect}): {before.call}"

        is_widened = before.effect == "read" and after.effect != "read"
        mark = WRITE if is_widened else ""
        return f"~ {self.tool}: {'; '.join(_differences(before, after))}{mark}"


def find_lock_drift(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Yield one diagnostic for each service that differs from the lock."""
    lock = loaded.lock
    if lock is None or lock.services is None:
        return

    granted = granted_tools(resolved)
    for service in loaded.pod.services:
        name = service.name.text
        service_descriptor = loaded.descriptors.get(name)
        if service_descriptor is None:
            continue

        if name in lock.services:
            tools = granted.get(name, ())
            yield from compare(lock, name, service_descriptor, tools, service.name.span)
        elif granted.get(name):
            message = f"{name} is granted, but {lock.file} does not have it"
            help_text = "look at its tools, then: claw lock"
            yield codes.LOCK_DRIFT.at(service.name.span, message, help_text=help_text)

    for name in sorted(lock.services.keys() - loaded.descriptors.keys()):
        message = f"{name} is no longer a service with a descriptor"
        yield codes.LOCK_OUTDATED.at(lock.place(name), message, help_text="run: claw lock")


def compare(
    lock: Lock, name: str, service_descriptor: ServiceDescriptor, granted: Collection[str], at: Span
) -> Iterator[Diagnostic]:
    """Yield a diagnostic at ``at`` if the service ``name`` differs from the lock."""
    assert lock.services is not None
    before = lock.services[name]

    tool_changes = changes(before, service_descriptor, granted)
    if tool_changes:
        notes = []
        for change in tool_changes:
            # A tool that is gone has a place in the lock only.
            place = change.span or lock.place(name, "tools", change.tool)
            notes.append(Note(place, str(change)))

        message = f"the tools of {name} are not those that {lock.file} has"
        help_text = f"look at the difference, then: claw lock --accept {name}"
        yield codes.LOCK_DRIFT.at(at, message, notes=notes, help_text=help_text)
        return

    if before.digest != service_descriptor.digest or before.source != service_descriptor.source:
        message = (
            f"the descriptor of {name} is not the one that {lock.file} has; its tools are the same"
        )
        yield codes.LOCK_OUTDATED.at(at, message, notes=[Note(lock.place(name), "it was this one")])


def granted_tools(resolved: ResolvedPod) -> Mapping[str, set[str]]:
    """Return service → the names of its tools that any agent is granted."""
    granted: dict[str, set[str]] = {}
    for agent in resolved.agents:
        for tool in agent.tools:
            granted.setdefault(tool.service, set()).add(tool.tool.name)
    return granted


def changes(
    before: LockedService, service_descriptor: ServiceDescriptor, granted: Collection[str]
) -> tuple[Change, ...]:
    """Return the changes of all locked tools, and of the granted ones that were never locked."""
    after: dict[str, LockedTool] = {}
    places: dict[str, Span] = {}
    for index, tool in enumerate(service_descriptor.tools):
        after[tool.name] = lock_tool(service_descriptor, tool)
        places[tool.name] = span_at(service_descriptor.root, ("tools", index))

    names = set(before.tools)
    names |= {name for name in after if name in granted}

    tool_changes: list[Change] = []
    for name in sorted(names):
        old = before.tools.get(name)
        new = after.get(name)
        if old != new:
            tool_changes.append(Change(name, old, new, places.get(name)))
    return tuple(tool_changes)


def _differences(before: LockedTool, after: LockedTool) -> Iterator[str]:
    """Yield what differs, in words; at least one, since the two are not equal."""
    has_new_call = before.call != after.call
    has_new_effect = before.effect != after.effect
    has_new_schema = before.schema_digest != after.schema_digest

    if has_new_call:
        yield f"was {before.call}, is {after.call}"
    if has_new_effect:
        yield f"was {before.effect}, is {after.effect}"
    if has_new_schema:
        yield "takes other arguments"

    # What is left are words: its description and annotations.
    if not (has_new_call or has_new_effect or has_new_schema):
        yield "describes itself in other words"
