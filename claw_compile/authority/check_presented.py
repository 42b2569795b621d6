"""Check: the names under which models see tools (spec/README.md, rulings: provider-safe names)."""

from __future__ import annotations

from collections.abc import Iterator

from claw_compile import codes
from claw_compile.authority.agent import Agent, GrantedTool
from claw_compile.descriptors.descriptor import Described
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, quoted
from claw_compile.loading.load import Loaded
from claw_compile.reading.node import span_at
from claw_contract.names import ALIAS_LIMIT, assign_aliases, canonical_name, plain_alias


def check_presented(agent: Agent, loaded: Loaded) -> Iterator[Diagnostic]:
    """Tools that are not presented by their plain names, each where its descriptor names it."""
    granted = {canonical_name(each.service, each.tool.name): each for each in agent.tools}
    plain: dict[str, list[str]] = {}
    for name in granted:
        plain.setdefault(plain_alias(name), []).append(name)
    odd = {alias: names for alias, names in plain.items() if len(names) > 1 or len(alias) > ALIAS_LIMIT}
    presented = assign_aliases(granted) if odd else {}
    for alias, names in odd.items():
        for name in names:
            others = [other for other in names if other != name]
            why = f"like {', '.join(others)}" if others else f"which has {len(alias)} characters"
            message = f"{name} would be {quoted(alias)}, {why}; models see it as {quoted(presented[name])}"
            notes = [Note(_place(granted[other], loaded), "the other one is here") for other in others]
            yield codes.PRESENTED_NAME.at(_place(granted[name], loaded), message, notes=notes)


def _place(granted: GrantedTool, loaded: Loaded) -> Span:
    described = loaded.described[granted.service]
    assert isinstance(described, Described)
    index = next(at for at, tool in enumerate(described.tools) if tool.name == granted.tool.name)
    return span_at(described.root, ("tools", index, "name"))
