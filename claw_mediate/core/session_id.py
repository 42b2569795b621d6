"""The conversation that a request belongs to, if its runner names it.

docs/spec/mediation.md section 7. Pure. A session is evidence, never a requirement: most runners
name none, and a runner may name it in one request and not in the next.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

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
"""Headers that name a session. The first one that is there counts."""
_HEADER_NAMES = frozenset(HEADERS)
MEMBERS = (
    "session_id",
    "openclaw_session_id",
    "conversation_id",
    "thread_id",
)
"""Members of ``metadata`` and of ``client_metadata`` that name a session, in the same way."""
_LEGACY_USER_ID = re.compile(r"_session_([0-9a-fA-F-]{8,64})$")
_ONE_RUN = "agents-sdk:run:"
"""The beginning of a cache key that OpenAI's Agents SDK makes for one run.

It names no session: the next turn has another.
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
    values = {name.lower(): value for name, value in headers}
    if not _HEADER_NAMES.isdisjoint(values):  # Most runners name none
        for name in HEADERS:
            value = values.get(name, "").strip()
            if value:
                return _with_prefix(name, value)

    metadata = hints.metadata if isinstance(hints.metadata, dict) else {}
    client_metadata = hints.client_metadata if isinstance(hints.client_metadata, dict) else {}
    for members in filter(None, (metadata, client_metadata)):
        for name in MEMBERS:
            member = members.get(name)
            if isinstance(member, str) and member:
                return _with_prefix(name, member)

    if hints.conversation:
        return _with_prefix("conversation", hints.conversation)

    session = _read_user_id(metadata.get("user_id"))
    if session:
        return _with_prefix("session_id", session)

    cache_key = hints.prompt_cache_key
    if isinstance(cache_key, str) and cache_key and not cache_key.startswith(_ONE_RUN):
        return _with_prefix("prompt_cache_key", cache_key)

    return ""


def _read_user_id(user_id: object) -> str | None:
    """Return the session in Claude Code's ``metadata.user_id``.

    It is a JSON document; in older versions a text that ends with ``_session_<id>``.
    """
    if not isinstance(user_id, str):
        return None

    try:
        document: Any = json.loads(user_id)
    except (ValueError, RecursionError):
        legacy = _LEGACY_USER_ID.search(user_id)
        return legacy[1] if legacy else None

    session = document.get("session_id") if isinstance(document, dict) else None
    return session if isinstance(session, str) and session else None


def _with_prefix(name: str, value: str) -> str:
    # A header or member may hold anything, also half a surrogate pair.
    return f"{name}:{value[:_MAX_LENGTH]}".encode(errors="replace").decode()
