"""Memory: what a service recalls for a request, and what it is given to retain
(docs/spec/mediation.md section 8).

A failing or slow service costs its memories and at most its time, never the turn. Both directions
are redacted: the agent's own secrets by value, and anything that looks like a credential.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.context_files import Memory
from claw_contract.redaction.redactor import Redactor
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
        body = redactor.document(
            msgspec.json.encode(
                {
                    "agent_id": agent.id,
                    "pod": agent.metadata.pod,
                    "messages": [
                        {"role": "user", "content": text} for text in _latest(view.user_texts)
                    ],
                    "metadata": _metadata(agent, view.model),
                }
            )
        )
        result = await self._post(
            agent, memory, memory.recall.path, body, memory.recall.timeout_ms / 1000
        )
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
            skipped = FetchResult(0, failure="too_many_in_flight")
            self._log_operation(
                agent,
                entry.get("requested_model"),
                "retain",
                skipped,
                skipped.failure,
                status="skipped",
            )
            return
        task = asyncio.ensure_future(
            self._retain(agent, memory, memory.retain.path, entry, redactor)
        )
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
        try:
            credential = (
                None if memory.auth is None else resolve_secret(self._secrets, memory.auth.token)
            )
        except MissingCredentialError:
            return FetchResult(0, failure="credential_missing")
        headers = [
            *identity_headers(agent),
            ("accept", "application/json"),
            ("content-type", "application/json"),
            *([bearer(credential)] if credential else []),
        ]
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
        self._log.event(
            "memory_op",
            agent,
            model=model,
            memory_service=agent.memory.service,
            memory_op=operation,
            memory_status=more.get(
                "status",
                "timed_out" if problem == "timed_out" else "failed" if problem else "succeeded",
            ),
            memory_blocks=more.get("blocks"),
            memory_bytes=more.get("size"),
            memory_removed=more.get("removed"),
            latency_ms=result.latency_ms,
            status_code=result.status,
            error=problem,
        )


def _latest(messages: tuple[str, ...]) -> list[str]:
    """Return the latest messages that fit into ``MAX_QUERY_BYTES``, oldest first;
    the first one may be cut at its end.
    """
    room, latest = MAX_QUERY_BYTES, []
    for text in reversed(messages):
        if room <= 0:
            break
        latest.append(decode_printable(text.encode(errors="replace"), room))
        room -= len(latest[-1].encode())
    return latest[::-1]


def _metadata(agent: Agent, model: object) -> JsonObject:
    metadata = {
        "service": agent.metadata.service,
        "type": agent.metadata.type,
        "timezone": agent.metadata.timezone,
    }
    return {**metadata, "requested_model": model}


def _read_memories(result: FetchResult) -> tuple[list[str], int, str | None]:
    """Return (accepted memories, number of rejected ones, problem)."""
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
        if text is not None and len(accepted) < MAX_BLOCKS and (size := len(text.encode())) <= room:
            accepted.append(text)
            room -= size
    return accepted, len(memories) - len(accepted), None


def _memory_text(entry: Any) -> str | None:
    """Return one memory as text for the model; None if it is malformed, empty or
    only repeats the conversation.
    """
    try:
        memory = msgspec.convert(entry, _RecalledMemory)
    except msgspec.ValidationError:
        return None
    kind, source = memory.kind.strip().lower(), memory.source.strip().lower()
    text = redact_credentials(
        decode_printable(memory.text.encode(errors="replace"), MAX_TEXT_BYTES + 1)
    )
    if not text or kind in _RAW or source in _RAW:
        return None
    marks = [
        f"{name}={flatten_name(value)}"
        for name, value in (("kind", kind), ("source", source), ("ts", memory.ts))
        if value
    ]
    return f"[{', '.join(marks)}]\n{text}" if marks else text
