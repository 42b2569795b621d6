"""``cllama``, the environment of the proxy, ``models`` and ``budget``.

The rules (docs/spec/compile.md, "Grammar" and "Defaults"):

- ``cllama`` is a name, a list of names, or ``{proxy, mode, workers, paths}``. ``null`` and ``[]``
  mean no proxy.
- ``env`` and ``cllama-env`` are the environment of the proxy only, and the place for the keys of
  providers. Their values are never shown.
- A model is ``provider/model``; a bare name is Anthropic's. Only ``fallback`` may be a list, in the
  order of the attempts, so that nobody needs a slot ``fallback-2``.
- A slot that is ``null`` suppresses the pod's. ``models: {}`` and ``models: null`` suppress all.
- A budget has a window (a Go duration) and at least one cap.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import did_you_mean, quote
from claw_compile.grammar import shapes
from claw_compile.grammar.pod import (
    MODES,
    BudgetSetting,
    CllamaSetting,
    Mode,
    Models,
    ProxyVariable,
)
from claw_compile.grammar.reader import Reader, is_null
from claw_compile.parsing.node import (
    Entry,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    entries_of,
    kind,
)
from claw_contract.durations import parse_duration
from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.metadata import Budget
from claw_contract.opened_paths import METHODS, OpenedPath, OpenedPathError
from claw_contract.toolhost_file import VARIABLE_NAME
from claw_contract.whole_numbers import whole_number

FALLBACK = "fallback"
type Behavior = Literal["hard_stop", "rate_limit", "soft_alert"]
BEHAVIORS: tuple[Behavior, ...] = ("hard_stop", "rate_limit", "soft_alert")
_DEFAULT_PROVIDER = "anthropic"
_RESERVED_PROVIDERS = {"cllama", "clawdapus"}
_SLOT = "[A-Za-z0-9][A-Za-z0-9_-]*"
_ORDINAL_SLOT = "fallback-[0-9]+"
# Visible ASCII, with or without ``provider/`` before it. The name neither begins nor ends with a
# slash.
_MODEL = r"(?:([a-z0-9][a-z0-9._-]*)/)?([!-.0-~](?:[!-~]*[!-.0-~])?)"


def _model(reader: Reader, word: ScalarNode, node: Node) -> str | None:
    match = re.fullmatch(_MODEL, word.text)
    assert match is not None
    provider = match[1] or _DEFAULT_PROVIDER

    if provider in _RESERVED_PROVIDERS:
        message = f"{quote(word.shown)}: the proxy itself is no provider"
        reader.report(codes.BAD_MODEL, node.span, message)
        return None

    if provider not in KNOWN_PROVIDERS:
        # Only a warning: the proxy's providers.json may define more.
        shown = word.shown.partition("/")[0]
        message = f"the proxy knows no provider {quote(shown)}"
        hint = did_you_mean(shown, KNOWN_PROVIDERS)
        help_text = f"it knows {', '.join(KNOWN_PROVIDERS)}"
        reader.report(codes.UNKNOWN_PROVIDER, node.span, message, hint=hint, help_text=help_text)

    return f"{provider}/{match[2]}"


_REF = shapes.Conversion(
    shapes.Text(_MODEL, "{shown} is not 'provider/model'", codes.BAD_MODEL, "a model"), _model
)
_FALLBACKS = shapes.ScalarOr(
    shapes.Conversion(_REF, lambda _reader, ref, _node: (ref,)), shapes.ListOf(_REF)
)


@dataclass(frozen=True)
class _ModelSlots:
    """``models``: slots of any name, each with one model, and ``fallback`` with a list."""

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> Models:
        slots: list[tuple[ScalarNode, str | None]] = []
        fallback: tuple[str, ...] | None = None

        mapping = reader.mapping(node, place.what)
        for entry in entries_of(mapping):
            if entry.key.text == FALLBACK:
                list_place = shapes.ValuePlace("'fallback'", place.span)
                refs = _FALLBACKS.read(reader, entry.value, list_place) or ()
                fallback = tuple(dict.fromkeys(refs))
            elif is_null(entry.value) and _is_slot(entry.key.text):
                slots.append((entry.key, None))
            else:
                ref = _read_slot(reader, entry, place)
                if ref is not None:
                    slots.append((entry.key, ref))

        return Models(place.span, tuple(slots), fallback)

    def json_schema(self) -> shapes.Schema:
        model = shapes.or_null(_REF.json_schema())
        primary = "The model that replaces any other one: provider/model."
        fallback = shapes.Key(
            FALLBACK, _FALLBACKS, "Models to try, in this order, when a provider fails."
        )
        slot = "The model of this slot; null removes the pod's."
        return {
            "type": ["object", "null"],
            "properties": {
                "primary": {"description": primary, **model},
                fallback.name: fallback.json_schema(),
            },
            "propertyNames": {"pattern": f"^{_SLOT}$", "not": {"pattern": f"^{_ORDINAL_SLOT}$"}},
            "additionalProperties": {"description": slot, **model},
        }


def _is_slot(name: str) -> bool:
    is_ordinal = re.fullmatch(_ORDINAL_SLOT, name) is not None
    return re.fullmatch(_SLOT, name) is not None and not is_ordinal


def _read_slot(reader: Reader, entry: Entry, place: shapes.ValuePlace) -> str | None:
    slot = entry.key.text
    if not _is_slot(slot):
        message = f"{quote(slot)} is no slot of {place.what}"
        help_text = "fallbacks are one list: 'fallback: [first, second]'"
        reader.report(codes.BAD_MODEL, entry.key.span, message, help_text=help_text)
        return None

    if isinstance(entry.value, ListNode):
        message = f"{quote(slot)} takes one model; only 'fallback' takes a list"
        reader.report(codes.BAD_MODEL, entry.value.span, message)
        return None

    return _REF.read(reader, entry.value, place)


MODELS = _ModelSlots()

# A decimal number above zero.
_AMOUNT = r"(?!0*\.?0*$)[0-9]{1,9}(?:\.[0-9]{1,9})?"
# A Go duration above zero, as in ``1h30m`` (https://pkg.go.dev/time#ParseDuration), for editors.
_DURATION = (
    r"(?=.*[1-9])\+?(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+"
)


def _window(reader: Reader, word: ScalarNode, node: Node) -> str | None:
    try:
        parse_duration(word.text)
    except ValueError:
        message = "'window' is a duration above zero such as 90s, 30m or 24h"
        reader.report(codes.BAD_BUDGET, node.span, message)
        return None
    return word.text


_USD = shapes.Key(
    "limit-usd",
    shapes.Conversion(
        shapes.Text(_AMOUNT, "'limit-usd' is an amount above zero, such as 2.50", codes.BAD_BUDGET),
        lambda _reader, word, _node: float(word.text),
        shapes.or_variable(
            {"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": f"^{_AMOUNT}$"}
        ),
    ),
    "US dollars in a window.",
)
_REQUESTS = shapes.Key("max-requests", shapes.Limit(), "Requests in a window.")
_WINDOW = shapes.Key(
    "window",
    shapes.Conversion(shapes.Text(), _window, shapes.Text(_DURATION).json_schema()),
    "How long a window is, such as 90s, 30m or 24h.",
)
_BEHAVIOR = shapes.Key[Behavior](
    "behavior", shapes.Choice[Behavior](BEHAVIORS), "What happens at the cap.", "hard_stop"
)


def _build_budget(members: shapes.Members) -> BudgetSetting:
    usd = members[_USD]
    requests = members[_REQUESTS]
    window = members[_WINDOW]
    behavior = members[_BEHAVIOR] or "hard_stop"

    # ``null`` means that there is no budget. ``{}`` is an error: it could be meant to cap
    # something.
    is_mapping = isinstance(members.node, MapNode)
    if is_mapping and _USD not in members and _REQUESTS not in members:
        message = f"{members.place.what} sets no cap"
        help_text = "set 'limit-usd' or 'max-requests'; to have no budget write 'budget: null'"
        members.reader.report(codes.BAD_BUDGET, members.node.span, message, help_text=help_text)

    if window is None or (usd is None and requests is None):
        return BudgetSetting(members.place.span, None)
    budget = Budget(limit_usd=usd, max_requests=requests, window=window, behavior=behavior)
    return BudgetSetting(members.place.span, budget)


BUDGET = shapes.Record(
    (_USD, _REQUESTS, _WINDOW, _BEHAVIOR),
    _build_budget,
    is_nullable=True,
    required=(_WINDOW,),
    rules={"anyOf": [{"required": [_USD.name]}, {"required": [_REQUESTS.name]}]},
)


_PROXY_NAME = shapes.Text("[a-z0-9][a-z0-9-]*", "{shown} is no type of proxy: [a-z0-9-]+")
_PROXIES = shapes.ScalarOr(
    shapes.Conversion(_PROXY_NAME, lambda _reader, name, _node: (name,)), shapes.ListOf(_PROXY_NAME)
)


@dataclass(frozen=True)
class _EnvValue:
    """The value of one variable, with its own variables filled in; or ``null``, left as it is."""

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> ScalarNode | None:
        if not isinstance(node, ScalarNode):
            message = f"{place.what} is a single value, and this is {kind(node)}"
            reader.report(codes.WRONG_TYPE, node.span, message)
            return None

        return node if node.is_null else reader.fill(node)

    def json_schema(self) -> shapes.Schema:
        return {"type": ["string", "number", "boolean", "null"]}


def _variables(
    reader: Reader, pairs: tuple[tuple[ScalarNode, ScalarNode], ...], _node: Node
) -> Mapping[str, ProxyVariable]:
    """Return name → value. As in Compose, a name without a value takes the process's value."""
    variables: dict[str, ProxyVariable] = {}
    for name, node in pairs:
        # Variables were filled in, so each value has its written text in ``raw``, except ``null``.
        is_null_value = node.raw is None
        value = (reader.lookup(name.text) or "") if is_null_value else node.text
        variables[name.text] = ProxyVariable(name.span, value)

    return variables


ENV = shapes.Conversion(shapes.Table("variable", VARIABLE_NAME, _EnvValue()), _variables)

_PROXY = shapes.Key("proxy", _PROXIES, "The type of the proxy.")
_MODE = shapes.Key[Mode](
    "mode",
    shapes.Choice[Mode](MODES),
    "The entrance through which the runner reaches it.",
    "base-url",
)
MAX_WORKERS, AUTO = 64, "auto"


def _workers(reader: Reader, word: ScalarNode, node: Node) -> str | None:
    text = word.text
    if text == AUTO:
        return text

    if whole_number(text, MAX_WORKERS):
        return text

    message = f"'workers' is a number from 1 to {MAX_WORKERS}, or {AUTO}, not {quote(word.shown)}"
    help_text = "auto is one process for each core of the container"
    reader.report(codes.BAD_VALUE, node.span, message, help_text=help_text)
    return None


_WORKERS = shapes.Key(
    "workers",
    shapes.Conversion(
        shapes.Text(),
        _workers,
        shapes.or_variable(
            {
                "type": ["integer", "string"],
                "minimum": 1,
                "maximum": MAX_WORKERS,
                "pattern": f"^(?:{AUTO}|0*[1-9][0-9]?)$",
            }
        ),
    ),
    "Processes of the pod's proxy, which share its work: a number, or auto.",
    "1",
)


def _opened_path(reader: Reader, word: ScalarNode, node: Node) -> str | None:
    try:
        OpenedPath.parse(word.text)
    except OpenedPathError as error:
        reader.report(codes.BAD_PATH, node.span, f"{quote(word.shown)}: {error.reason}")
        return None
    return word.text.strip()


_OPENED = rf"(?:{'|'.join(METHODS)}) /[!-~]*"
_PATH = shapes.Conversion(
    shapes.Text(),
    _opened_path,
    shapes.or_variable({"type": "string", "pattern": f"^{_OPENED}$"}),
)
_PATHS = shapes.Key(
    "paths",
    shapes.ListOf(_PATH),
    (
        "Paths of providers that the pod's proxy passes in addition to those it knows, each as "
        "METHOD /prefix*."
    ),
)
_ENV = shapes.Key("env", ENV, "The environment of the proxy; provider keys belong here.")


def _build_cllama(members: shapes.Members) -> CllamaSetting | None:
    mode = members[_MODE] or "base-url"
    proxies = members[_PROXY] or ()
    workers = members[_WORKERS] or ""
    paths = members[_PATHS] or ()
    return CllamaSetting(members.place.span, proxies, mode, workers, paths)


def _build_default(members: shapes.Members) -> CllamaSetting | None:
    """Build the default; None where it holds nothing but ``env``."""
    has_more_than_env = any(key in members for key in (_MODE, _WORKERS, _PATHS))
    if has_more_than_env or _ENV not in members:
        members.require(_PROXY)
    return _build_cllama(members) if _PROXY in members else None


_ONLY_ENV: shapes.Schema = {
    "required": ["env"],
    "not": {"anyOf": [{"required": ["mode"]}, {"required": ["workers"]}, {"required": ["paths"]}]},
}
_RECORD = shapes.Record((_PROXY, _MODE, _WORKERS, _PATHS), _build_cllama, required=(_PROXY,))
_DEFAULT_RECORD = shapes.Record(
    (_PROXY, _MODE, _WORKERS, _PATHS, _ENV),
    _build_default,
    rules={"anyOf": [{"required": ["proxy"]}, _ONLY_ENV]},
)


@dataclass(frozen=True)
class _CllamaShape:
    """``cllama``, or ``cllama-defaults``.

    The latter also has the proxy's environment, which ``read_default_env`` reads.
    """

    record: shapes.Record[CllamaSetting]

    def read(self, reader: Reader, node: Node, place: shapes.ValuePlace) -> CllamaSetting | None:
        if isinstance(node, MapNode):
            return self.record.read(reader, node, place)

        proxies = _PROXIES.read(reader, node, place) or ()
        return CllamaSetting(place.span, proxies)

    def json_schema(self) -> shapes.Schema:
        return {"anyOf": [*_PROXIES.json_schema()["anyOf"], self.record.json_schema()]}


CLLAMA = _CllamaShape(_RECORD)
DEFAULT_CLLAMA = _CllamaShape(_DEFAULT_RECORD)


def read_default_env(reader: Reader, node: Node) -> Mapping[str, ProxyVariable]:
    """Return ``env`` of ``cllama-defaults``."""
    entry = node.get(_ENV.name) if isinstance(node, MapNode) else None
    if entry is None:
        return {}

    place = shapes.ValuePlace(quote(_ENV.name), entry.key.span)
    return ENV.read(reader, entry.value, place) or {}
