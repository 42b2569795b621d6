"""Names of agents and tools, and the aliases under which a model sees a tool.

Specification: docs/spec/contract.md.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Annotated

from pydantic import AfterValidator

ALIAS_LIMIT = 64  # OpenAI's limit for a function name; Anthropic takes 128
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""The name of a tool within its service, as a descriptor declares it."""
SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A Compose service name that can be a host name and the first half of a canonical tool name."""
WORKER_PREFIX = ".worker-"  # No agent's directory begins so
_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def is_agent_id(text: str) -> bool:
    """Return True if ``text`` may name an agent, and therefore a directory.

    Check this before building a path from it.

    >>> is_agent_id("analyst-0"), is_agent_id("../analyst"), is_agent_id("a..b")
    (True, False, False)
    """
    return _AGENT_ID.fullmatch(text) is not None and ".." not in text


def _checked_agent_id(text: str) -> str:
    if not is_agent_id(text):
        raise ValueError("an agent id is [a-z0-9][a-z0-9._-]{0,62} without '..'")
    return text


AgentId = Annotated[str, AfterValidator(_checked_agent_id)]


def worker_directory(number: int) -> str:
    """Return the directory of a worker's history below the proxy's (decision 0035).

    The first worker's is the proxy's own directory.

    >>> [worker_directory(number) for number in (1, 2)]
    ['', '.worker-2']
    """
    return "" if number == 1 else f"{WORKER_PREFIX}{number}"


def canonical_name(service: str, tool: str) -> str:
    """Return the name of a tool in manifests, logs and history: ``<service>.<tool>``."""
    return f"{service}.{tool}"


def tool_part(canonical: str, service: str) -> str:
    """Return the tool's own name in ``<service>.<tool>``.

    >>> tool_part("trading-api.get_quote", "trading-api")
    'get_quote'
    """
    return canonical.removeprefix(f"{service}.")


def provider_safe_name(name: str) -> str:
    """Return the name with every character replaced that some provider rejects.

    >>> provider_safe_name("multi_tool_use.parallel"), provider_safe_name("")
    ('multi_tool_use_parallel', 'unnamed')
    """
    return _UNSAFE.sub("_", name)[:ALIAS_LIMIT] or "unnamed"


def plain_alias(canonical: str) -> str:
    """Return the alias of a tool whose name is short and unique.

    >>> plain_alias("trading.api.get_quote")
    'trading_api__get_quote'
    """
    # Split at the last dot: a service's name may contain dots, a tool's may not.
    service, _, tool = canonical.rpartition(".")
    return _UNSAFE.sub("_", f"{service}__{tool}" if service else tool)


def hashed_alias(canonical: str) -> str:
    """Return an alias for a name whose plain alias is too long or taken.

    It is the plain alias, cut, with 8 hex digits of the canonical name's SHA-256.
    """
    suffix = "_" + hashlib.sha256(canonical.encode()).hexdigest()[:8]
    return plain_alias(canonical)[: ALIAS_LIMIT - len(suffix)] + suffix


def assign_aliases(canonicals: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return aliases by canonical name, in the given order.

    None is in ``taken`` (the runner's own names).

    >>> assign_aliases(["trading-api.get_quote"])
    {'trading-api.get_quote': 'trading-api__get_quote'}
    """
    names = list(dict.fromkeys(canonicals))
    plain = {name: plain_alias(name) for name in names}
    uses = Counter(plain.values())

    chosen: dict[str, str] = {}
    for name in names:
        alias = plain[name]
        is_shared = uses[alias] > 1
        is_taken = alias in taken or alias in chosen.values()
        if len(alias) > ALIAS_LIMIT or is_shared or is_taken:
            alias = _free_alias(name, {*taken, *chosen.values()})
        chosen[name] = alias
    return chosen


def _free_alias(canonical: str, taken: Collection[str]) -> str:
    alias = hashed_alias(canonical)
    attempt = 0
    while alias in taken:
        attempt += 1
        alias = hashed_alias(f"{canonical}#{attempt}")
    return alias
