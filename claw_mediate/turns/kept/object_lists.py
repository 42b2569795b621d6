"""Lists of provider objects, as one agent may read them: its own objects, and pages of these.

The provider's list is of all agents of the account. So the proxy reads its pages itself, from the
beginning or from the cursor of the request, until it has a page of the agent's own.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from claw_contract.whole_numbers import whole_number
from claw_mediate.agents.authenticate import Identity
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import resolve_path
from claw_mediate.core.http import Request, RunnerResponse, UnknownObject, refuse_unknown_object
from claw_mediate.core.known_paths import Family, ObjectKind, PathMatch
from claw_mediate.core.model_policy import Provider
from claw_mediate.core.object_ids import shape_of_answer
from claw_mediate.core.observer import RequestInfo
from claw_mediate.dialects.base import UnreadableRequestError, UnreadableResponseError
from claw_mediate.dialects.bodies import encode
from claw_mediate.http.headers import provider_headers
from claw_mediate.providers.client import too_large
from claw_mediate.providers.failover import ProviderFailover
from claw_mediate.providers.routing import Router, new_turn_id
from claw_mediate.turns.kept.fetched_document import FailedFetchError, whole_body
from claw_mediate.turns.kept.provider_objects import ProviderObjects

_PAGE_SIZE = 100  # The most entries that every list gives at once
_MAX_PAGES = 100  # Of the provider's, for one page of the agent's
_MAX_BYTES = 64 << 20


class _PageParameters(NamedTuple):
    """The members by which an API pages."""

    after: str
    before: str
    is_object: bool  # True if a list says that it is one

    @property
    def names(self) -> tuple[str, ...]:
        return self.after, self.before, "limit"


_PAGING: Final[dict[Family, _PageParameters]] = {
    "openai": _PageParameters("after", "before", is_object=True),
    "anthropic": _PageParameters("after_id", "before_id", is_object=False),
}
"""The paging of lists by the family of the path; those of other families are not found."""

_DEFAULT_SIZE: Final[dict[ObjectKind, int]] = {"file": 10_000}
_MAX_SIZE = 10_000


class _Entry(msgspec.Struct):
    id: Any = None


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]
    has_more: Any = None


_entry_decoder = msgspec.json.Decoder(_Entry)
_page_decoder = msgspec.json.Decoder(_Page)


@dataclass(frozen=True, slots=True)
class _ListRequest:
    """A request for a list, with what its query asks for."""

    admitted: Identity
    request: Request
    kind: ObjectKind
    provider: Provider
    paging: _PageParameters
    query: list[tuple[str, str]]
    size: int

    def cursor(self, name: str) -> str:
        return dict(self.query).get(name, "")


class ObjectLists:
    """The lists of the providers' objects, for the agents of one mediator."""

    def __init__(
        self, upstream: ProviderFailover, routing: Router, objects: ProviderObjects
    ) -> None:
        self._upstream = upstream
        self._routing = routing
        self._objects = objects

    async def find_provider(
        self, admitted: Identity, request: Request, match: PathMatch
    ) -> Provider | RunnerResponse:
        """Return the provider whose list a request asks for, or the refusal."""
        kind = match.row.lists
        has_method = request.method.upper() in match.row.methods
        if kind is None or match.family not in _PAGING or not has_method:
            reason = "there is no such list of an agent's own objects"
            unknown = UnknownObject(kind or "", "", "path", reason)
            return refuse_unknown_object(self._objects.error_path(request), unknown)

        agent, turn_id = admitted.agent, new_turn_id()
        candidates = await self._routing.candidates(agent, turn_id, request, None)
        if isinstance(candidates, RunnerResponse):
            return candidates
        return candidates[0].provider

    async def read(
        self, admitted: Identity, request: Request, match: PathMatch, provider: Provider
    ) -> bytes:
        """Return the page of the agent's own objects that a request asks for.

        Raise ``FailedFetchError``, ``UnreadableRequestError``, ``UnreadableResponseError`` and
        ``StoreError``.
        """
        assert match.row.lists is not None
        query = parse_qsl(request.path.partition("?")[2], errors="surrogateescape")
        size = _read_size(dict(query).get("limit", ""), match.row.lists)
        asked = _ListRequest(
            admitted, request, match.row.lists, provider, _PAGING[match.family], query, size
        )

        own = await self._objects.own_ids(admitted.agent, asked.kind, provider.name)
        for name in (asked.paging.after, asked.paging.before):
            cursor = asked.cursor(name)
            if cursor and cursor not in own:
                raise UnreadableRequestError(f"{name!r} names no object of this agent's")

        entries = await self._read_own(asked, own) if own else []
        shape = shape_of_answer(match)
        if shape is not None:
            documents = [raw for _, raw in entries]
            await self._objects.save_given(admitted.agent, documents, shape, provider.name, "")
        return _write_page(asked, entries)

    async def _read_own(self, asked: _ListRequest, own: frozenset[str]) -> list[tuple[str, bytes]]:
        """Return the agent's own entries, in the order of the list.

        They are more than were asked for if the agent has more, which shows that the list goes on.
        For a page before a cursor they are all entries before it: the page has the last of them.
        """
        before = asked.cursor(asked.paging.before)
        cursor = asked.cursor(asked.paging.after)
        entries: list[tuple[str, bytes]] = []
        size = 0
        for _ in range(_MAX_PAGES):
            body = await self._fetch(asked, cursor)
            size += len(body)
            page, has_more = _read_page(body)
            for object_id, raw in page:
                if object_id == before:
                    return entries
                if object_id in own:
                    entries.append((object_id, raw))

            is_enough = not before and len(entries) > asked.size
            if is_enough or not has_more or not page:
                return entries

            last_id = page[-1][0]
            if last_id == cursor:  # The provider gives the same page again
                return entries
            if size > _MAX_BYTES:
                break
            cursor = last_id

        raise FailedFetchError(too_large(asked.provider))

    async def _fetch(self, asked: _ListRequest, cursor: str) -> bytes:
        pairs = [pair for pair in asked.query if pair[0] not in asked.paging.names]
        pairs.append(("limit", str(_PAGE_SIZE)))
        if cursor:
            pairs.append((asked.paging.after, cursor))
        query = urlencode(pairs, errors="surrogateescape")

        path = quote(resolve_path(asked.request.path))
        target = asked.provider.strip_base_path(f"{path}?{query}")
        headers = [
            *provider_headers(asked.request.headers, asked.admitted.secret),
            ("accept-encoding", "gzip, deflate"),
        ]
        info = RequestInfo("GET", target, headers, b"")
        return whole_body(await self._upstream.fetch(asked.admitted.agent.id, asked.provider, info))


def _read_size(limit: str, kind: ObjectKind) -> int:
    if not limit:
        return _DEFAULT_SIZE.get(kind, 20)

    size = whole_number(limit, _MAX_SIZE)
    if not size:
        raise UnreadableRequestError(f"'limit' is a whole number from 1 to {_MAX_SIZE}")
    return size


def _read_page(body: bytes) -> tuple[list[tuple[str, bytes]], bool]:
    """Return the ids and entries of a provider's page, and whether there are more.

    Raise ``UnreadableResponseError``.
    """
    try:
        json_splice.check_utf8(body)
        page = _page_decoder.decode(body)
        entries = [(_entry_decoder.decode(raw).id, bytes(raw)) for raw in page.data]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnreadableResponseError("the provider's answer is not one page of a list") from error
    return [(each, raw) for each, raw in entries if isinstance(each, str)], page.has_more is True


def _write_page(asked: _ListRequest, entries: list[tuple[str, bytes]]) -> bytes:
    """Return the page that a request asks for.

    It has the first entries or, before a cursor, the last ones.
    """
    page = entries[: asked.size]
    if asked.cursor(asked.paging.before):
        page = entries[-asked.size :]

    head = b'"object":"list",' if asked.paging.is_object else b""
    data = b",".join(raw for _, raw in page)
    first_id = encode(page[0][0]) if page else b"null"
    last_id = encode(page[-1][0]) if page else b"null"
    has_more = encode(len(entries) > len(page))
    return b'{%b"data":[%b],"first_id":%b,"last_id":%b,"has_more":%b}' % (
        head,
        data,
        first_id,
        last_id,
        has_more,
    )
