"""The tools that a runner's ``tool_choice`` leaves to the model, in the forms of three protocols.

    the choice                              leaves
    ──────────────────────────────────────  ─────────────────────────────────────────────
    a function, a custom tool or a tool     that one
    ``allowed_tools``                       those of its list
    auto, required, any, none, a hosted     not known by names
      tool, a form that we do not know

Pure. A hosted tool is the provider's own, so that it is no call for the runner or the proxy.
"""

from typing import Any, Final

from claw_contract.base import JsonObject

_ALLOWED: Final = "allowed_tools"
_NAMED: Final = frozenset({"function", "custom", "tool"})
"""Types of entries that name a tool of the request."""


def chosen_tools(choice: JsonObject | str | None) -> frozenset[str]:
    """Return the names of the tools that a choice leaves to the model.

    The empty set says that they are not known by names. An entry that can't be read makes it so:
    it may name any tool.
    """
    if not isinstance(choice, dict):
        return frozenset()

    entries: Any
    if choice.get("type") == _ALLOWED:
        # Responses has the list in the choice itself, Chat in an object within it.
        inner = choice.get(_ALLOWED)
        holder = inner if isinstance(inner, dict) else choice
        entries = holder.get("tools")
    else:
        entries = [choice]
    if not isinstance(entries, list):
        return frozenset()

    names: set[str] = set()
    for entry in entries:
        kind = entry.get("type") if isinstance(entry, dict) else None
        if not isinstance(kind, str):
            return frozenset()
        if kind not in _NAMED:
            continue  # A hosted tool is called by nobody but the provider.

        name = _name_of(entry, kind)
        if not name:
            return frozenset()
        names.add(name)

    return frozenset(names)


def _name_of(entry: JsonObject, kind: str) -> str:
    """Return the name in an entry; "" if it has none."""
    # Responses has the name in the entry itself, Chat in an object named like the entry's type.
    inner = entry.get(kind)
    holder = inner if isinstance(inner, dict) else entry
    name = holder.get("name")
    return name if isinstance(name, str) else ""
