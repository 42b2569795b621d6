"""Changes since the tools were locked; some may not be compiled (docs/spec/compile.md, claw lock).

Rules. A locked tool that is gone or says anything else than it did, and a tool that is granted
without having been locked, is refused until the service is accepted. A tool that nobody is granted
may come as it likes.
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


@dataclass(frozen=True)
class Change:
    """One tool: ``before`` is None for a new one, ``after`` for one that is gone."""

    tool: str
    before: LockedTool | None
    after: LockedTool | None
    span: Span | None = None

    def __str__(self) -> str:
        if self.before is None:
            assert self.after is not None
            write = WRITE if self.after.effect != "read" else ""
            return f"+ {self.tool} ({self.after.effect}): {self.after.call}{write}"
        if self.after is None:
            return f"- {self.tool} ({self.before.effect}): {self.before.call}"
        widened = self.before.effect == "read" and self.after.effect != "read"
        return (
            f"~ {self.tool}: "
            f"{'; '.join(_differences(self.before, self.after))}{WRITE if widened else ''}"
        )


def find_lock_drift(loaded: LoadedPod, resolved: ResolvedPod) -> Iterator[Diagnostic]:
    """Yield one diagnostic for each service that is not what the lock has."""
    lock = loaded.lock
    if lock is None or lock.services is None:
        return
    granted = granted_tools(resolved)
    for service in loaded.pod.services:
        name = service.name.text
        service_descriptor, before = loaded.descriptors.get(name), lock.services.get(name)
        if service_descriptor is None:
            continue
        if before is None:
            if granted.get(name):
                message = f"{name} is granted, but {lock.file} does not have it"
                yield codes.LOCK_DRIFT.at(
                    service.name.span, message, help_text="look at its tools, then: claw lock"
                )
            continue
        yield from compare(lock, name, service_descriptor, granted.get(name, ()), service.name.span)
    for name in sorted(lock.services.keys() - loaded.descriptors.keys()):
        message = f"{name} is no service with a descriptor any more"
        yield codes.LOCK_OUTDATED.at(lock.place(name), message, help_text="run: claw lock")


def compare(
    lock: Lock, name: str, service_descriptor: ServiceDescriptor, granted: Collection[str], at: Span
) -> Iterator[Diagnostic]:
    assert lock.services is not None
    before = lock.services[name]
    tool_changes = changes(before, service_descriptor, granted)
    if tool_changes:
        notes = [
            Note(change.span or lock.place(name, "tools", change.tool), str(change))
            for change in tool_changes
        ]
        message = f"the tools of {name} are not those that {lock.file} has"
        help_text = f"look at the difference, then: claw lock --accept {name}"
        yield codes.LOCK_DRIFT.at(at, message, notes=notes, help_text=help_text)
    elif before.digest != service_descriptor.digest or before.source != service_descriptor.source:
        message = (
            f"the descriptor of {name} is not the one that {lock.file} has; its tools are the same"
        )
        yield codes.LOCK_OUTDATED.at(at, message, notes=[Note(lock.place(name), "it was this one")])


def granted_tools(resolved: ResolvedPod) -> Mapping[str, set[str]]:
    """Return service → the tools of it that some agent is granted."""
    granted: dict[str, set[str]] = {}
    for agent in resolved.agents:
        for tool in agent.tools:
            granted.setdefault(tool.service, set()).add(tool.tool.name)
    return granted


def changes(
    before: LockedService, service_descriptor: ServiceDescriptor, granted: Collection[str]
) -> tuple[Change, ...]:
    after = {tool.name: lock_tool(service_descriptor, tool) for tool in service_descriptor.tools}
    root = service_descriptor.root
    places = {
        tool.name: span_at(root, ("tools", index))
        for index, tool in enumerate(service_descriptor.tools)
    }
    names = {*before.tools, *(name for name in after if name in granted)}
    return tuple(
        Change(name, before.tools.get(name), after.get(name), places.get(name))
        for name in sorted(names)
        if before.tools.get(name) != after.get(name)
    )


def _differences(before: LockedTool, after: LockedTool) -> Iterator[str]:
    if before.call != after.call:
        yield f"was {before.call}, is {after.call}"
    if before.effect != after.effect:
        yield f"was {before.effect}, is {after.effect}"
    if before.schema_digest != after.schema_digest:
        yield "takes other arguments"
    if (before.call, before.effect, before.schema_digest) == (
        after.call,
        after.effect,
        after.schema_digest,
    ):
        yield "says other things of itself"
