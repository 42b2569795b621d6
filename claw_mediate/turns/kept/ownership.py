"""The owners of the responses and conversations that providers keep.

The rules are in docs/spec/responses.md section 10.

An agent's request names a response, or a conversation, that

    the agent owns                  it goes on, at the provider and with the key that keep it
    somebody else owns, or nobody   400 or 404 (``core.http``); with ``stored_ids: any`` it passes
                                    as it is
    can't be looked up              503 ``state_unavailable``, whatever the setting is: the id may
                                    be another agent's

An id that could not be saved counts as nobody's, so that the runner begins a new conversation. One
that is another agent's stays that agent's.
"""

import asyncio
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import MAX_SHOWN_ID, Naming, RunnerResponse, refuse, refuse_unknown_id
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.kept.pending_saves import PendingSaves
from claw_mediate.turns.kept.records import marks_of
from claw_state.health import StateUnavailableError
from claw_state.ownership import KeptObject, OwnershipStore
from claw_state.url import StoreError

type StoredIds = Literal["own", "any"]
_MAX_LINKS = 1000  # Responses of a chain that are looked at
STATE_UNAVAILABLE = "state_unavailable"


class Ownership:
    """The kept responses and conversations of all agents."""

    def __init__(self, store: OwnershipStore, log: EventLog, allowed: StoredIds = "own") -> None:
        self._store = store
        self._log = log
        self._allowed = allowed
        self._pending: PendingSaves[tuple[str, str]] = PendingSaves()

    @property
    def is_checked(self) -> bool:
        """Return whether an agent may name its own objects only."""
        return self._allowed == "own"

    async def resolve(self, incoming: DialectRequest) -> DialectRequest | RunnerResponse:
        """Return a request with the object that it goes on from, or the refusal."""
        kept = incoming.view.kept
        if kept is None:
            return incoming

        named: dict[Naming, str] = {
            "previous_response_id": kept.previous_response,
            "conversation": kept.conversation,
        }
        for naming, object_id in named.items():
            if not object_id:
                continue

            found = await self.find(incoming.agent, incoming.request.path, naming, object_id)
            if isinstance(found, RunnerResponse):
                return found
            if found is not None:
                incoming = await self._go_on_from(incoming, kept, found)

        return incoming

    async def _go_on_from(
        self, incoming: DialectRequest, kept: KeptReferences, predecessor: KeptObject
    ) -> DialectRequest:
        """Return the request as the provider can take it.

        It names the response by the provider's id, and has the results that the provider waits for.
        """
        view = incoming.view
        has_other_id = predecessor.provider_id != predecessor.id
        provider_id = predecessor.provider_id if kept.previous_response and has_other_id else ""

        # A request that waited for another turn was written with what was pending then.
        earlier = incoming.predecessor
        was_rewritten = earlier is not None and bool(earlier.pending_results)

        if provider_id or predecessor.pending_results or was_rewritten:
            pending = b"" if predecessor.is_disputed else predecessor.pending_results
            rewritten = incoming.dialect.read_request(kept.go_on_from(provider_id, pending))
            # The runner is shown the id that it knows, and its request is still what its path made
            # it: a side request, or a count.
            own = replace(rewritten, kept=kept, side_request=view.side_request)
            incoming = replace(incoming, view=own)

        covered = await self._find_covered(incoming, predecessor)
        return replace(incoming, predecessor=predecessor, covered=covered)

    async def _find_covered(
        self, incoming: DialectRequest, predecessor: KeptObject
    ) -> frozenset[str]:
        """Return the marks of the answers that the named response goes on from.

        Only those count that the request repeats.
        """
        wanted = marks_of(incoming.view.evidence.anchors.values())
        if not wanted:
            return frozenset()

        covered: set[str] = set()
        link: KeptObject | None = predecessor
        for _ in range(_MAX_LINKS):
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
    ) -> KeptObject | RunnerResponse | None:
        """Return an agent's object, or the refusal in the form of ``path``.

        Return None for an id that passes without an owner.
        """
        try:
            found = await self._find(agent, object_id)
        except StoreError as error:
            if not isinstance(error, StateUnavailableError):  # which the state reports itself, once
                self._log.event("error", agent, error="ownership_not_read", reason=str(error))
            message = "it can't be looked up at the moment whose the id is"
            return refuse(path, 503, STATE_UNAVAILABLE, message, param=naming)

        if found is not None or not self.is_checked:
            return found

        reason = f"{naming} {object_id[:MAX_SHOWN_ID]}"
        self._log.event("intervention", agent, intervention="stored_id_refused", reason=reason)
        return refuse_unknown_id(path, naming, object_id)

    async def find_chain(self, agent: Agent, kept: KeptObject) -> tuple[list[KeptObject], bool]:
        """Return an object and all that it goes on from, and whether none of them is missing.

        Raises ``StoreError``.
        """
        chain = [kept]
        while chain[-1].previous:
            before = await self._find(agent, chain[-1].previous)
            if before is None or len(chain) == _MAX_LINKS:
                return chain, False

            chain.append(before)
            await asyncio.sleep(0)  # A chain may be long, and other turns wait

        return chain, True

    async def _find(self, agent: Agent, object_id: str) -> KeptObject | None:
        # Only the state knows whether it is another agent's.
        await self._pending.wait([(agent.id, object_id)])
        return await self._store.find(agent.id, object_id)

    async def save_also_as(self, agent: Agent, object_id: str, shown_id: str) -> None:
        """Save an agent's object, if it has one of that id, under the id that a runner has, too."""
        with suppress(StoreError):
            kept = await self._find(agent, object_id)
            if kept is not None and shown_id != object_id:
                await self.save(agent, replace(kept, id=shown_id))

    def save_soon(self, agent: Agent, kept: KeptObject) -> None:
        """Save an object from where nothing can be awaited.

        Whoever looks for it from now on waits for that.
        """
        self._pending.start([(agent.id, kept.id)], self.save(agent, kept))

    async def finish(self) -> None:
        """Wait until everything is saved."""
        await self._pending.finish()

    async def save(self, agent: Agent, kept: KeptObject) -> None:
        """Save an object.

        A store that fails costs its id, never the response; so does another agent that owns it.
        """
        try:
            is_saved = await self._store.save(agent.id, kept, may_share=not self.is_checked)
        except StoreError as error:
            self._report_unwritten(agent, error)
            return

        if not is_saved:
            report_other_owner(self._log, agent, "response or conversation", kept.provider)

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

    An agent that makes a provider do so may do it often: the event is limited.
    """
    reason = f"{provider} gave {agent.id} an id that is another agent's: a {kind}"
    log.limited_event("error", agent, error="id_of_another_agent", reason=reason)
