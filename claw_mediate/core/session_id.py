"""The conversation that a request belongs to, where its runner names it (docs/spec/mediation.md
section 7). One table, pure.

A session is evidence, never a requirement: most runners name none, and a runner may name it in one
request and not in the next.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from claw_contract.base import JsonObject

HEADERS = (
    "x-claude-code-session-id",
    "x-openclaw-session-id",
    "session-id",  # Codex
    "session_id",  # Codex, older, and pi
    "thread-id",
    "x-mux-workspace-id",
    "x-interaction-id",  # Copilot in VS Code
    "x-client-session-id",  # Copilot CLI
    "x-kilocode-taskid",
    "x-coder-chat-id",
    "x-session-id",  # opencode
    "x-session-affinity",
)
"""In the order in which they are believed."""
MEMBERS = (
    "session_id",
    "openclaw_session_id",
    "conversation_id",
    "thread_id",
)  # Members of ``metadata``
_LEGACY_USER_ID = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")
_ONE_RUN = "agents-sdk:run:"
"""With what a cache key of OpenAI's Agents SDK begins that it makes for one run:
the next turn has another.
"""
_MAX_LENGTH = 200


class SessionHints(msgspec.Struct, frozen=True):
    """Members of a request's body that may name its session. They may hold anything."""

    metadata: object = None
    prompt_cache_key: object = None
    client_metadata: object = None
    conversation: str = ""  # The conversation that the provider keeps


NO_HINTS = SessionHints()


def read_session_id(headers: Iterable[tuple[str, str]], hints: SessionHints) -> str:
    """Return the session's name, or "".

    >>> read_session_id([("X-Claude-Code-Session-Id", "s1")], SessionHints())
    'x-claude-code-session-id:s1'
    """
    metadata, cache_key = hints.metadata, hints.prompt_cache_key
    values = {name.lower(): value for name, value in headers}
    for name in HEADERS:
        if value := values.get(name, "").strip():
            return _with_prefix(name, value)
    members = metadata if isinstance(metadata, dict) else {}
    for named in (members, hints.client_metadata):
        for name in MEMBERS:
            if isinstance(named, dict) and isinstance(member := named.get(name), str) and member:
                return _with_prefix(name, member)
    if hints.conversation:
        return _with_prefix("conversation", hints.conversation)
    if session := _read_user_id(members.get("user_id")):
        return _with_prefix("session_id", session)
    if not isinstance(cache_key, str) or not cache_key or cache_key.startswith(_ONE_RUN):
        return ""
    return _with_prefix("prompt_cache_key", cache_key)


def _read_user_id(user_id: Any) -> str | None:
    """Return the session in Claude Code's ``metadata.user_id``: in a JSON document, or, before
    that, behind ``_session_``.
    """
    if not isinstance(user_id, str):
        return None
    try:
        document: JsonObject | Any = json.loads(user_id)
    except (ValueError, RecursionError):
        legacy = _LEGACY_USER_ID.search(user_id)
        return legacy[1] if legacy else None
    value = document.get("session_id") if isinstance(document, dict) else None
    return value if isinstance(value, str) and value else None


def _with_prefix(name: str, value: str) -> str:
    return f"{name}:{value[:_MAX_LENGTH]}".encode(
        errors="replace"
    ).decode()  # a header may hold anything
