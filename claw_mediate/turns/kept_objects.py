"""Requests whose path names a response or conversation that a provider keeps.

The rules are in docs/spec/responses.md section 10.

    GET    responses/{id}               the response as the runner may read it
    GET    responses/{id}/input_items   without hidden items; its pages are made of what is left
    POST   responses/{id}/cancel        passed; what comes back is shown like the response
    DELETE responses/{id}               the hidden responses of its turn are deleted too, if the
                                        provider lets us
    GET    conversations/{id}/items     without hidden items, like ``input_items``; and one of them
                                        by its id
    …      conversations/{id}…          passed

The proxy asks the provider itself, because an answer is edited as a whole. Only one answer is
forwarded: the stream of a response whose request went without managed tools and hidden items. The
id must be the agent's own, and every other path below is refused.
"""

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlencode

from claw_contract.names import assign_aliases, hashed_alias
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import KeptPath
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
from claw_mediate.dialects.kept import PAGE_SIZE, Concealment, KeptForm, ShownEcho
from claw_mediate.dialects.model_only import read_other_path
from claw_mediate.http.headers import of_json, provider_headers
from claw_mediate.providers.client import ProviderResponse, TransportFailure, too_large
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.routing import Router, new_turn_id
from claw_mediate.turns.kept.fetched_document import FailedFetchError, answer_with, whole_body
from claw_mediate.turns.kept.provider_objects import Owners
from claw_mediate.turns.other_paths import check_names_none
from claw_mediate.turns.passthrough import (
    ForwardDetails,
    Passthrough,
    has_policy,
)
from claw_state.ownership import KeptObject

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
_GONE_AT_PROVIDER: Final = {HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}
"""Answers to a deletion after which the provider has the object no more."""


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """A request for one object that the agent may name."""

    admitted: Identity
    request: Request
    path: KeptPath
    record: KeptObject
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
        is_whole_response = self.path.kind == "responses" and not self.path.part
        if self.method != "GET" or not is_whole_response:
            return False

        return any(
            name.lower() == "stream" and value.lower() not in {"false", "0"}
            for name, value in self.query
        )


class KeptObjects:
    """The responses and conversations that providers keep for the agents of one mediator."""

    def __init__(
        self,
        upstream: ProviderFailover,
        routing: Router,
        owners: Owners,
        passthrough: Passthrough,
        form: KeptForm,
    ) -> None:
        self._upstream = upstream
        self._routing = routing
        self._ownership, self._objects = owners
        self._passthrough = passthrough
        self._form = form

    async def answer(
        self, admitted: Identity, request: Request, path: KeptPath
    ) -> RunnerResponse | Forward:
        """Answer a request for an object. Raise ``UnreadableRequestError``."""
        naming: Naming = "response_id" if path.kind == "responses" else "conversation"
        if not _is_served(request, path):
            message = "there is no such object, or no such part of one"
            return refuse_unknown_id(request.path, naming, path.id, message)

        found = await self._ownership.find(admitted.agent, request.path, naming, path.id)
        if isinstance(found, RunnerResponse):
            return found
        named = await self._objects.check_body(admitted.agent, request, request.body)
        if isinstance(named, RunnerResponse):
            return named

        agent, turn_id = admitted.agent, new_turn_id()
        candidates = await self._routing.candidates(agent, turn_id, request, None, found)
        if isinstance(candidates, RunnerResponse):
            return candidates

        record = found or KeptObject(path.id, path.id, "", is_plain=not admitted.agent.tools)
        provider = candidates[0].provider
        asked = ObjectRequest(admitted, request, path, record, provider, found is not None)
        if asked.wants_stream:
            return await self._stream(asked)

        refusal = self._check_names_no_model(asked)
        if refusal is not None:
            return refusal
        document = answer_with(request.path, self._read(asked))
        return await self._passthrough.record_fetch(admitted, request, provider, document)

    def _check_names_no_model(self, asked: ObjectRequest) -> RunnerResponse | None:
        """Return the refusal of a request that may name a model, under a policy.

        Raise ``UnreadableRequestError`` for one that names a model.
        """
        request = asked.request
        if request.body and read_other_path(request.body, "application/json") is not None:
            raise UnreadableRequestError("a request for what is stored names no model")
        if not has_policy(asked.agent):
            return None

        try:
            check_names_none(request, request.body)
        except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
            return self._passthrough.refuse_by_policy(asked.agent, request, str(error))
        return None

    async def _read(self, asked: ObjectRequest) -> bytes:
        """Return what the runner may read.

        Raise ``FailedFetchError``, ``UnreadableResponseError`` and ``StoreError``.
        """
        record, path = asked.record, asked.path
        is_get = asked.method == "GET"
        if asked.method == "DELETE" and not path.part:
            return await self._delete(asked)
        if is_get and path.part in _LISTS:
            return self._form.write_page(await self._list(asked), dict(asked.query))
        if is_get and path.part:
            return self._pick(asked, await self._list(asked))

        if is_get and record.delivered:
            body = record.delivered
        else:
            body = await self._fetch(asked, path.target(record.provider_id))
        if path.kind == "conversations":
            return body

        # Of a response that was made in the background, this is the first answer with its output.
        provider = record.provider or asked.provider.name
        await self._objects.save_given(
            asked.agent, [body], RESPONSE_SHAPE, provider, record.key_label
        )

        echo = ShownEcho(record.id, record.previous, record.tool_choice, record.instructions)
        return self._form.show_response(body, echo, _own_concealment(asked))

    async def _stream(self, asked: ObjectRequest) -> RunnerResponse | Forward:
        if not asked.record.is_plain:
            message = (
                "a response of a turn with managed tools can't be streamed again; ask for it "
                "without 'stream'"
            )
            return refuse(asked.request.path, 400, "invalid_request", message, param="stream")

        target = asked.path.target(asked.record.provider_id)
        about = ForwardDetails(
            kept=asked.record if asked.is_known else None, gives=RESPONSE_SHAPE, is_json=False
        )
        return await self._passthrough.forward(
            asked.admitted, dataclasses.replace(asked.request, path=target), None, about
        )

    async def _delete(self, asked: ObjectRequest) -> bytes:
        record, path = asked.record, asked.path
        # If one can't be deleted, it stays: nobody else knows its id.
        for hidden in record.hidden_responses:
            await self._ask(asked, path.target(hidden))

        answer = await self._ask(asked, path.target(record.provider_id))
        if isinstance(answer, ProviderResponse) and answer.status in _GONE_AT_PROVIDER:
            await self._ownership.delete(asked.agent, record.id)
        return self._form.show_response(whole_body(answer), ShownEcho(record.id), Concealment())

    async def _list(self, asked: ObjectRequest) -> list[bytes]:
        """Return all items of a list that the runner may read, oldest first."""
        concealment = await self._concealment(asked)
        own_query = [pair for pair in asked.query if pair[0] not in _PAGING]
        first_page = [*own_query, ("order", "asc"), ("limit", str(PAGE_SIZE))]
        part = asked.path.part if asked.path.part in _LISTS else "/items"

        items: list[bytes] = []
        after = ""
        size = 0
        while True:
            page = [*first_page, ("after", after)] if after else first_page
            query = urlencode(page, errors="surrogateescape")
            body = await self._fetch(
                asked, asked.path.target(asked.record.provider_id, part, query)
            )

            more, last = self._form.read_page(body)
            items += more
            size += len(body)
            if not last or last == after:
                # There may be thousands.
                return await asyncio.to_thread(self._form.show_items, items, concealment)
            if size > _MAX_BYTES or len(items) > MAX_MESSAGES:
                raise FailedFetchError(too_large(asked.provider))
            after = last

    async def _concealment(self, asked: ObjectRequest) -> Concealment:
        """Return what is hidden of a list.

        The list has the items of all that the object goes on from.
        """
        chain, is_whole = await self._ownership.find_chain(asked.agent, asked.record)
        ids = frozenset(each for record in chain for each in record.hidden_ids)
        names = frozenset(name for record in chain for name in record.managed_names)

        is_exact = asked.is_known and is_whole and asked.path.kind == "responses"
        return Concealment(ids, names if is_exact else names | _managed_names(asked.agent))

    def _pick(self, asked: ObjectRequest, items: Sequence[bytes]) -> bytes:
        item = self._form.find_item(items, asked.path.part.rpartition("/")[2])
        if item is None:
            status = HTTPStatus.NOT_FOUND
            message = "the conversation has no such item"
            body = build_error_body(asked.request.path, status, "item_not_found", message)
            raise FailedFetchError(ProviderResponse(status, "application/json", body))
        return item

    async def _fetch(self, asked: ObjectRequest, target: str) -> bytes:
        return whole_body(await self._ask(asked, target))

    async def _ask(self, asked: ObjectRequest, target: str) -> ProviderResponse | TransportFailure:
        headers = [
            *provider_headers(asked.request.headers, asked.admitted.secret),
            ("accept-encoding", "gzip, deflate"),
        ]
        if asked.request.body:
            headers = of_json(headers)

        path = asked.provider.strip_base_path(target)
        info = RequestInfo(asked.method, path, headers, asked.request.body)
        return await self._upstream.fetch(asked.agent.id, asked.provider, info)


def _is_served(request: Request, path: KeptPath) -> bool:
    is_sound = _ID.fullmatch(path.id) and _PREFIX.fullmatch(path.prefix)
    if not is_sound:
        return False
    return bool(_SERVED[path.kind].fullmatch(f"{request.method.upper()} {path.part}"))


def _own_concealment(asked: ObjectRequest) -> Concealment:
    """Return what is hidden of the response itself, which repeats its own request only."""
    record = asked.record
    if record.is_plain:
        return Concealment()

    names = frozenset(record.managed_names) or _managed_names(asked.agent)
    return Concealment(frozenset(record.hidden_ids), names)


def _managed_names(agent: Agent) -> frozenset[str]:
    """Return every name by which a tool of the agent's may have been offered."""
    names = [tool.name for tool in agent.tools]
    return frozenset([*names, *assign_aliases(names).values(), *map(hashed_alias, names)])
