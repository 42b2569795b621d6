"""The members in which a response repeats its request: the runner gets its own, and not ours.

docs/spec/responses.md section 6. A provider repeats the whole list of tools, so that a response as
it came would show every managed tool.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_outline import MAX_WHOLE_BYTES
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.responses.items import TOLD, join_items, split_items, tool_name

ECHOED: Final = ("tools", "tool_choice", "instructions", "input", "previous_response_id", *TOLD)


class _EchoedMembers(msgspec.Struct):
    """The members of a request that its response repeats, with the API's defaults."""

    tool_choice: msgspec.Raw = msgspec.Raw(b'"auto"')
    instructions: msgspec.Raw = msgspec.Raw(b"null")
    input: msgspec.Raw = msgspec.Raw(b"null")


_echoed_decoder = msgspec.json.Decoder(_EchoedMembers)
_DEFAULTS: Final = _EchoedMembers()


def echo_changes(value: Callable[[str], bytes | None], request: RunnerRequest) -> dict[str, bytes]:
    """Return the changes that make a response repeat the runner's request.

    ``value`` gives the bytes of a member of the response, None if it has none.
    """
    changes: dict[str, bytes] = {}
    tools = value("tools")
    if tools is not None and tools[:1] == b"[":
        # Tools of other types have no name: "".
        declared = frozenset(("", *request.declared_tools))
        changes["tools"] = join_items(
            tool for tool in split_items(tools) if tool_name(tool) in declared
        )

    echoed = [name for name in _EchoedMembers.__struct_fields__ if value(name) is not None]
    if echoed:
        changes |= _read_members(request.body, echoed)

    changes |= {name: b"null" for name in TOLD if value(name) is not None}
    if value("previous_response_id") is not None:
        named = request.kept.previous_response if request.kept is not None else ""
        changes["previous_response_id"] = encode(named or None)

    return {name: changed for name, changed in changes.items() if changed != value(name)}


def _read_members(body: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Return these members of a request, each with the API's default if it is absent."""
    if len(body) <= MAX_WHOLE_BYTES:
        members = _echoed_decoder.decode(body)
        return {name: bytes(getattr(members, name)) for name in names}

    parsed = json_splice.Object(body)
    return {name: parsed.value(name) or bytes(getattr(_DEFAULTS, name)) for name in names}
