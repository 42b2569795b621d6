"""An agent's tools beside the runner's own, in one request: who owns a name, what is presented, and under which alias."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from claw_contract.manifest import Tool
from claw_contract.names import assign_aliases, provider_safe_name
from claw_mediate.core.tool_call import read_arguments, visible_schema
from claw_mediate.core.types import ToolCall, UnreadableArguments


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """A managed tool as the model sees it. Each is like itself only, so that what was made of it can be found again."""

    alias: str
    description: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Whose a name is: the runner's when the runner declared it in this request, else a granted tool's, else nobody's."""

    offered: tuple[Offered, ...]
    managed: dict[str, Tool]
    """By alias and by canonical name."""
    native: frozenset[str]

    @classmethod
    def of(cls, tools: Collection[Tool], native: Collection[str], room: int) -> Catalog:
        """Tools in manifest order; at most ``room`` of them are offered, the last ones are left out."""
        chosen = list(tools)[: max(room, 0)]
        names = assign_aliases((tool.name for tool in chosen), native)
        return cls(
            offered=tuple(Offered(names[tool.name], tool.description, visible_schema(tool)) for tool in chosen),
            managed={tool.name: tool for tool in chosen} | {names[tool.name]: tool for tool in chosen},
            native=frozenset(native),
        )

    def alias(self, name: str) -> str | None:
        """The alias of a managed tool that is called by its canonical name; None for any other name."""
        if name in self.native or name not in self.managed:
            return None
        tool = self.managed[name]
        return next((alias for alias, owner in self.managed.items() if owner is tool and alias != tool.name), None)

    def call(self, call_id: str, name: str, arguments: str, *, cut: bool = False) -> ToolCall:
        """A call of the model's reply, with its owner. ``cut``: the model ran out of tokens while it wrote the arguments."""
        unfinished = UnreadableArguments("the answer was cut off before the call was complete.", arguments)
        parsed = unfinished if cut else read_arguments(arguments)
        if name in self.native:
            return ToolCall(call_id, name, "native", parsed)
        if (tool := self.managed.get(name)) is not None:
            return ToolCall(call_id, name, "managed", parsed, tool, told_as=self.alias(name))
        safe = provider_safe_name(name)
        return ToolCall(call_id, name, "unknown", parsed, told_as=None if safe == name else safe)
