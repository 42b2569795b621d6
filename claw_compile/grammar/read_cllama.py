"""``cllama`` and the environment of the proxy (spec/compile.md "Grammar"; origin-compile.md 2.3).

Rules. ``cllama`` is a name, a list of names, or ``{proxy, mode}``; ``null`` and ``[]`` mean none. ``env`` and ``cllama-env``
are the proxy's only, and where provider keys belong: their values are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import MODES, Cllama, Setting
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, kind

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROXY = re.compile(r"[a-z0-9][a-z0-9-]*")


def read_cllama(reading: Reading, entry: Entry) -> Cllama | None:
    """``cllama`` or ``cllama-defaults``; None where the defaults hold nothing but ``env``."""
    node, what = entry.value, quoted(entry.key.text)
    mode = None
    if isinstance(node, MapNode):
        is_default = entry.key.text == "cllama-defaults"
        entries = reading.keys(node, what, ("proxy", "mode", *(("env",) if is_default else ())))
        if "mode" in entries:
            mode = reading.choice(entries["mode"].value, "'mode'", MODES)
        if "proxy" not in entries:
            if not (is_default and "env" in entries and "mode" not in entries):
                reading.found.append(codes.MISSING_KEY.at(node.span, f"{what} needs 'proxy'"))
            return None if is_default else Cllama(entry.key.span, ())
        node, what = entries["proxy"].value, "'proxy'"
    proxies = tuple(name for name in _names(reading, node, what) if _is_proxy(reading, name))
    return Cllama(entry.key.span, proxies, mode or "base-url")


def _names(reading: Reading, node: Node, what: str) -> tuple[ScalarNode, ...]:
    if isinstance(node, ListNode) or (isinstance(node, ScalarNode) and node.is_null):
        return reading.texts(node, what)
    name = reading.text(node, what)
    return (name,) if name else ()


def _is_proxy(reading: Reading, name: ScalarNode) -> bool:
    if _PROXY.fullmatch(name.text):
        return True
    reading.found.append(codes.BAD_VALUE.at(name.span, f"{quoted(name.shown)} is no type of proxy: [a-z0-9-]+"))
    return False


def read_default_env(reading: Reading, entry: Entry) -> Mapping[str, Setting]:
    """``env`` of ``cllama-defaults``."""
    env = entry.value.get("env") if isinstance(entry.value, MapNode) else None
    return read_env(reading, env) if env else {}


def read_env(reading: Reading, entry: Entry) -> Mapping[str, Setting]:
    """``cllama-env``: name → value. A name without a value takes the process's, as in Compose."""
    mapping = reading.mapping(entry.value, quoted(entry.key.text))
    settings: dict[str, Setting] = {}
    for each in mapping.entries if mapping is not None else ():
        name, node = each.key, each.value
        if not _VARIABLE.fullmatch(name.text):
            reading.found.append(codes.BAD_VALUE.at(name.span, f"{quoted(name.text)} can't name a variable"))
        elif not isinstance(node, ScalarNode):
            message = f"{name.text} is a single value, and this is {kind(node)}"
            reading.found.append(codes.WRONG_TYPE.at(node.span, message))
        elif node.is_null:
            settings[name.text] = Setting(name.span, reading.lookup(name.text) or "")
        elif (filled := reading.filled(node)) is not None:
            settings[name.text] = Setting(name.span, filled.text)
    return settings
