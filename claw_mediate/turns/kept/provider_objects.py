"""The owners of a provider's files, batches, vector stores and the like.

The rules are in docs/spec/mediation.md section 2.

A provider's account is shared by all agents. What an agent's request makes there, and what a
provider gives it in an answer, is that agent's, unless another one has it. A request that names an
object, in its path, its query or its body,

    of the agent's                      goes on, at the provider and with the key that keep it
    of somebody else's, or nobody's     404; with ``stored_ids: any`` it passes as it is
    that can't be looked up             503 ``state_unavailable``, whatever the setting is

Nothing is sent before that. Responses and conversations have records of their own (``ownership``).
Stored chat completions can't be read through the proxy: they hold the hidden rounds of their agent,
too.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import msgspec

from claw_mediate.agents.directory import Agent
from claw_mediate.core.api_paths import read_query
from claw_mediate.core.http import (
    Request,
    RunnerResponse,
    UnknownObject,
    refuse,
    refuse_unknown_object,
)
from claw_mediate.core.known_paths import KNOWN_PATHS, PathMatch
from claw_mediate.core.object_ids import (
    DIALECT_RULES,
    OTHER_RULES,
    AnswerShape,
    GivenObject,
    MemberRules,
    NamedObject,
    UnreadableObjectsError,
    find_given_objects,
    find_named_objects,
    rules_for,
)
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.model_only import read_form_fields, read_other_path
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.paths import PathTables
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.kept.ownership import (
    STATE_UNAVAILABLE,
    Ownership,
    StoredIds,
    report_other_owner,
)
from claw_mediate.turns.kept.pending_saves import PendingSaves
from claw_state.health import StateUnavailableError
from claw_state.ownership import ObjectName, OwnershipStore, ProviderObject
from claw_state.url import StoreError

_MAX_INLINE_BYTES = 256 << 10
"""Bytes of a body whose ids are read in the event loop; a longer one is read in a thread.

A walk is slower than other work.
"""
RECORDED_ELSEWHERE: Final = frozenset({"response", "conversation"})
"""Kinds in a path that ``kept_objects`` decides about."""
_UNREADABLE_KIND: Final = "stored_completion"
_METHODS: Final = ("GET", "POST", "DELETE")
_KNOWN_ROWS: Final = frozenset(row for rows in KNOWN_PATHS.values() for row in rows)
_FORM_NAME = re.compile(r"[^\[\].]+")
_BODY_PATHS = re.compile(
    r"/(?:vector_stores|containers|assistants|threads|evals|batches|messages/batches|conversations|videos|images)(?:/.*)?"
    r"|//v1(?:alpha|beta)?/models/.*"
)
"""Paths of no dialect on which a body may name objects.

Other bodies stream, or need not be sound.
"""


class ProviderObjects:
    """The files, batches and the like of all agents."""

    def __init__(
        self, store: OwnershipStore, log: EventLog, paths: PathTables, allowed: StoredIds = "own"
    ) -> None:
        self._store = store
        self._log = log
        self._paths = paths
        self._allowed = allowed
        self._pending: PendingSaves[tuple[str, ObjectName]] = PendingSaves()

    @property
    def is_checked(self) -> bool:
        """Return whether an agent may name its own objects only."""
        return self._allowed == "own"

    def find_path(self, request: Request) -> PathMatch | None:
        """Return the known path of a request; None for any other.

        A path that names an object is also found for methods that it does not have: no setting
        opens them.
        """
        own = self._paths.find(request)
        if own is not None and own.row in _KNOWN_ROWS:
            return own

        for method in _METHODS:
            other = self._paths.find(replace(request, method=method))
            if other is not None and (other.ids or other.row.lists):
                return other
        return own

    def must_read(self, request: Request) -> bool:
        """Return whether the body of a request of no dialect may name objects.

        Then it must be there before the request is decided about.
        """
        if not self.is_checked or request.method.upper() != "POST":
            return False

        match = self._paths.find(request)
        return match is not None and _BODY_PATHS.fullmatch(match.row.pattern) is not None

    async def check_path(
        self, agent: Agent, request: Request
    ) -> ProviderObject | RunnerResponse | None:
        """Return the first object that a path or its query names, or the refusal.

        Return None where they name none that is known.
        """
        match = self.find_path(request)
        if match is None:
            return None

        if match.row.lists == _UNREADABLE_KIND:
            named = [NamedObject(_UNREADABLE_KIND, "", "path")]
        else:
            named = [
                NamedObject(kind, each, f"{kind}_id")
                for kind, each in match.ids.items()
                if kind not in RECORDED_ELSEWHERE
            ]

        if "?" in request.path:
            named += _read_query(request.path)
        return await self._check(agent, request, named)

    async def check_other(
        self, agent: Agent, request: Request, body: bytes | None
    ) -> ProviderObject | RunnerResponse | None:
        """Return the first object that a request of no dialect names, or the refusal.

        It is looked for in the path and in the body. Return None if there is none.

        ``body``: None where it is not there. Raise ``UnreadableRequestError`` for a body in which
        ids can't be told.
        """
        in_path = await self.check_path(agent, request)
        if isinstance(in_path, RunnerResponse):
            return in_path

        if body is None:
            return self._refuse_unread(request) if self.must_read(request) else in_path

        in_body = await self.check_body(agent, request, body)
        if in_body is None:
            return in_path
        if in_path is None or isinstance(in_body, RunnerResponse):
            return in_body

        if in_path.provider != in_body.provider:
            return self.refuse_elsewhere(agent, request, in_body, in_path.id)
        return in_path

    def _refuse_unread(self, request: Request) -> RunnerResponse:
        message = "whose the ids in this request are can't be told, because its body can't be read"
        return refuse(self.error_path(request), 400, "invalid_request", message)

    async def check_body(
        self, agent: Agent, request: Request, body: bytes
    ) -> ProviderObject | RunnerResponse | None:
        """Return the first object that the body of a request of no dialect names.

        Raise ``UnreadableRequestError``.
        """
        must_be_sound = self.must_read(request)
        if must_be_sound:
            # This raises for a body that can be read in two ways.
            content_type = ", ".join(request.header("content-type"))
            await compute(len(body), partial(read_other_path, body, content_type))

        match = self._paths.find(request)
        rules = rules_for(None if match is None else match.row)
        try:
            return await self._check_members(agent, request, body, partial(_read_body, rules=rules))
        except UnreadableRequestError:
            if must_be_sound:
                raise
            return None  # The bodies of this path name no object.

    async def _check_members(
        self,
        agent: Agent,
        request: Request,
        body: bytes,
        find: Callable[[Request, bytes], Sequence[NamedObject]],
    ) -> ProviderObject | RunnerResponse | None:
        try:
            if len(body) < _MAX_INLINE_BYTES:
                named = find(request, body)
            else:  # Other requests go on meanwhile
                named = await asyncio.to_thread(find, request, body)
        except UnreadableObjectsError as error:
            raise UnreadableRequestError(str(error)) from error
        return await self._check(agent, request, named)

    async def check_dialect(
        self, agent: Agent, request: Request, body: bytes, chain: Collection[str]
    ) -> ProviderObject | RunnerResponse | None:
        """Return the first object that a request of a dialect names, like ``check_body``.

        ``chain``: the ids of responses and conversations that the dialect has read, which
        ``ownership`` decides about.
        """
        in_query = _read_query(request.path) if "?" in request.path else []
        find = partial(_read_dialect_body, chain=chain, in_query=in_query)
        return await self._check_members(agent, request, body, find)

    async def _check(
        self, agent: Agent, request: Request, named: Sequence[NamedObject]
    ) -> ProviderObject | RunnerResponse | None:
        if not named:
            return None

        for each in named:
            if each.kind == _UNREADABLE_KIND:
                return self._refuse(agent, self.error_path(request), UnknownObject(*each))

        found = await self._look_up(agent, request, named)
        if isinstance(found, RunnerResponse):
            return found

        owned: list[ProviderObject] = []
        for each in named:
            own = found.get(ObjectName(each.kind, each.id))
            if own is not None:
                owned.append(own)
            elif self.is_checked:
                return self._refuse(agent, self.error_path(request), UnknownObject(*each))

        for own in owned:
            if own.provider != owned[0].provider:
                return self.refuse_elsewhere(agent, request, own, owned[0].id)
        return owned[0] if owned else None

    async def _look_up(
        self, agent: Agent, request: Request, named: Sequence[NamedObject]
    ) -> dict[ObjectName, ProviderObject] | RunnerResponse:
        """Return the agent's own objects among those that a request names, or the refusal."""
        try:
            return await self._find(agent, {ObjectName(each.kind, each.id) for each in named})
        except StoreError as error:
            if not isinstance(error, StateUnavailableError):  # which the state reports itself, once
                self._log.event("error", agent, error="ownership_not_read", reason=str(error))
            message = "it can't be looked up at the moment whose the id is"
            path = self.error_path(request)
            return refuse(path, 503, STATE_UNAVAILABLE, message, param=named[0].member)

    def refuse_elsewhere(
        self, agent: Agent, request: Request, named: ProviderObject, other_id: str
    ) -> RunnerResponse:
        """Return the refusal of an object at another provider than the request's other objects."""
        reason = f"it is at another provider than {other_id!r}"
        unknown = UnknownObject(named.kind, named.id, f"{named.kind}_id", reason)
        return self._refuse(agent, self.error_path(request), unknown)

    def _refuse(self, agent: Agent, shape: str, unknown: UnknownObject) -> RunnerResponse:
        reason = f"{unknown.member} {unknown.shown_id}"
        self._log.event("intervention", agent, intervention="stored_id_refused", reason=reason)
        return refuse_unknown_object(shape, unknown)

    def error_path(self, request: Request) -> str:
        """Return a path of the dialect whose errors the provider of a request has."""
        match = self._paths.find(request)
        is_anthropic = match is not None and match.family == "anthropic"
        return "/messages" if is_anthropic or request.header("anthropic-version") else "/"

    async def _find(
        self, agent: Agent, names: Collection[ObjectName]
    ) -> dict[ObjectName, ProviderObject]:
        # Only the state knows whether they are another agent's.
        await self._pending.wait((agent.id, name) for name in names)
        return {each.name: each for each in await self._store.find_objects(agent.id, names)}

    async def own_ids(self, agent: Agent, kind: str, provider: str) -> frozenset[str]:
        """Return the ids of all objects of a kind that an agent has at a provider.

        Raise ``StoreError``.
        """
        await self._pending.wait(
            (owner, name)
            for owner, name in self._pending.places
            if owner == agent.id and name.kind == kind
        )
        saved = await self._store.list_objects(agent.id, kind)
        return frozenset(each.id for each in saved if each.provider == provider)

    async def save_given(
        self,
        agent: Agent,
        documents: Sequence[bytes],
        shape: AnswerShape | None,
        provider: str,
        key_label: str,
    ) -> None:
        """Save that the objects in a provider's answers to an agent are that agent's."""
        if shape is None:
            return

        given: dict[GivenObject, None] = {}  # Each once, in their order
        for document in documents:
            given |= dict.fromkeys(find_given_objects(document, shape))
        if given:
            await self._save(agent, _placed([*given], provider, key_label))

    def save_soon(
        self, agent: Agent, given: Sequence[GivenObject], provider: str, key_label: str
    ) -> None:
        """Save objects from where nothing can be awaited.

        Whoever looks for them here from now on waits for that.
        """
        objects = _placed(given, provider, key_label)
        places = [(agent.id, each.name) for each in objects]
        self._pending.start(places, self._save(agent, objects))

    async def finish(self) -> None:
        """Wait until everything is saved."""
        await self._pending.finish()

    async def _save(self, agent: Agent, objects: Sequence[ProviderObject]) -> None:
        """Save objects.

        A store that fails costs their ids, never the response; so does another agent that owns
        them.
        """
        try:
            refused = await self._store.save_objects(
                agent.id, objects, may_share=not self.is_checked
            )
        except StoreError as error:
            if not isinstance(error, StateUnavailableError):
                self._log.event("error", agent, error="ownership_not_written", reason=str(error))
            return

        for each in refused:
            report_other_owner(self._log, agent, each.kind, each.provider)


class Owners(NamedTuple):
    """Which agent owns what providers keep."""

    ownership: Ownership
    objects: ProviderObjects

    async def find_named(self, incoming: DialectRequest) -> DialectRequest | RunnerResponse:
        """Return a request with what it names of what providers keep, or the refusal."""
        agent, request, view = incoming.agent, incoming.request, incoming.view
        chain = view.kept.named_ids if view.kept is not None else []
        named = await self.objects.check_dialect(agent, request, view.body, chain)
        if isinstance(named, RunnerResponse):
            return named

        resolved = await self.ownership.resolve(incoming)
        if isinstance(resolved, RunnerResponse):
            return resolved

        predecessor = resolved.predecessor
        if named is None or predecessor is None or named.provider == predecessor.provider:
            return msgspec.structs.replace(resolved, named_object=named)
        return self.objects.refuse_elsewhere(agent, request, named, predecessor.id)


def _placed(given: Sequence[GivenObject], provider: str, key_label: str) -> list[ProviderObject]:
    return [ProviderObject(each.kind, each.id, provider, key_label) for each in given]


def _read_query(path: str) -> list[NamedObject]:
    """Return the objects that a path's query names."""
    return [named for name, value in read_query(path) for named in _named_by_field(name, value)]


def _read_dialect_body(
    _: Request, body: bytes, *, chain: Collection[str], in_query: Sequence[NamedObject]
) -> Sequence[NamedObject]:
    """Return the objects that a request of a dialect names. Raise ``UnreadableObjectsError``."""
    return [*in_query, *find_named_objects(body, DIALECT_RULES, chain)]


def _named_by_field(name: str, value: str) -> list[NamedObject]:
    """Return the objects that a field of a form or query names.

    Such fields are ``file_id``, ``file_ids[]`` and ``image[0][file_id]``.
    """
    if not value:
        return []
    kinds = map(OTHER_RULES.kind_of, _FORM_NAME.findall(name))
    return [NamedObject(kind, value, name) for kind in kinds if kind is not None]


def _read_body(request: Request, body: bytes, rules: MemberRules) -> Sequence[NamedObject]:
    """Return the objects that a body names.

    Raise ``UnreadableObjectsError`` and ``UnreadableRequestError``.
    """
    content_type = ", ".join(request.header("content-type"))
    if not content_type.lower().startswith("multipart/"):
        return find_named_objects(body, rules)

    named: list[NamedObject] = []
    for field in read_form_fields(content_type, body):
        value = body[field.start : field.end]
        # Some servers read the value of a field as JSON.
        if field.is_text and value.lstrip()[:1] in (b"{", b"["):
            named += find_named_objects(value, rules)
        named += _named_by_field(field.name, value.decode(errors="surrogateescape"))
    return named
