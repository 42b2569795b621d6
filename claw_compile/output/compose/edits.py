"""Edits of one Compose service, key by key (docs/spec/compile.md "Grammar": keys
outside ``x-claw`` pass through).

Rules. What the user wrote stays where it stands, in its own form; ours is added behind it. A shape
that Compose would refuse is left to Compose, which says so.
"""

from collections.abc import Callable, Mapping, Sequence

from claw_compile.output.yaml_text import Data, entry, mapping, tree
from claw_compile.parsing.node import (
    Entry,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    entries_of,
    items_of,
)

type Containers = Callable[[str], Sequence[str]]
"""The containers that a service becomes: its own name, or one for each of ``count``."""


def escape_dollars(text: str) -> str:
    """Return a value that Compose interpolates to ``text``."""
    return text.replace("$", "$$")


def set_key(body: MapNode, key: str, value: Data) -> MapNode:
    """Return the mapping with ``key`` replaced where it stands, or added at the end."""
    changed = tuple(
        Entry(each.key, tree(value)) if each.key.text == key else each for each in body.entries
    )
    added = () if body.get(key) else (entry(key, value),)
    return MapNode((*changed, *added), body.span, body.tag)


def drop_key(body: MapNode, key: str) -> MapNode:
    return MapNode(
        tuple(each for each in body.entries if each.key.text != key), body.span, body.tag
    )


def is_absent(node: Node | None) -> bool:
    """Return whether a value is missing or null: both are Compose's default."""
    return node is None or (isinstance(node, ScalarNode) and node.is_null)


def extend_list(body: MapNode, key: str, items: Sequence[Data]) -> MapNode:
    node = body.value(key)
    if not items or not (is_absent(node) or isinstance(node, ListNode)):
        return body
    own = items_of(node)
    return set_key(
        body, key, ListNode((*own, *(tree(item) for item in items)), body.span, _tag(node))
    )


def add_env_file(body: MapNode, file: Data) -> MapNode:
    """Add a file to ``env_file``, a path or a list of them; the last one wins."""
    node = body.value("env_file")
    if isinstance(node, ScalarNode) and not node.is_null:
        return set_key(body, "env_file", [node, file])
    return extend_list(body, "env_file", [file])


def add_labels(body: MapNode, labels: Mapping[str, str]) -> MapNode:
    """Add labels in the form that the service has, map or list; ours win."""
    node = body.value("labels")
    if isinstance(node, ListNode):
        replaced = [
            each
            for each in node.items
            if isinstance(each, ScalarNode) and each.text.partition("=")[0] in labels
        ]
        own = [each for each in node.items if each not in replaced]
        ours = [f"{name}={escape_dollars(value)}" for name, value in labels.items()]
        return set_key(body, "labels", ListNode((*own, *map(tree, ours)), node.span, node.tag))
    if not (is_absent(node) or isinstance(node, MapNode)):
        return body
    kept = node if isinstance(node, MapNode) else MapNode((), body.span)
    for name, value in labels.items():
        kept = set_key(kept, name, escape_dollars(value))
    return set_key(body, "labels", kept)


def join_networks(body: MapNode, joined: Mapping[str, Data], *, keeps_default: bool) -> MapNode:
    """Put the service on more networks.

    ``keeps_default``: naming some would otherwise take it off the default one.
    """
    node = body.value("networks")
    if not joined or not (is_absent(node) or isinstance(node, ListNode | MapNode)):
        return body
    own = (
        *entries_of(node),
        *(Entry(item, tree(None)) for item in items_of(node) if isinstance(item, ScalarNode)),
    )
    if is_absent(node) and keeps_default:
        own = mapping({"default": None}).entries
    return set_key(
        body, "networks", MapNode((*own, *mapping(joined).entries), body.span, _tag(node))
    )


def depend_on(body: MapNode, needed: Mapping[str, str]) -> MapNode:
    """Add services to wait for, with the condition of each; the short form becomes the long one."""
    node = body.value("depends_on")
    if not needed or not (is_absent(node) or isinstance(node, ListNode | MapNode)):
        return body
    items = (each for each in items_of(node) if isinstance(each, ScalarNode))
    own = (*entries_of(node), *(Entry(each, tree(_condition("service_started"))) for each in items))
    ours = mapping({name: _condition(condition) for name, condition in needed.items()})
    return set_key(body, "depends_on", MapNode((*own, *ours.entries), body.span, _tag(node)))


def _condition(word: str) -> dict[str, Data]:
    return {"condition": word}


def name_ordinals(body: MapNode, containers: Containers) -> MapNode:
    """Make names of a counted service names of each of its containers; a condition
    is kept for each.
    """
    waits = body.value("depends_on")
    if isinstance(waits, MapNode):
        named = {name: each for each in waits.entries for name in containers(each.key.text)}
        entries = tuple(Entry(_like(each.key, name), each.value) for name, each in named.items())
        body = set_key(body, "depends_on", MapNode(entries, waits.span, waits.tag))
    for key in ("depends_on", "links", "volumes_from"):
        node = body.value(key)
        if isinstance(node, ListNode):
            body = set_key(body, key, _each_ordinal(node, containers))
    return body


def _each_ordinal(node: ListNode, containers: Containers) -> ListNode:
    items: list[Node] = []
    for item in node.items:
        if not isinstance(item, ScalarNode):
            items.append(item)
            continue
        # ``analyst``, ``analyst:alias``, ``analyst:ro``
        name, colon, rest = item.text.partition(":")
        items.extend(_like(item, f"{each}{colon}{rest}") for each in containers(name))
    return ListNode(tuple(items), node.span, node.tag)


def _like(node: ScalarNode, text: str) -> ScalarNode:
    return node if node.text == text else ScalarNode(text, node.span)


def _tag(node: Node | None) -> str:
    return node.tag if node is not None else ""
