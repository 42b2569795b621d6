"""Edits of one Compose service, key by key.

Specification: docs/spec/compile.md "Grammar": keys outside ``x-claw`` pass through.

Rules. What the user wrote stays at its place, in its own form; ours is added after it. A value of a
shape that Compose would refuse is left as it is: Compose says so.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from claw_compile.output.yaml_text import Data, entry, mapping, tree
from claw_compile.parsing.node import (
    Entry,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    items_of,
)

type Containers = Callable[[str], Sequence[str]]
"""The containers that a service becomes: its own name, or one for each of ``count``."""


def escape_dollars(text: str) -> str:
    """Return a value that Compose interpolates to ``text``."""
    return text.replace("$", "$$")


def set_key(body: MapNode, key: str, value: Data) -> MapNode:
    """Return the mapping with ``key`` replaced at its place, or added at the end."""
    if body.get(key) is None:
        return MapNode((*body.entries, entry(key, value)), body.span, body.tag)

    entries = [
        Entry(each.key, tree(value)) if each.key.text == key else each for each in body.entries
    ]
    return MapNode(tuple(entries), body.span, body.tag)


def drop_key(body: MapNode, key: str) -> MapNode:
    entries = tuple(each for each in body.entries if each.key.text != key)
    return MapNode(entries, body.span, body.tag)


def is_absent(node: Node | None) -> bool:
    """Return whether a value is missing or null: both are Compose's default."""
    return node is None or (isinstance(node, ScalarNode) and node.is_null)


def extend_list(body: MapNode, key: str, items: Sequence[Data]) -> MapNode:
    """Add items to the list ``key``, which may be absent."""
    node = body.value(key)
    is_list = isinstance(node, ListNode)
    if not items or not (is_list or is_absent(node)):
        return body

    ours = [tree(item) for item in items]
    return set_key(body, key, ListNode((*items_of(node), *ours), body.span, _tag(node)))


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
        own = [each for each in node.items if not _is_label(each, labels)]
        ours = [tree(f"{name}={escape_dollars(value)}") for name, value in labels.items()]
        return set_key(body, "labels", ListNode((*own, *ours), node.span, node.tag))

    if isinstance(node, MapNode):
        all_labels = node
    elif is_absent(node):
        all_labels = MapNode((), body.span)
    else:
        return body

    for name, value in labels.items():
        all_labels = set_key(all_labels, name, escape_dollars(value))
    return set_key(body, "labels", all_labels)


def _is_label(item: Node, names: Collection[str]) -> bool:
    """Return whether an item of a list of labels, ``name=value``, has one of these names."""
    return isinstance(item, ScalarNode) and item.text.partition("=")[0] in names


def join_networks(body: MapNode, networks: Mapping[str, Data], *, keeps_default: bool) -> MapNode:
    """Put the service on more networks.

    ``keeps_default``: a service that names no network stays on ``default``. Compose takes it off
    that one as soon as any other is named.
    """
    node = body.value("networks")
    if not networks or not _can_become_map(node):
        return body

    if is_absent(node) and keeps_default:
        own = mapping({"default": None}).entries
    else:
        own = _as_entries(node, None)
    entries = (*own, *mapping(networks).entries)
    return set_key(body, "networks", MapNode(entries, body.span, _tag(node)))


def depend_on(body: MapNode, conditions: Mapping[str, str]) -> MapNode:
    """Add services to wait for, with the condition of each.

    The short form, a list of names, becomes the long one: it means "started".
    """
    node = body.value("depends_on")
    if not conditions or not _can_become_map(node):
        return body

    own = _as_entries(node, _condition("service_started"))
    ours = mapping({name: _condition(condition) for name, condition in conditions.items()})
    entries = (*own, *ours.entries)
    return set_key(body, "depends_on", MapNode(entries, body.span, _tag(node)))


def _can_become_map(node: Node | None) -> bool:
    return is_absent(node) or isinstance(node, ListNode | MapNode)


def _as_entries(node: Node | None, value: Data) -> tuple[Entry, ...]:
    """Return the entries of a mapping; of a list of names, each name with ``value``."""
    if isinstance(node, MapNode):
        return node.entries
    return tuple(
        Entry(each, tree(value)) for each in items_of(node) if isinstance(each, ScalarNode)
    )


def _condition(word: str) -> dict[str, Data]:
    return {"condition": word}


def name_ordinals(body: MapNode, containers: Containers) -> MapNode:
    """Replace each name of a counted service by the names of its containers.

    A condition of ``depends_on`` holds for each of them.
    """
    waits = body.value("depends_on")
    if isinstance(waits, MapNode):
        # Each name once: the user may have named a service, and one of its ordinals as well.
        waits_by_name: dict[str, Entry] = {}
        for each in waits.entries:
            for name in containers(each.key.text):
                waits_by_name[name] = each
        entries = [
            Entry(_with_text(each.key, name), each.value) for name, each in waits_by_name.items()
        ]
        body = set_key(body, "depends_on", MapNode(tuple(entries), waits.span, waits.tag))

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
        items.extend(_with_text(item, f"{each}{colon}{rest}") for each in containers(name))
    return ListNode(tuple(items), node.span, node.tag)


def _with_text(node: ScalarNode, text: str) -> ScalarNode:
    """Return a name with another text; if the text is the same, the node in its own spelling."""
    return node if node.text == text else ScalarNode(text, node.span)


def _tag(node: Node | None) -> str:
    return node.tag if node is not None else ""
