"""``models`` and ``budget`` (spec/compile.md "Defaults"; origin-compile.md 2.8, 2.9).

Rules. A model is ``provider/model``; a bare name is Anthropic's. Only ``fallback`` may be a list: its order is the order of the
attempts, so that nobody writes ``fallback-2``. A slot that is ``null`` suppresses the pod's; ``models: {}`` or ``null`` all of
them. A budget has a window (a Go duration) and at least one cap.
"""

from __future__ import annotations

import re
from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import did_you_mean, quoted
from claw_compile.grammar.reading import Reading
from claw_compile.grammar.relations import Models, Spending
from claw_compile.reading.node import Entry, ListNode, MapNode, Node, ScalarNode
from claw_contract.durations import parse_duration
from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.metadata import Budget

FALLBACK = "fallback"
DEFAULT_PROVIDER = "anthropic"
RESERVED_PROVIDERS = {"cllama", "clawdapus"}
BEHAVIORS: tuple[Literal["hard_stop", "rate_limit", "soft_alert"], ...] = ("hard_stop", "rate_limit", "soft_alert")
_SLOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_ORDINAL_SLOT = re.compile(r"fallback-[0-9]+")
_REF = re.compile(r"(?:(?P<provider>[a-z0-9][a-z0-9._-]*)/)?(?P<model>[!-.0-~][!-~]*)")
_USD = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def read_models(reading: Reading, entry: Entry) -> Models:
    """``models`` or ``models-defaults``."""
    what = quoted(entry.key.text)
    mapping = reading.mapping(entry.value, what)
    slots: list[tuple[ScalarNode, str | None]] = []
    fallback: tuple[str, ...] | None = None
    for each in mapping.entries if mapping is not None else ():
        slot = each.key.text
        if slot == FALLBACK:
            fallback = _fallback(reading, each.value)
        elif _ORDINAL_SLOT.fullmatch(slot) or not _SLOT.fullmatch(slot):
            help_text = "fallbacks are one list: 'fallback: [first, second]'"
            message = f"{quoted(slot)} is no slot of {what}"
            reading.found.append(codes.BAD_MODEL.at(each.key.span, message, help_text=help_text))
        elif isinstance(each.value, ScalarNode) and each.value.is_null:
            slots.append((each.key, None))
        elif isinstance(each.value, ListNode):
            message = f"{quoted(slot)} takes one model; only 'fallback' takes a list"
            reading.found.append(codes.BAD_MODEL.at(each.value.span, message))
        elif (ref := _ref(reading, each.value)) is not None:
            slots.append((each.key, ref))
    return Models(entry.key.span, tuple(slots), fallback)


def _fallback(reading: Reading, node: Node) -> tuple[str, ...]:
    if isinstance(node, ScalarNode) and not node.is_null:
        ref = _ref(reading, node)
        return (ref,) if ref else ()
    refs = (_ref(reading, item) for item in reading.items(node, "'fallback'"))
    return tuple(dict.fromkeys(ref for ref in refs if ref is not None))


def _ref(reading: Reading, node: Node) -> str | None:
    word = reading.text(node, "a model")
    if word is None:
        return None
    match = _REF.fullmatch(word.text)
    if match is None or match["model"].endswith("/"):
        reading.found.append(codes.BAD_MODEL.at(node.span, f"{quoted(word.shown)} is not 'provider/model'"))
        return None
    provider = match["provider"] or DEFAULT_PROVIDER
    if provider in RESERVED_PROVIDERS:
        message = f"{quoted(word.shown)}: the proxy itself is no provider"
        reading.found.append(codes.BAD_MODEL.at(node.span, message))
        return None
    if provider not in KNOWN_PROVIDERS:
        shown = word.shown.partition("/")[0]
        message = f"the proxy knows no provider {quoted(shown)}"
        help_text = f"it knows {', '.join(KNOWN_PROVIDERS)}"
        hint = did_you_mean(shown, KNOWN_PROVIDERS)
        reading.found.append(codes.UNKNOWN_PROVIDER.at(node.span, message, hint=hint, help_text=help_text))
    return f"{provider}/{match['model']}"


def read_spending(reading: Reading, entry: Entry) -> Spending:
    """``budget`` or ``budget-defaults``."""
    node, what = entry.value, quoted(entry.key.text)
    if isinstance(node, ScalarNode) and node.is_null:
        return Spending(entry.key.span, None)
    entries = reading.keys(node, what, ("limit-usd", "max-requests", "window", "behavior"))
    if not isinstance(node, MapNode):
        return Spending(entry.key.span, None)
    usd = _usd(reading, entries["limit-usd"].value) if "limit-usd" in entries else None
    requests = reading.limit(entries["max-requests"].value, "'max-requests'") if "max-requests" in entries else None
    behavior = reading.choice(entries["behavior"].value, "'behavior'", BEHAVIORS) if "behavior" in entries else None
    if not {"limit-usd", "max-requests"} & entries.keys():
        help_text = "set 'limit-usd' or 'max-requests'; to have no budget write 'budget: null'"
        reading.found.append(codes.BAD_BUDGET.at(node.span, f"{what} caps nothing", help_text=help_text))
    window = _window(reading, entries["window"].value) if reading.require(entries, node.span, what, "window") else None
    if window is None or (usd is None and requests is None):
        return Spending(entry.key.span, None)
    budget = Budget(limit_usd=usd, max_requests=requests, window=window, behavior=behavior or "hard_stop")
    return Spending(entry.key.span, budget)


def _usd(reading: Reading, node: Node) -> float | None:
    word = reading.text(node, "'limit-usd'")
    if word is None:
        return None
    if _USD.fullmatch(word.text) and float(word.text) > 0:
        return float(word.text)
    reading.found.append(codes.BAD_BUDGET.at(node.span, "'limit-usd' is an amount above zero, such as 2.50"))
    return None


def _window(reading: Reading, node: Node) -> str | None:
    word = reading.text(node, "'window'")
    if word is None:
        return None
    try:
        parse_duration(word.text)
    except ValueError:
        message = "'window' is a duration above zero such as 90s, 30m or 24h"
        reading.found.append(codes.BAD_BUDGET.at(node.span, message))
        return None
    return word.text
