"""Memory: what a service recalls for a request, and what it is given to retain (spec/mediation.md section 8).

A service that is down, slow or odd costs the memory, and at most its time; never the turn. Secrets are blanked out both ways:
the agent's own by value, and, in what comes and goes, whatever looks like a credential.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.context_files import Memory
from claw_contract.manifest import BearerAuth
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import decode_printable, flatten_name, redact_credentials
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.headers import bearer
from claw_mediate.prompt.fetch import Ask, Asker, Heard, Unheard, asking
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.telemetry.unicode import encoded

RETAIN_SECONDS: Final = 2.0
MOST_IN_FLIGHT: Final = 32
"""Retains at one time. A service that does not keep up gets no more of them."""
MOST_BLOCKS: Final = 8
MOST_TEXT_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 16 * 1024
MOST_SAID_BYTES: Final = 32 * 1024
"""Of what the user said, the latest: a recall has little time."""
_RAW = frozenset({"raw_transcript", "session_tail", "transcript_tail"})
"""Kinds and sources of the conversation itself, which the model has anyway (the original's rule)."""


class _Recalled(msgspec.Struct):
    text: str = ""
    kind: str = ""
    source: str = ""
    ts: str = ""


class _Answer(msgspec.Struct):
    memories: list[Any] = []


class Memories:
    """The memory services of all agents."""

    def __init__(self, asker: Asker, secrets: Path, log: EventLog) -> None:
        self._asker = asker
        self._secrets = secrets
        self._log = log
        self._retaining: set[asyncio.Task[None]] = set()

    async def recall(self, agent: Agent, view: RunnerRequest, redactor: Redactor) -> list[str]:
        """What the service remembers that fits this request; nothing when it can't say so in time."""
        memory = agent.memory
        if memory is None or memory.recall is None:
            return []
        body = redactor.document(
            msgspec.json.encode(
                {
                    "agent_id": agent.id,
                    "pod": agent.metadata.pod,
                    "messages": [{"role": "user", "content": text} for text in _latest(view.user_texts)],
                    "metadata": _about(agent, view.model),
                }
            )
        )
        heard = await self._post(agent, memory, memory.recall.path, body, memory.recall.timeout_ms / 1000)
        kept, removed, problem = _read(heard)
        texts = [redactor.text(text) for text in kept]
        size = sum(len(text.encode()) for text in texts)
        self._tell(agent, view.model, "recall", heard, problem, blocks=len(kept), size=size, removed=removed)
        return texts

    def retain(self, agent: Agent, entry: JsonObject, redactor: Redactor) -> None:
        """Give the service a line of history to keep, beside whatever goes on; nothing waits for it."""
        memory = agent.memory
        if memory is None or memory.retain is None:
            return
        if len(self._retaining) >= MOST_IN_FLIGHT:
            skipped = Unheard("too_many_in_flight", 0)
            self._tell(agent, entry.get("requested_model"), "retain", skipped, skipped.reason, status="skipped")
            return
        task = asyncio.ensure_future(self._retain(agent, memory, memory.retain.path, entry, redactor))
        self._retaining.add(task)
        task.add_done_callback(self._retaining.discard)

    async def close(self) -> None:
        """What is on its way may arrive; each is bounded in time."""
        if self._retaining:
            await asyncio.wait(self._retaining)

    async def _retain(self, agent: Agent, memory: Memory, path: str, entry: JsonObject, redactor: Redactor) -> None:
        model = entry.get("requested_model")
        about = {"agent_id": agent.id, "pod": agent.metadata.pod, "metadata": _about(agent, model)}
        clear = redactor.document(encoded({**about, "entry": entry}))
        body = redact_credentials(clear.decode(errors="replace")).encode()
        heard = await self._post(agent, memory, path, body, RETAIN_SECONDS)
        self._tell(agent, model, "retain", heard, _problem(heard))

    async def _post(self, agent: Agent, memory: Memory, path: str, body: bytes, seconds: float) -> Heard | Unheard:
        try:
            credential = self._credential(memory.auth)
        except MissingCredentialError:
            return Unheard("credential_missing", 0)
        headers = [
            *asking(agent),
            ("accept", "application/json"),
            ("content-type", "application/json"),
            *([bearer(credential)] if credential else []),
        ]
        url = memory.base_url.rstrip("/") + path
        heard = await self._asker.ask(agent.id, Ask("POST", url, headers, body, MOST_ANSWER_BYTES, seconds))
        if credential is None or isinstance(heard, Unheard):
            return heard
        # Known here only, where it is a reference: a service that says it back must not tell it to the model.
        return replace(heard, body=Redactor([credential]).document(heard.body))

    def _credential(self, auth: BearerAuth | None) -> Secret | None:
        return None if auth is None else resolve_secret(self._secrets, auth.token)

    def _tell(
        self,
        agent: Agent,
        model: object,
        what: str,
        heard: Heard | Unheard,
        problem: str | None,
        **more: Any,
    ) -> None:
        timed_out = isinstance(heard, Unheard) and heard.timed_out
        assert agent.memory is not None
        self._log.event(
            "memory_op",
            agent,
            model=model,
            memory_service=agent.memory.service,
            memory_op=what,
            memory_status=more.pop("status", "timed_out" if timed_out else "failed" if problem else "succeeded"),
            memory_blocks=more.get("blocks"),
            memory_bytes=more.get("size"),
            memory_removed=more.get("removed"),
            latency_ms=heard.latency_ms,
            status_code=heard.status if isinstance(heard, Heard) else None,
            error=problem,
        )


def _latest(said: tuple[str, ...]) -> list[str]:
    """The latest of what was said, as much as may be sent, oldest first; of one that is too long its beginning."""
    room, kept = MOST_SAID_BYTES, []
    for text in reversed(said):
        if room <= 0:
            break
        kept.append(decode_printable(text.encode(errors="replace"), room))
        room -= len(kept[-1].encode())
    return kept[::-1]


def _about(agent: Agent, model: object) -> JsonObject:
    about = {"service": agent.metadata.service, "type": agent.metadata.type, "timezone": agent.metadata.timezone}
    return {**about, "requested_model": model}


def _problem(heard: Heard | Unheard) -> str | None:
    if isinstance(heard, Unheard):
        return heard.reason
    return None if heard.ok else f"http_{heard.status}"


def _read(heard: Heard | Unheard) -> tuple[list[str], int, str | None]:
    """(the memories that are kept, how many were not, what was wrong)."""
    if isinstance(heard, Unheard) or not heard.ok:
        return [], 0, _problem(heard)
    if heard.more:
        return [], 0, "answer_too_large"
    try:
        memories = msgspec.json.decode(heard.body, type=_Answer).memories
    except (msgspec.DecodeError, RecursionError):
        return [], 0, "answer_not_readable"
    kept: list[str] = []
    room = MOST_TEXT_BYTES
    for entry in memories:
        text = _kept(entry)
        if text is not None and len(kept) < MOST_BLOCKS and (size := len(text.encode())) <= room:
            kept.append(text)
            room -= size
    return kept, len(memories) - len(kept), None


def _kept(entry: Any) -> str | None:
    """One memory as the model reads it; None for what is no memory."""
    try:
        memory = msgspec.convert(entry, _Recalled)
    except msgspec.ValidationError:
        return None
    kind, source = memory.kind.strip().lower(), memory.source.strip().lower()
    text = redact_credentials(decode_printable(memory.text.encode(errors="replace"), MOST_TEXT_BYTES + 1))
    if not text or kind in _RAW or source in _RAW:
        return None
    marks = [
        f"{name}={flatten_name(value)}"
        for name, value in (("kind", kind), ("source", source), ("ts", memory.ts))
        if value
    ]
    return f"[{', '.join(marks)}]\n{text}" if marks else text
