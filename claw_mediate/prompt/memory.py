"""Memory: what a service recalls for a request, and what it is given to retain.

docs/spec/mediation.md section 8. A failing or slow service costs its memories and at most its time,
never the turn. Both directions are redacted: the agent's own secrets by value, and anything that
looks like a credential.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.context_files import Memory
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import decode_printable, flatten_name, redact_credentials
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.headers import bearer
from claw_mediate.prompt.fetch import ContextClient, FetchRequest, FetchResult, identity_headers
from claw_mediate.telemetry.event_log import EventLog, encode_json

RETAIN_SECONDS: Final = 2.0
MAX_IN_FLIGHT: Final = 32  # Concurrent retains; further ones are skipped
MAX_BLOCKS: Final = 8
MAX_TEXT_BYTES: Final = 8 * 1024
MAX_ANSWER_BYTES: Final = 16 * 1024
MAX_QUERY_BYTES: Final = 32 * 1024  # Limit of the user's messages in a recall; the latest count
_RAW = frozenset({"raw_transcript", "session_tail", "transcript_tail"})
"""Kinds and sources of memories that only repeat the conversation (the original's rule)."""


class _RecalledMemory(msgspec.Struct):
    text: str = ""
    kind: str = ""
    source: str = ""
    ts: str = ""


class _Answer(msgspec.Struct):
    memories: list[Any] = []


class MemoryClient:
    """Client of all agents' memory services."""

    def __init__(self, client: ContextClient, secrets: Path, log: EventLog) -> None:
        self._client = client
        self._secrets = secrets
        self._log = log
        self._retaining: set[asyncio.Task[None]] = set()

    async def recall(self, agent: Agent, view: RunnerRequest, redactor: Redactor) -> list[str]:
        """Return the memories for this request; [] if the service fails or has none."""
        memory = agent.memory
        if memory is None or memory.recall is None:
            return []

        question = {
            "agent_id": agent.id,
            "pod": agent.metadata.pod,
            "messages": [{"role": "user", "content": text} for text in _latest(view.user_texts)],
            "metadata": _metadata(agent, view.model),
        }
        body = redactor.document(msgspec.json.encode(question))
        seconds = memory.recall.timeout_ms / 1000
        result = await self._post(agent, memory, memory.recall.path, body, seconds)

        accepted, removed, problem = _read_memories(result)
        texts = [redactor.text(text) for text in accepted]
        size = sum(len(text.encode()) for text in texts)
        self._log_operation(
            agent,
            view.model,
            "recall",
            result,
            problem,
            blocks=len(accepted),
            size=size,
            removed=removed,
        )
        return texts

    def retain(self, agent: Agent, entry: JsonObject, redactor: Redactor) -> None:
        """Send a line of history to the service, in the background."""
        memory = agent.memory
        if memory is None or memory.retain is None:
            return

        if len(self._retaining) >= MAX_IN_FLIGHT:
            model = entry.get("requested_model")
            skipped = FetchResult(0, failure="too_many_in_flight")
            self._log_operation(agent, model, "retain", skipped, skipped.failure, status="skipped")
            return

        retained = self._retain(agent, memory, memory.retain.path, entry, redactor)
        task = asyncio.ensure_future(retained)
        self._retaining.add(task)
        task.add_done_callback(self._retaining.discard)

    async def close(self) -> None:
        """Wait for retains under way; each is bounded in time."""
        if self._retaining:
            await asyncio.wait(self._retaining)

    async def _retain(
        self, agent: Agent, memory: Memory, path: str, entry: JsonObject, redactor: Redactor
    ) -> None:
        model = entry.get("requested_model")
        document = {
            "agent_id": agent.id,
            "pod": agent.metadata.pod,
            "metadata": _metadata(agent, model),
            "entry": entry,
        }
        redacted = redactor.document(encode_json(document))
        body = redact_credentials(redacted.decode(errors="replace")).encode()
        result = await self._post(agent, memory, path, body, RETAIN_SECONDS)
        self._log_operation(agent, model, "retain", result, result.problem)

    async def _post(
        self, agent: Agent, memory: Memory, path: str, body: bytes, seconds: float
    ) -> FetchResult:
        credential: Secret | None = None
        try:
            if memory.auth is not None:
                credential = resolve_secret(self._secrets, memory.auth.token)
        except MissingCredentialError:
            return FetchResult(0, failure="credential_missing")

        headers = [
            *identity_headers(agent),
            ("accept", "application/json"),
            ("content-type", "application/json"),
        ]
        if credential is not None:
            headers.append(bearer(credential))

        url = memory.base_url.rstrip("/") + path
        request = FetchRequest("POST", url, headers, body, MAX_ANSWER_BYTES, seconds)
        result = await self._client.fetch(agent.id, request)
        if credential is None:
            return result
        # Other redactors don't know a credential that is a reference: a service must not repeat it
        # to the model.
        return replace(result, body=Redactor([credential]).document(result.body))

    def _log_operation(
        self,
        agent: Agent,
        model: object,
        operation: str,
        result: FetchResult,
        problem: str | None,
        **more: Any,
    ) -> None:
        """Log a ``memory_op``.

        ``more``: ``blocks``, ``size`` and ``removed`` of a recall; ``status`` if not by the result.
        """
        assert agent.memory is not None
        status = "succeeded"
        if problem is not None:
            status = "timed_out" if problem == "timed_out" else "failed"

        self._log.event(
            "memory_op",
            agent,
            model=model,
            memory_service=agent.memory.service,
            memory_op=operation,
            memory_status=more.get("status", status),
            memory_blocks=more.get("blocks"),
            memory_bytes=more.get("size"),
            memory_removed=more.get("removed"),
            latency_ms=result.latency_ms,
            status_code=result.status,
            error=problem,
        )


def _latest(messages: tuple[str, ...]) -> list[str]:
    """Return the latest messages that fit into ``MAX_QUERY_BYTES``, oldest first.

    The first one may be cut at its end.
    """
    latest: list[str] = []
    room = MAX_QUERY_BYTES
    for message in reversed(messages):
        if room <= 0:
            break
        text = decode_printable(message.encode(errors="replace"), room)
        latest.append(text)
        room -= len(text.encode())

    return latest[::-1]


def _metadata(agent: Agent, model: object) -> JsonObject:
    metadata = {
        "service": agent.metadata.service,
        "type": agent.metadata.type,
        "timezone": agent.metadata.timezone,
    }
    return {**metadata, "requested_model": model}


def _read_memories(result: FetchResult) -> tuple[list[str], int, str | None]:
    """Return the accepted memories, the number of rejected ones, and the problem, if any."""
    if result.problem:
        return [], 0, result.problem
    if result.is_cut:
        return [], 0, "answer_too_large"
    try:
        memories = msgspec.json.decode(result.body, type=_Answer).memories
    except (msgspec.DecodeError, RecursionError):
        return [], 0, "answer_not_readable"

    accepted: list[str] = []
    room = MAX_TEXT_BYTES
    for entry in memories:
        text = _memory_text(entry)
        if text is None or len(accepted) >= MAX_BLOCKS:
            continue
        size = len(text.encode())
        if size <= room:
            accepted.append(text)
            room -= size

    return accepted, len(memories) - len(accepted), None


def _memory_text(entry: Any) -> str | None:
    """Return one memory as text for the model; None if it is rejected.

    That is one that is malformed or empty, or that only repeats the conversation.
    """
    try:
        memory = msgspec.convert(entry, _RecalledMemory)
    except msgspec.ValidationError:
        return None

    kind = memory.kind.strip().lower()
    source = memory.source.strip().lower()
    # One byte more than fits: a longer text does not, and is rejected.
    whole = decode_printable(memory.text.encode(errors="replace"), MAX_TEXT_BYTES + 1)
    text = redact_credentials(whole)
    if not text or kind in _RAW or source in _RAW:
        return None

    named = {"kind": kind, "source": source, "ts": memory.ts}
    marks = [f"{name}={flatten_name(value)}" for name, value in named.items() if value]
    return f"[{', '.join(marks)}]\n{text}" if marks else text
