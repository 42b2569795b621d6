"""Permissions of an agent: ``tools``, ``tool-policy`` and ``surfaces``.

Tools are called through the proxy, the policy limits one turn and says how its answer streams, and
surfaces are places that the agent reaches itself.

A surface is ``service://X``, ``volume://N [ro|rw]``, ``host:///abs [ro|rw]``, ``channel://P`` or
``egress://``. Without a mode, a volume or host is read-only. Only ``channel://`` has a form with a
value, which is the runner's configuration of that channel.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import Access, AllTools, Grant, Scheme, Surface, ToolPolicySetting
from claw_compile.grammar.reader import Reader
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode
from claw_contract.manifest import (
    MAX_PARALLEL,
    MAX_ROUNDS,
    MAX_TOOL_RESULT_BYTES,
    TIMEOUT_PER_TOOL_MS,
    TOTAL_TIMEOUT_MS,
    Policy,
    PreambleMode,
    StreamMode,
)

SCHEMES = ("service", "volume", "host", "channel", "egress")
_CHANNEL = "channel://"
_VOLUME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_ACCESS: dict[str, Access] = {"ro": "ro", "read-only": "ro", "rw": "rw", "read-write": "rw"}
_SURFACE = re.compile(r"(?P<scheme>[a-z]+)://(?P<target>\S*)(\s+(?P<mode>\S+))?\s*")
_MODE_SCHEMA = rf"(?:\s+(?:{'|'.join(_ACCESS)}))?\s*"
# The same rules as ``_problem``, for editors.
_SURFACE_SCHEMA = "|".join(
    (
        r"service://\S+\s*",
        rf"volume://{_VOLUME}{_MODE_SCHEMA}",
        rf"host:///(?!\S*(?:/\.\.|^\.\.)(?:/|\s|$))(?!\.\.(?:/|\s|$))\S*{_MODE_SCHEMA}",
        r"channel://\S+\s*",
        r"egress://\S*\s*",
    )
)

_CHANNEL_KEYS = (
    shapes.Key(
        "allow_from_handles", shapes.Flag(), "Whether people with a handle may write to the agent."
    ),
    shapes.Key(
        "allow_from_services",
        shapes.ListOf(shapes.Text()),
        "Which services may write to the agent.",
    ),
    shapes.Key("guilds", shapes.AnyMapping(), "Guilds of the channel, as its runner takes them."),
    shapes.Key("dm", shapes.AnyMapping(), "Direct messages, as the runner takes them."),
)


def _build_channel(members: shapes.Members) -> MapNode | None:
    """Check the first level of a channel's configuration, and return all of it for the runner."""
    for key in _CHANNEL_KEYS:
        members[key]
    return members.node if isinstance(members.node, MapNode) else None


_CHANNEL_RECORD = shapes.Record(_CHANNEL_KEYS, _build_channel, "a channel", is_nullable=True)


@dataclass(frozen=True)
class _SurfaceShape:
    """One entry of ``surfaces``."""

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> Surface | None:
        channel: MapNode | None = None
        configured = _channel_entry(node)
        if configured is not None:
            channel = _CHANNEL_RECORD.read(reader, configured.value, place)
            node = configured.key

        word = reader.text(node, "a surface")
        if word is None:
            return None

        match = _SURFACE.fullmatch(word.text)
        problem = _problem(match) if match else "it has no 'scheme://'"
        if match is None or problem:
            message = f"{quote(word.shown)} is not a surface: {problem}"
            reader.report(codes.BAD_SURFACE, node.span, message)
            return None

        scheme = cast("Scheme", match["scheme"])
        mode = _ACCESS[match["mode"] or "ro"] if scheme in {"volume", "host"} else None
        return Surface(scheme, match["target"], node.span, word.shown, mode, channel)

    def json_schema(self) -> shapes.Schema:
        channel: shapes.Schema = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": {"pattern": rf"^{_CHANNEL}\S+\s*$"},
            "additionalProperties": _CHANNEL_RECORD.json_schema(),
        }
        return {"anyOf": [shapes.Text(_SURFACE_SCHEMA).json_schema(), channel]}


def _channel_entry(node: Node) -> Entry | None:
    """Return the entry of ``channel://P: {…}``; None for anything else."""
    if not isinstance(node, MapNode) or len(node.entries) != 1:
        return None

    entry = node.entries[0]
    return entry if entry.key.text.startswith(_CHANNEL) else None


def _problem(match: re.Match[str]) -> str | None:
    """Return what is wrong with the parts of a surface, or None."""
    scheme = match["scheme"]
    target = match["target"]
    mode = match["mode"]

    if scheme not in SCHEMES:
        return "unknown scheme"
    if scheme != "egress" and not target:
        return "it names no target"

    # ``..`` would lead a mount out of the directory that the file names.
    if scheme == "host" and (not target.startswith("/") or ".." in target.split("/")):
        return "the path is not absolute"
    if scheme == "volume" and not re.fullmatch(_VOLUME, target):
        return f"a volume's name is {_VOLUME}"

    takes_mode = scheme in {"volume", "host"}
    if mode and (not takes_mode or mode not in _ACCESS):
        return "it takes no such mode"
    return None


SURFACES = shapes.SpreadList(_SurfaceShape())
DEFAULT_SURFACES = shapes.SpreadList(_SurfaceShape(), is_default=True)


_ALLOW_HELP = "write 'allow: all' or 'allow: [tool, …]'"


@dataclass(frozen=True)
class _Allow:
    """``all``, or a list of names that has at least one.

    ``all`` in a list is an error, so that nobody grants everything by adding a word to a list.
    """

    def read(
        self, reader: Reader, node: Node, place: shapes.ValuePlace
    ) -> AllTools | tuple[ScalarNode, ...] | None:
        if isinstance(node, ScalarNode) and not node.is_null:
            return self._read_word(reader, node, place)

        if not shapes.items(reader, node, place.what):
            # A mapping is reported already, as no list.
            if not isinstance(node, MapNode):
                message = "'allow' is empty"
                reader.report(codes.ALLOW_MISSING, node.span, message, help_text=_ALLOW_HELP)
            return None

        names = shapes.ListOf(shapes.Text()).read(reader, node, place)
        mixed = [name for name in names if name.text == "all"]
        for name in mixed:
            message = "'all' is in a list of names"
            reader.report(codes.ALL_MIXED_WITH_NAMES, name.span, message, help_text=_ALLOW_HELP)
        return None if mixed else names

    def _read_word(
        self, reader: Reader, node: ScalarNode, place: shapes.ValuePlace
    ) -> AllTools | None:
        word = reader.text(node, place.what)
        if word is None:
            return None
        if word.text == "all":
            return AllTools(node.span)

        hint = f"[{quote(word.shown)[1:-1]}]"
        message = "'allow' is 'all' or a list of names"
        reader.report(codes.WRONG_TYPE, node.span, message, hint=hint)
        return None

    def json_schema(self) -> shapes.Schema:
        name = {"allOf": [shapes.Text().json_schema(), {"not": {"const": "all"}}]}
        names: shapes.Schema = {"type": "array", "minItems": 1, "items": name}
        return {"anyOf": [*shapes.Choice(("all",)).json_schema()["anyOf"], names]}


_SERVICE = shapes.Key("service", shapes.Text(), "The service that provides the tools.")
_ALLOW = shapes.Key[AllTools | tuple[ScalarNode, ...]](
    "allow",
    _Allow(),
    "Which of its tools: all, or their names.",
    missing=shapes.MissingKey(codes.ALLOW_MISSING, help_text=_ALLOW_HELP),
)
_DENY = shapes.Key(
    "deny", shapes.ListOf(shapes.Text()), "Tools that are not granted; beats every 'allow'."
)


def _build_grant(members: shapes.Members) -> Grant | None:
    service = members[_SERVICE]
    allow = members[_ALLOW]
    deny = members[_DENY] or ()

    # A grant that can't be read in full grants nothing.
    if not service or not allow:
        return None
    return Grant(service, allow, deny, members.place.span)


_GRANT = shapes.Record(
    (_SERVICE, _ALLOW, _DENY), _build_grant, "a grant", required=(_SERVICE, _ALLOW)
)


@dataclass(frozen=True)
class _GrantShape:
    """One entry of ``tools``.

    The name of a service alone is a common slip, and gets a message of its own.
    """

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> Grant | None:
        if not isinstance(node, ScalarNode):
            return _GRANT.read(reader, node, place)

        name = quote(node.shown)
        message = f"{name} is not a grant"
        help_text = f"to grant all its tools write '- service: {name[1:-1]}' with 'allow: all'"
        reader.report(codes.ALLOW_MISSING, node.span, message, help_text=help_text)
        return None

    def json_schema(self) -> shapes.Schema:
        return _GRANT.json_schema()


GRANTS = shapes.SpreadList(_GrantShape())
DEFAULT_GRANTS = shapes.SpreadList(_GrantShape(), is_default=True)

_PER_TOOL = shapes.Key(
    "timeout-per-tool-ms",
    shapes.Limit(),
    "How many milliseconds a call may take.",
    TIMEOUT_PER_TOOL_MS,
)
_TOTAL = shapes.Key(
    "total-timeout-ms", shapes.Limit(), "How many milliseconds a turn may take.", TOTAL_TIMEOUT_MS
)
_ON_BUDGET = shapes.Key(
    "on-budget",
    shapes.Choice[Literal["finalize", "error"]](("finalize", "error")),
    "At the end of rounds or time: one last answer without tools, or an error.",
    "finalize",
)
_STREAM = shapes.Key(
    "stream",
    shapes.Choice[StreamMode](("live", "buffered")),
    "When a runner that asks for a stream gets it: while the model writes, or once it is whole.",
    "buffered",
)
_PREAMBLE = shapes.Key(
    "preamble",
    shapes.Choice[PreambleMode](("show", "hide")),
    "Whether a live stream shows what the model writes before it calls a managed tool.",
    "show",
)
_POLICY_KEYS: tuple[shapes.Key[Any], ...] = (
    shapes.Key(
        "max-rounds", shapes.Limit(), "How many rounds of tool calls a turn may have.", MAX_ROUNDS
    ),
    _PER_TOOL,
    _TOTAL,
    shapes.Key(
        "max-tool-result-bytes",
        shapes.Limit(),
        "How many bytes of a result the model sees.",
        MAX_TOOL_RESULT_BYTES,
    ),
    shapes.Key("max-parallel", shapes.Limit(), "How many calls run at once.", MAX_PARALLEL),
    _ON_BUDGET,
    _STREAM,
    _PREAMBLE,
)


def _build_policy(members: shapes.Members) -> ToolPolicySetting:
    """Build the policy; what is left out takes the contract's default."""
    policy: dict[str, Any] = {}
    for key in _POLICY_KEYS:
        value = members[key]
        if value is not None:
            policy[key.name.replace("-", "_")] = value

    per_tool = policy.get("timeout_per_tool_ms", TIMEOUT_PER_TOOL_MS)
    total = policy.get("total_timeout_ms", TOTAL_TIMEOUT_MS)
    if total < per_tool:
        key = _TOTAL if _TOTAL in members else _PER_TOOL
        at = members.entries[key.name].value.span
        are_both_set = {"total_timeout_ms", "timeout_per_tool_ms"} <= policy.keys()
        default = "" if are_both_set else " (one is the default)"
        message = f"total-timeout-ms {total} is less than timeout-per-tool-ms {per_tool}{default}"
        members.reader.report(codes.TOTAL_BELOW_PER_TOOL, at, message)

    return ToolPolicySetting(members.place.span, Policy(**policy))


TOOL_POLICY = shapes.Record(_POLICY_KEYS, _build_policy, is_nullable=True)
