"""An agent's tools beside the runner's own, in one request: who owns a name, which tools are
offered, and under which alias.
"""

from collections.abc import Collection
from dataclasses import dataclass

from claw_contract.manifest import Tool
from claw_contract.names import assign_aliases, provider_safe_name
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.types import ToolCall, UnreadableArguments


@dataclass(frozen=True, slots=True, eq=False)
class OfferedTool:
    """A managed tool as the model sees it.

    Compared by identity, so that its encoded form can be cached by it.
    """

    alias: str
    description: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolCatalog:
    """The owner of each name: the runner if it declared the name in this request,
    else a granted tool, else nobody.
    """

    offered: tuple[OfferedTool, ...]
    managed: dict[str, Tool]  # Keyed by alias and by canonical name
    native: frozenset[str]
    is_open: bool = False  # True if the runner may have tools that are not in ``native``
    withdrawn: frozenset[str] = frozenset()
    """Names of tools that were managed earlier in the conversation.

    The model may know them still, and the runner never did.
    """

    @classmethod
    def build(
        cls,
        tools: Collection[Tool],
        native: Collection[str],
        room: int,
        *,
        is_open: bool = False,
        earlier: Collection[str] = (),
    ) -> "ToolCatalog":
        """Return the catalog of tools in manifest order. Tools beyond ``room`` are left out.

        ``earlier``: names by which tools were managed in what the request goes on from.
        """
        present = list(tools)[: max(room, 0)]
        names = assign_aliases((tool.name for tool in present), native)
        managed = {tool.name: tool for tool in present} | {
            names[tool.name]: tool for tool in present
        }
        return cls(
            offered=tuple(
                OfferedTool(names[tool.name], tool.description, tool.visible_schema)
                for tool in present
            ),
            managed=managed,
            native=frozenset(native),
            is_open=is_open,
            withdrawn=frozenset(earlier).difference(managed, native),
        )

    def find_alias(self, name: str) -> str | None:
        """Return the alias of a managed tool that is called by its canonical name;
        None for any other name.
        """
        tool = self.managed.get(name)
        if tool is None or name != tool.name or name in self.native:
            return None
        return next(
            (
                alias
                for alias, owner in self.managed.items()
                if owner is tool and alias != tool.name
            ),
            None,
        )

    def make_call(self, call_id: str, name: str, arguments: str, *, cut: bool = False) -> ToolCall:
        """Return a call of the model's response, with its owner.

        ``cut``: the model ran out of tokens within the arguments.
        """
        unfinished = UnreadableArguments(
            "the answer was cut off before the call was complete.", arguments
        )
        parsed = unfinished if cut else read_arguments(arguments)
        if name in self.native:
            return ToolCall(call_id, name, "native", parsed)
        if (tool := self.managed.get(name)) is not None:
            return ToolCall(call_id, name, "managed", parsed, tool, safe_name=self.find_alias(name))
        if self.is_open and name not in self.withdrawn:
            return ToolCall(call_id, name, "native", parsed)
        safe = provider_safe_name(name)
        return ToolCall(call_id, name, "unknown", parsed, safe_name=None if safe == name else safe)

    def make_native_call(self, call_id: str, name: str) -> ToolCall:
        """Return a call that only the runner can answer, whatever is granted."""
        return ToolCall(call_id, name, "native", read_arguments(""))

    def make_namespaced_call(
        self, call_id: str, namespace: str, name: str, arguments: str
    ) -> ToolCall:
        """Return a call of a tool in a namespace, which is the runner's where it
        may have declared that.
        """
        is_native = self.is_open or namespace in self.native
        return ToolCall(
            call_id,
            f"{namespace}.{name}",
            "native" if is_native else "unknown",
            read_arguments(arguments),
        )
