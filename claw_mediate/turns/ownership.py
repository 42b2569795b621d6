"""Which agent owns what a provider keeps, and which requests that name it are refused
(docs/spec/responses.md section 10).

An agent's request names a response, or a conversation, that

    the agent owns                     it goes on, at the provider and with the key that keep it
    somebody else owns, or nobody      400 or 404 (``core.http``); with ``stored_ids: any`` it passes as it is
    can't be looked up                 503 ``state_unavailable``, whatever the setting is: the id may stand for another one

An id that could not be saved counts as nobody's, so that the runner starts anew. One that is
another agent's stays so.
"""

import asyncio
from collections.abc import Iterable
from typing import Literal

from msgspec import structs
from msgspec.structs import replace

from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import MAX_SHOWN_ID, Naming, RunnerResponse, refuse, refuse_unknown_id
from claw_mediate.core.types import Deliver
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.bodies import encode
from claw_mediate.dialects.responses.stored import ids_in, ids_of_output
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest, TurnContext
from claw_state.continuity import Anchor
from claw_state.health import StateUnavailableError
from claw_state.ownership import OwnedObject, OwnershipStore
from claw_state.url import StoreError

type StoredIds = Literal["own", "any"]
_MAX_LINKS = 1000  # Responses of a chain that are looked at
_MAX_MARKS = 128  # Answers that a response holds in its ``input``: the latest
_MARK_LENGTH = 16
_MAX_DELIVERED = 256 << 10  # Bytes of a delivered body that is kept beside the provider's
STATE_UNAVAILABLE = "state_unavailable"


class Ownership:
    """The owned objects of all agents."""

    def __init__(self, store: OwnershipStore, log: EventLog, allowed: StoredIds = "own") -> None:
        self._store = store
        self._log = log
        self._allowed = allowed
        self._unsaved: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._saving: set[asyncio.Task[None]] = set()

    @property
    def is_checked(self) -> bool:
        """Return whether an agent may name its own objects only."""
        return self._allowed == "own"

    async def resolve(self, incoming: DialectRequest) -> DialectRequest | RunnerResponse:
        """Return a request with the object that it goes on from, or the refusal."""
        view = incoming.view
        named: dict[Naming, str] = {
            "previous_response_id": view.previous_response,
            "conversation": view.conversation,
        }
        for naming, object_id in named.items():
            if object_id:
                found = await self.find(incoming.agent, incoming.request.path, naming, object_id)
                if isinstance(found, RunnerResponse):
                    return found
                incoming = incoming if found is None else await self._go_on_from(incoming, found)
        return incoming

    async def _go_on_from(self, incoming: DialectRequest, kept: OwnedObject) -> DialectRequest:
        """Return the request as the provider can take it: with its own id of the
        response, and what is owed to it.
        """
        view = incoming.view
        previous = (
            kept.provider_id if view.previous_response and kept.provider_id != kept.id else ""
        )
        is_rewritten = incoming.kept is not None and bool(
            incoming.kept.owed
        )  # with what was owed then
        if view.go_on_from is not None and (previous or kept.owed or is_rewritten):
            # The runner is shown the id that it knows.
            rewritten = incoming.dialect.read_request(
                view.go_on_from(previous, b"" if kept.is_disputed else kept.owed)
            )
            own = replace(
                rewritten, previous_response=view.previous_response, go_on_from=view.go_on_from
            )
            incoming = replace(incoming, view=own)
        covered = await self._find_covered(incoming, kept)
        return replace(incoming, kept=kept, covered=covered)

    async def _find_covered(self, incoming: DialectRequest, kept: OwnedObject) -> frozenset[str]:
        """Return the marks of answers that the named response goes on from, as far
        as the request repeats them.
        """
        wanted = marks_of(incoming.view.evidence.anchors.values())
        covered: set[str] = set()
        link: OwnedObject | None = kept
        for _ in range(_MAX_LINKS if wanted else 0):
            if link is None or wanted <= covered:
                break
            covered |= wanted.intersection(link.anchors)
            try:
                link = await self._find(incoming.agent, link.previous) if link.previous else None
            except StoreError:
                break
        return frozenset(covered)

    async def find(
        self, agent: Agent, path: str, naming: Naming, object_id: str
    ) -> OwnedObject | RunnerResponse | None:
        """Return an agent's object; the refusal, in the form of ``path``; None for
        an id that passes without an owner.
        """
        try:
            owned = await self._find(agent, object_id)
        except StoreError as error:
            if not isinstance(error, StateUnavailableError):  # which the state reports itself, once
                self._log.event("error", agent, error="ownership_not_read", reason=str(error))
            return refuse(
                path,
                503,
                STATE_UNAVAILABLE,
                "it can't be looked up at the moment whose the id is",
                param=naming,
            )
        if owned is not None or self._allowed == "any":
            return owned
        self._log.event(
            "intervention",
            agent,
            intervention="stored_id_refused",
            reason=f"{naming} {object_id[:MAX_SHOWN_ID]}",
        )
        return refuse_unknown_id(path, naming, object_id)

    async def find_chain(self, agent: Agent, owned: OwnedObject) -> tuple[list[OwnedObject], bool]:
        """Return an object and all that it goes on from, and whether none of them is missing.

        Raises ``StoreError``.
        """
        chain = [owned]
        while chain[-1].previous:
            before = await self._find(agent, chain[-1].previous)
            if before is None or len(chain) == _MAX_LINKS:
                return chain, False
            chain.append(before)
            await asyncio.sleep(0)  # A chain may be long, and other turns wait
        return chain, True

    async def _find(self, agent: Agent, object_id: str) -> OwnedObject | None:
        unsaved = self._unsaved.get((agent.id, object_id))
        if unsaved is not None:  # Only the state knows whether it is another agent's
            await asyncio.wait([unsaved])
        return await self._store.find(agent.id, object_id)

    def save_soon(self, agent: Agent, owned: OwnedObject) -> None:
        """Save an object from where nothing can be awaited.

        Whoever looks for it from now on waits for that.
        """
        place = (agent.id, owned.id)

        async def save() -> None:
            await self.save(agent, owned)
            if self._unsaved.get(place) is task:
                del self._unsaved[place]

        task = self._unsaved[place] = asyncio.ensure_future(save())
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def finish(self) -> None:
        """Wait until everything is saved."""
        if self._saving:
            await asyncio.wait(self._saving)

    async def save(self, agent: Agent, owned: OwnedObject) -> None:
        """Save an object.

        A store that fails costs its id, never the response; so does another agent that owns it.
        """
        try:
            is_saved = await self._store.save(agent.id, owned, may_share=not self.is_checked)
        except StoreError as error:
            self._report_unwritten(agent, error)
            return

        if not is_saved:
            report_other_owner(self._log, agent, "response or conversation", owned.provider)

    async def delete(self, agent: Agent, object_id: str) -> None:
        """Forget an object; one that can't be forgotten stays until it is too old."""
        try:
            await self._store.delete(agent.id, object_id)
        except StoreError as error:
            self._report_unwritten(agent, error)

    def _report_unwritten(self, agent: Agent, error: StoreError) -> None:
        if not isinstance(error, StateUnavailableError):
            self._log.event("error", agent, error="ownership_not_written", reason=str(error))


def report_other_owner(log: EventLog, agent: Agent, kind: str, provider: str) -> None:
    """Log that a provider gave an agent an id that is another agent's.

    Whoever made it do so may do it often.
    """
    reason = f"{provider} gave {agent.id} an id that is another agent's: a {kind}"
    log.limited_event("error", agent, error="id_of_another_agent", reason=reason)


def marks_of(anchors: Iterable[Anchor]) -> frozenset[str]:
    """Return a short mark for each key of some answers."""
    return frozenset(key[-_MARK_LENGTH:] for anchor in anchors for key in anchor.content_keys)


def owned_request(incoming: DialectRequest, session: str) -> OwnedObject | None:
    """Return what is to be known of a request that is forwarded, without its id;
    None where no provider keeps it.
    """
    if not incoming.view.is_kept:
        return None
    kept = _owned(incoming.view, session, incoming.woven)
    return (
        kept
        if incoming.woven
        else structs.replace(kept, is_plain=True, tool_choice=b"", instructions=-1)
    )


def owned_response(
    context: TurnContext, outcome: Deliver, answer: Anchor, body: bytes
) -> OwnedObject | None:
    """Return what is to be known of a delivered response; None where no provider keeps it.

    ``body``: as it is delivered.
    """
    response, rounds = outcome.response, outcome.rounds
    if not (context.view.is_kept and response.id):
        return None
    earlier = list(context.view.evidence.anchors.values())[-_MAX_MARKS:]
    # The response that a tool ended is the last round itself, and nobody has answered its calls at
    # the provider.
    owed = context.dialect.write_answers(rounds[-1]) if outcome.terminal else response.owed
    hidden = [
        *filter(None, [context.woven]),
        *context.dialect.write_hidden_rounds(rounds, replayed=False),
        *owed,
    ]
    owned = _owned(context.view, context.session, b",".join(hidden))
    shown = (
        ids_of_output(body) if owed else frozenset()
    )  # What the model said beside its last calls
    return structs.replace(
        owned,
        id=response.id,
        provider_id=response.id,
        provider=context.provider,
        key_label=context.route.key_label,
        anchors=tuple(sorted(marks_of([*earlier, answer]))),
        hidden_responses=tuple(
            past.response.id for past in rounds if past.response.id not in {"", response.id}
        ),
        owed=b",".join(owed),
        delivered=body if owed and len(body) <= _MAX_DELIVERED else b"",
        hidden_ids=tuple(each for each in owned.hidden_ids if each not in shown),
        managed_names=(*context.catalog.managed, *sorted(context.catalog.withdrawn)),
    )


def _owned(view: RunnerRequest, session: str, hidden: bytes) -> OwnedObject:
    """Return what is known of what a provider keeps before it answers.

    ``hidden``: items that the runner did not send.
    """
    return OwnedObject(
        id="",
        provider_id="",
        provider="",
        previous=view.previous_response or view.conversation,
        session=session,
        hidden_ids=tuple(sorted(ids_in(hidden))),
        tool_choice=encode("auto" if view.tool_choice is None else view.tool_choice),
        instructions=view.instructions_length,
    )
