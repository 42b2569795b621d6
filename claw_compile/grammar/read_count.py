"""``count``: how many of an agent there are (origin-compile.md 2.12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Note, quoted
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, MapNode, ScalarNode
from claw_contract.names import is_agent_id

MOST = 1000
"""Each has a directory and a container of its own: more is a slip of the finger."""


def read_count(reading: Reading, name: ScalarNode, entry: Entry | None, body: MapNode) -> int:
    """The number of agents; what Compose says of the same matter is checked against it."""
    count = reading.limit(entry.value, "'count'") if entry else 1
    if entry is not None and count is not None:
        if count > MOST:
            reading.found.append(codes.BAD_LIMIT.at(entry.value.span, f"'count' is at most {MOST}"))
            count = 1
        elif count > 1 and is_agent_id(name.text) and not is_agent_id(f"{name.text}-{count - 1}"):
            message = f"{quoted(f'{name.text}-{count - 1}')} is too long for an agent's name"
            reading.found.append(codes.BAD_AGENT_ID.at(name.span, message))
    _check_compose(reading, entry if count and count > 1 else None, body)
    return count or 1


def _check_compose(reading: Reading, counted: Entry | None, body: MapNode) -> None:
    notes = [Note(counted.key.span, "'count' is here")] if counted else []
    if counted is not None and (named := body.get("container_name")) is not None:
        message = "'container_name' beside 'count': several containers can't have one name"
        reading.found.append(codes.COUNT_CONFLICT.at(named.key.span, message, notes=notes))
    for what, entry in _replicas(body):
        number = reading.filled(entry.value) if isinstance(entry.value, ScalarNode) else None
        if number is None or (counted is None and number.text.strip() in {"", "0", "1"}):
            continue
        message = f"{quoted(what)} would give several containers one identity"
        help_text = "write 'count' under 'x-claw': each agent has a name and a token of its own"
        reading.found.append(codes.COUNT_CONFLICT.at(entry.key.span, message, notes=notes, help_text=help_text))


def _replicas(body: MapNode) -> Iterator[tuple[str, Entry]]:
    deploy = body.value("deploy")
    places: Mapping[str, Entry | None] = {
        "scale": body.get("scale"),
        "deploy.replicas": deploy.get("replicas") if isinstance(deploy, MapNode) else None,
    }
    for what, entry in places.items():
        if entry is not None:
            yield what, entry
