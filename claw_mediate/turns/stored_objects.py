"""Requests that name by its id what a provider keeps: responses and conversations
(docs/spec/responses.md section 10).

    GET    responses/{id}               the response as the runner may read it
    GET    responses/{id}/input_items   without hidden items; its pages are made of what is left
    POST   responses/{id}/cancel        passed; what comes back is shown like the response
    DELETE responses/{id}               the hidden responses of its turn are deleted too, as well as can be
    GET    conversations/{id}/items     without hidden items, like ``input_items``; and one of them by its id
    …      conversations/{id}…          passed

The proxy asks the provider itself, because an answer is edited as a whole. Only the stream of a
response that was forwarded without managed tools and hidden items is forwarded. The id must be the
agent's own, and every other path below is refused.
"""

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlencode

from claw_contract.names import assign_aliases, hashed_alias
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import StoredPath
from claw_mediate.core.http import (
    Forward,
    Naming,
    Request,
    RunnerResponse,
    build_error_body,
    refuse,
    refuse_unknown_id,
)
from claw_mediate.core.model_policy import Provider
from claw_mediate.core.object_ids import RESPONSE_SHAPE
from claw_mediate.core.observer import RequestInfo
from claw_mediate.dialects.base import MAX_MESSAGES, UnreadableRequestError
from claw_mediate.dialects.model_only import read_other_path
from claw_mediate.dialects.responses import stored
from claw_mediate.dialects.responses.stored import Concealment, ShownEcho
from claw_mediate.http.headers import of_json, provider_headers
from claw_mediate.providers.failover import (
    ProviderFailover,
    ProviderResponse,
    TransportFailure,
    too_large,
)
from claw_mediate.providers.routing import Requester, Router, new_turn_id
from claw_mediate.turns.fetched_document import FailedFetchError, answer_with, whole_body
from claw_mediate.turns.passthrough import (
    ForwardDetails,
    Owners,
    Passthrough,
    check_names_none,
    has_policy,
)
from claw_state.ownership import OwnedObject

_ID = re.compile(r"[\w.:-]{1,200}", re.ASCII)
_PREFIX = re.compile(r"[\w./:@-]*", re.ASCII)
_SERVED: Final = {
    "responses": re.compile(r"GET |DELETE |GET /input_items|POST /cancel"),
    "conversations": re.compile(
        r"(?:GET|POST|DELETE) |(?:GET|POST) /items|(?:GET|DELETE) /items/[\w.:-]{1,200}", re.ASCII
    ),
}
"""Methods and parts of an object that are served."""
_LISTS: Final = ("/input_items", "/items")
_PAGING: Final = ("order", "limit", "after", "before")
_MAX_BYTES = 64 << 20  # Of all pages of one list
_OK, _NO_CONTENT, _NOT_FOUND = 200, 204, 404


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """A request for one object that the agent may name."""

    admitted: Identity
    request: Request
    path: StoredPath
    owned: OwnedObject
    provider: Provider
    is_known: bool  # False if nothing is known of the object but its id

    @property
    def agent(self) -> Agent:
        return self.admitted.agent

    @property
    def method(self) -> str:
        return self.request.method.upper()

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.path.query)

    @property
    def wants_stream(self) -> bool:
        return any(
            name.lower() == "stream" and value.lower() not in {"false", "0"}
            for name, value in self.query
        )


class StoredObjects:
    """The responses and conversations that providers keep for the agents of one mediator."""

    def __init__(
        self, upstream: ProviderFailover, routing: Router, owners: Owners, passthrough: Passthrough
    ) -> None:
        self._upstream = upstream
        self._routing = routing
        self._ownership, self._objects = owners
        self._passthrough = passthrough

    async def answer(
        self, admitted: Identity, request: Request, path: StoredPath
    ) -> RunnerResponse | Forward:
        """Answer a request for an object. Raise ``UnreadableRequestError``."""
        naming: Naming = "response_id" if path.kind == "responses" else "conversation"
        is_sound = _ID.fullmatch(path.id) and _PREFIX.fullmatch(path.prefix)
        if not is_sound or not _SERVED[path.kind].fullmatch(
            f"{request.method.upper()} {path.part}"
        ):
            return refuse_unknown_id(
                request.path, naming, path.id, "there is no such object, or no such part of one"
            )
        found = await self._ownership.find(admitted.agent, request.path, naming, path.id)
        if isinstance(found, RunnerResponse):
            return found
        named = await self._objects.check_body(admitted.agent, request, request.body)
        if isinstance(named, RunnerResponse):
            return named
        owned = found or OwnedObject(path.id, path.id, "", is_plain=not admitted.agent.tools)
        candidates = await self._routing.candidates(
            Requester(admitted.agent, new_turn_id()), request, None, found
        )
        if isinstance(candidates, RunnerResponse):
            return candidates
        provider = candidates[0].provider
        asked = ObjectRequest(admitted, request, path, owned, provider, found is not None)
        if (
            path.kind == "responses"
            and not path.part
            and asked.method == "GET"
            and asked.wants_stream
        ):
            return await self._stream(asked)
        if request.body and read_other_path(request.body, "application/json") is not None:
            raise UnreadableRequestError("a request for what is stored names no model")
        if has_policy(admitted.agent):
            try:
                check_names_none(request, request.body)
            except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
                return self._passthrough.refuse_by_policy(admitted.agent, request, str(error))
        return await self._passthrough.record_fetch(
            admitted, request, provider, answer_with(asked.request.path, self._read(asked))
        )

    async def _read(self, asked: ObjectRequest) -> bytes:
        """Return what the runner may read.

        Raise ``FailedFetchError``, ``UnreadableResponseError`` and ``StoreError``.
        """
        owned, path = asked.owned, asked.path
        if asked.method == "DELETE" and not path.part:
            return await self._delete(asked)
        if asked.method == "GET" and path.part in _LISTS:
            return stored.write_page(await self._list(asked), dict(asked.query))
        if asked.method == "GET" and path.part:
            return _pick(asked, await self._list(asked))
        is_delivered = asked.method == "GET" and bool(owned.delivered)
        body = (
            owned.delivered
            if is_delivered
            else await self._fetch(asked, path.target(owned.provider_id))
        )
        if (
            path.kind == "responses"
        ):  # Of one that was made in the background, this is the first answer with its output
            place = owned.provider or asked.provider.name, owned.key_label
            await self._objects.save_given(asked.agent, [body], RESPONSE_SHAPE, *place)
        return (
            body
            if path.kind == "conversations"
            else stored.show_response(body, _echo(owned), _own_concealment(asked))
        )

    async def _stream(self, asked: ObjectRequest) -> RunnerResponse | Forward:
        if not asked.owned.is_plain:
            message = (
                "a response of a turn with managed tools can't be streamed again; ask for it "
                "without 'stream'"
            )
            return refuse(asked.request.path, 400, "invalid_request", message, param="stream")
        target = asked.path.target(asked.owned.provider_id)
        about = ForwardDetails(
            kept=asked.owned if asked.is_known else None, gives=RESPONSE_SHAPE, is_json=False
        )
        return await self._passthrough.forward(
            asked.admitted, dataclasses.replace(asked.request, path=target), None, about
        )

    async def _delete(self, asked: ObjectRequest) -> bytes:
        owned, path = asked.owned, asked.path
        for hidden in owned.hidden_responses:
            await self._ask(asked, path.target(hidden))  # As well as can be: nobody knows their ids
        result = await self._ask(asked, path.target(owned.provider_id))
        if isinstance(result, ProviderResponse) and result.status in {_OK, _NO_CONTENT, _NOT_FOUND}:
            await self._ownership.delete(asked.agent, owned.id)
        return stored.show_response(whole_body(result), ShownEcho(owned.id), Concealment())

    async def _list(self, asked: ObjectRequest) -> list[bytes]:
        """Return all items of a list that the runner may read, oldest first."""
        concealment = await self._concealment(asked)
        base = [pair for pair in asked.query if pair[0] not in _PAGING] + [
            ("order", "asc"),
            ("limit", str(stored.PAGE_SIZE)),
        ]
        part = asked.path.part if asked.path.part in _LISTS else "/items"
        items: list[bytes] = []
        after, size = "", 0
        while True:
            query = urlencode(
                [*base, *([("after", after)] if after else [])], errors="surrogateescape"
            )
            body = await self._fetch(asked, asked.path.target(asked.owned.provider_id, part, query))
            more, last = stored.read_page(body)
            items, size = items + more, size + len(body)
            if not last or last == after:
                return await asyncio.to_thread(
                    stored.show_items, items, concealment
                )  # There may be thousands
            if size > _MAX_BYTES or len(items) > MAX_MESSAGES:
                raise FailedFetchError(too_large(asked.provider))
            after = last

    async def _concealment(self, asked: ObjectRequest) -> Concealment:
        """Return what is hidden of a list, which has the items of all that the
        object goes on from.
        """
        rows, is_whole = await self._ownership.find_chain(asked.agent, asked.owned)
        ids = frozenset(each for row in rows for each in row.hidden_ids)
        names = frozenset(name for row in rows for name in row.managed_names)
        is_exact = asked.is_known and is_whole and asked.path.kind == "responses"
        return Concealment(ids, names if is_exact else names | _managed_names(asked.agent))

    async def _fetch(self, asked: ObjectRequest, target: str) -> bytes:
        return whole_body(await self._ask(asked, target))

    async def _ask(self, asked: ObjectRequest, target: str) -> ProviderResponse | TransportFailure:
        headers = [
            *provider_headers(asked.request.headers, asked.admitted.secret),
            ("accept-encoding", "gzip, deflate"),
        ]
        headers = of_json(headers) if asked.request.body else headers
        info = RequestInfo(
            asked.method, asked.provider.strip_base_path(target), headers, asked.request.body
        )
        return await self._upstream.fetch(asked.agent.id, asked.provider, info)


def _pick(asked: ObjectRequest, items: Sequence[bytes]) -> bytes:
    found = stored.find_item(items, asked.path.part.rpartition("/")[2])
    if found is None:
        body = build_error_body(
            asked.request.path, _NOT_FOUND, "item_not_found", "the conversation has no such item"
        )
        raise FailedFetchError(ProviderResponse(_NOT_FOUND, "application/json", body))
    return found


def _echo(owned: OwnedObject) -> ShownEcho:
    return ShownEcho(owned.id, owned.previous, owned.tool_choice, owned.instructions)


def _own_concealment(asked: ObjectRequest) -> Concealment:
    """Return what is hidden of the response itself, which repeats its own request only."""
    owned = asked.owned
    if owned.is_plain:
        return Concealment()
    return Concealment(
        frozenset(owned.hidden_ids), frozenset(owned.managed_names) or _managed_names(asked.agent)
    )


def _managed_names(agent: Agent) -> frozenset[str]:
    """Return every name by which a tool of the agent's may have been offered."""
    names = [tool.name for tool in agent.tools]
    return frozenset([*names, *assign_aliases(names).values(), *map(hashed_alias, names)])
