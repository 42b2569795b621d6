"""A managed call, from the model's text to the request. Pure: nothing is sent here.

The rules (docs/spec/mediation.md section 4):

- Arguments are one JSON object without repeated keys, or the call is not run.
- ``claw_id`` is the authenticated agent, whatever the model sends for it.
- A path argument is a scalar, percent-encoded once as one segment. It is never empty, ``.``, ``..``
  or anything that a server could take for a separator.
- Every number is sent in the spelling that the model gave it.
"""

import json
import re
from typing import Any
from urllib.parse import quote

import msgspec

from claw_contract.json_schema import check_instance
from claw_contract.manifest import CLAW_ID, PLACEHOLDER, HttpExecution, McpExecution, Tool
from claw_contract.strict_json import NoObjectError, RepeatedKeyError, read_strict_object
from claw_mediate.core.types import Arguments, ToolCall, UnreadableArguments

MAX_VIOLATIONS = 8
MAX_TARGET = 32_768
"""Characters of path and query together.

Clients and servers treat longer targets differently, so they are refused here.
"""
_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")

_SEPARATORS = ("/", "\\", "\0", "%2f", "%5c", "%00")
_TOO_LONG = "the arguments are too long for a URL."

_split = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ToolRequest(msgspec.Struct, frozen=True):
    """The HTTP request of a call, without host and credentials."""

    method: str
    target: str  # Path and query, encoded
    body: bytes | None


def read_arguments(text: str) -> Arguments | UnreadableArguments:
    """Return the arguments that the model wrote. Blank text is a call without arguments."""
    if not text.strip():
        return Arguments({}, {}, "{}")

    try:
        values = read_strict_object(text)
        raw = {name: bytes(value) for name, value in _split.decode(text.encode()).items()}

        # The proxy sets it itself (``_with_claw_id``), so it does not tell calls apart either.
        values.pop(CLAW_ID, None)
        raw.pop(CLAW_ID, None)
        return Arguments(values, raw, _canonical_text(raw))
    except NoObjectError:
        return UnreadableArguments("the arguments must be one JSON object.", text)
    except RepeatedKeyError as error:
        return UnreadableArguments(str(error), text)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return UnreadableArguments("the arguments are not valid JSON.", text)


def find_violations(tool: Tool, arguments: Arguments) -> list[dict[str, str]]:
    """Return up to eight places where the arguments break the tool's schema.

    Each is ``{path, message}``.
    """
    return check_instance(tool.visible_schema_text, arguments.values, MAX_VIOLATIONS)


def build_http_request(tool: Tool, arguments: Arguments, agent_id: str) -> ToolRequest | str:
    """Return the request of a call over HTTP.

    A string instead is a sentence, for the model, that says why its arguments can't make one.
    """
    execution = tool.execution
    assert isinstance(execution, HttpExecution)

    rest = _with_claw_id(tool, arguments, agent_id)
    target = execution.path
    for name in dict.fromkeys(PLACEHOLDER.findall(target)):
        segment = quote(agent_id, safe="") if name == CLAW_ID else _path_segment(rest.get(name))
        if segment is None:
            return (
                f"the argument {name!r} must be one plain path segment: text or a number, "
                "without separators."
            )
        target = target.replace(f"{{{name}}}", segment)
        rest.pop(name, None)

    # Arguments that are not in the path go into the query or the body.
    body: bytes | None = None
    if execution.method in {"GET", "DELETE"}:
        target = _with_query(target, rest)
    else:
        body = _write_object(rest)
        if execution.body_key is not None:
            body = _write_object({execution.body_key: body})

    if len(target) > MAX_TARGET:
        return _TOO_LONG
    return ToolRequest(execution.method, target, body)


def _with_query(path: str, members: dict[str, bytes]) -> str:
    pairs = [
        f"{quote(name, safe='')}={quote(_plain_text(value), safe='')}"
        for name, value in members.items()
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def build_mcp_params(tool: Tool, arguments: Arguments, agent_id: str, meta: bytes = b"") -> bytes:
    """Return the parameters of a call over MCP. ``meta``: the ``_meta`` of the request, as JSON."""
    execution = tool.execution
    assert isinstance(execution, McpExecution)

    members = {
        "name": json.dumps(execution.tool_name).encode(),
        "arguments": _write_object(_with_claw_id(tool, arguments, agent_id)),
    }
    if meta:
        members["_meta"] = meta
    return _write_object(members)


def call_key(turn_id: str, round_number: int, place: int) -> str:
    """Return the key of a call: its turn, its round, its place among the calls of its response.

    The service sees it, too.
    """
    return f"{turn_id}.{round_number}.{place}"


def round_of_key(key: str) -> int:
    return int(key.rsplit(".", 2)[1])


def turn_of_key(key: str) -> str:
    return key.rsplit(".", 2)[0]


def write_arguments(call: ToolCall) -> bytes:
    """Return the arguments of a call as JSON, each in the model's own text."""
    if isinstance(call.arguments, UnreadableArguments):
        return call.arguments.text.encode(errors="replace")
    return _write_object(call.arguments.raw)


def _with_claw_id(tool: Tool, arguments: Arguments, agent_id: str) -> dict[str, bytes]:
    """Return the arguments' texts, with the agent's id if the tool's schema asks for it."""
    raw = dict(arguments.raw)
    properties = tool.input_schema.get("properties")
    if isinstance(properties, dict) and CLAW_ID in properties:
        raw[CLAW_ID] = json.dumps(agent_id).encode()
    return raw


def _write_object(members: dict[str, bytes]) -> bytes:
    pairs = [json.dumps(name).encode() + b":" + value for name, value in members.items()]
    return b"{" + b",".join(pairs) + b"}"


def _path_segment(raw: bytes | None) -> str | None:
    """Return a value as one path segment, encoded once; None for a value that must not be one."""
    if raw is None or raw[:1] in b"{[n":  # objects, arrays, null
        return None

    # A server may decode the segment once more than it should.
    text = _plain_text(raw)
    decoded = text.lower().replace("%2e", ".")
    if decoded in {"", ".", ".."}:
        return None
    if any(separator in decoded for separator in _SEPARATORS):
        return None

    return quote(text, safe="")


def _plain_text(raw: bytes) -> str:
    """Return a string's text; anything else in its own JSON spelling."""
    return json.loads(raw) if raw[:1] == b'"' else raw.decode()


def _canonical_text(raw: dict[str, bytes]) -> str:
    """Return canonical JSON: keys are sorted, and ``1``, ``1.0``, ``10e-1`` written alike."""
    exact = {name: _exact_decoder.decode(value.decode()) for name, value in raw.items()}
    return _canonical_encoder.encode(exact)


def _escape_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys differ from the mark of a number (``_exact_number``)."""
    return {f"#{name}" if name.startswith("#") else name: value for name, value in pairs}


def _exact_number(text: str) -> dict[str, str]:
    """Return the exact value in one spelling, as an object that no argument can be.

    It is made from the digits: ``Decimal`` rejects exponents that JSON allows.
    """
    parts = _NUMBER.fullmatch(text)
    assert parts is not None

    sign, whole, fraction, exponent = parts.groups("")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return {"#": "0e0"}

    stripped = digits.rstrip("0")
    trailing_zeros = len(digits) - len(stripped)
    power = int(exponent or 0) - len(fraction) + trailing_zeros
    return {"#": f"{sign}{stripped}e{power}"}


_exact_decoder = json.JSONDecoder(
    parse_int=_exact_number, parse_float=_exact_number, object_pairs_hook=_escape_keys
)
_canonical_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
