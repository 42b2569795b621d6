"""The tools of one request: the runner's own, and the agent's managed ones.

The catalog says which managed tools are offered, under which alias, and who owns a name.
"""

from collections.abc import Collection
from dataclasses import dataclass

from claw_contract.manifest import Tool
from claw_contract.names import assign_aliases, provider_safe_name
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.types import Arguments, Owner, ToolCall, UnreadableArguments


@dataclass(frozen=True, slots=True, eq=False)
class OfferedTool:
    """A managed tool as the model sees it.

    Two are equal only if they are the same object, so a cache can use it as key.
    """

    alias: str
    description: str
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolCatalog:
    """The owner of each name.

    It is the runner if it declared the name in this request, else a granted tool, else nobody.
    """

    offered: tuple[OfferedTool, ...]
    managed: dict[str, Tool]  # Keyed by alias and by canonical name
    native: frozenset[str]
    is_open: bool = False  # True if the runner may have tools that are not in ``native``
    withdrawn: frozenset[str] = frozenset()
    """Names of tools that were managed earlier in the conversation.

    The model may still call them, and the runner never had them.
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
        """Return the catalog of at most ``room`` tools, in the order of the manifest.

        ``earlier``: the names of managed tools in the response that the request goes on from.
        """
        present = list(tools)[: max(room, 0)]
        aliases = assign_aliases((tool.name for tool in present), native)

        offered = tuple(
            OfferedTool(aliases[tool.name], tool.description, tool.visible_schema)
            for tool in present
        )
        by_name = {tool.name: tool for tool in present}
        by_alias = {aliases[tool.name]: tool for tool in present}
        managed = by_name | by_alias

        return cls(
            offered=offered,
            managed=managed,
            native=frozenset(native),
            is_open=is_open,
            withdrawn=frozenset(earlier).difference(managed, native),
        )

    def find_alias(self, name: str) -> str | None:
        """Return the alias of a managed tool that is called by its canonical name.

        None for any other name.
        """
        tool = self.managed.get(name)
        if tool is None or name != tool.name or name in self.native:
            return None

        for alias, owner in self.managed.items():
            if owner is tool and alias != tool.name:
                return alias
        return None

    def make_call(self, call_id: str, name: str, arguments: str, *, cut: bool = False) -> ToolCall:
        """Return a call of the model's response, with its owner.

        ``cut``: the model ran out of tokens within the arguments.
        """
        parsed: Arguments | UnreadableArguments
        if cut:
            reason = "the answer was cut off before the call was complete."
            parsed = UnreadableArguments(reason, arguments)
        else:
            parsed = read_arguments(arguments)

        if name in self.native:
            return ToolCall(call_id, name, "native", parsed)

        tool = self.managed.get(name)
        if tool is not None:
            alias = self.find_alias(name)
            return ToolCall(call_id, name, "managed", parsed, tool, safe_name=alias)

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
        """Return a call of a tool in a namespace.

        It is the runner's if the runner declared the namespace, or may have.
        """
        is_native = self.is_open or namespace in self.native
        owner: Owner = "native" if is_native else "unknown"
        return ToolCall(call_id, f"{namespace}.{name}", owner, read_arguments(arguments))
