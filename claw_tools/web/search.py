"""The tool ``web_search``: a search engine that the operator configured
(docs/spec/tools-host.md "The tools").

Rules. The endpoint may be private, since the operator named it; a redirect of it is not followed.
Each backend's answer becomes the same short list. An answer that is none fails, and is never shown
as an empty list.
"""

import asyncio
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.settings import SearchSettings
from claw_tools.tool import READ_ONLY, Tool
from claw_tools.web.body import ACCEPTED_CODINGS, decode_body
from claw_tools.web.dialer import Dialer, UnreachableError
from claw_tools.web.exchange import BrokenExchangeError, OutboundRequest, Response, exchange
from claw_tools.web.fetch import EXTERNAL
from claw_tools.web.urls import OutboundUrl, parse_url

_MAX_BYTES: Final = 4 << 20  # Of an answer
_MAX_RESULTS: Final = 20
_MAX_TITLE: Final = 300
_MAX_SNIPPET: Final = 1_000
_MAX_LINK: Final = 2_048
_OK = 200
_TOO_MANY_REQUESTS = 429
_LINKS: Final = ("url", "link")
_SNIPPETS: Final = ("snippet", "description", "content")


class WebSearch(Tool):
    """Asks the search engine."""

    name = "web_search"
    description = (
        "Search the web. The results have a title, a URL and a snippet each; fetch a page "
        "with web_fetch."
    )
    parameters: JsonObject = {  # noqa: RUF012 - the ABC says how it is used
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 1_000},
            "num_results": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_RESULTS,
                "description": "Default: 5.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    annotations = {**READ_ONLY, "openWorldHint": True}  # noqa: RUF012 - the same
    max_seconds = 20.0

    def __init__(self, settings: SearchSettings) -> None:
        """Raise ``ValueError`` for an endpoint that is no URL."""
        try:
            self._endpoint = parse_url(settings.endpoint)
        except ToolError:
            raise ValueError("web_search.endpoint is no http:// or https:// URL.") from None
        self._settings = settings
        self._dialer = Dialer(frozenset({self._endpoint.host}))

    async def execute(self, args: JsonObject) -> Any:
        """Return ``{query, notice, results: [{title, url, snippet}]}``."""
        query, count = args["query"], int(args.get("num_results", 5))
        try:
            url = _add_query(self._endpoint, self._settings.backend, query, count)
        except UnicodeError:
            raise ToolError(
                ErrorCode.INVALID_ARGS, "the query has a character that is none."
            ) from None
        answer = await self._ask(OutboundRequest(url, self._headers()))
        results = [
            found for each in _find_results(answer) if (found := _read_result(each)) is not None
        ]
        return {"query": query, "notice": EXTERNAL, "results": results[:count]}

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json", "accept-encoding": ACCEPTED_CODINGS}
        if self._settings.api_key is not None:
            key, is_brave = self._settings.api_key.reveal(), self._settings.backend == "brave"
            headers |= (
                {"x-subscription-token": key} if is_brave else {"authorization": f"Bearer {key}"}
            )
        return headers

    async def _ask(self, request: OutboundRequest) -> Any:
        try:
            async with exchange(self._dialer, request) as response:
                content = await _read(response)
        except UnreachableError as error:
            raise _fail(f"can't be reached: {error}") from None
        except BrokenExchangeError:
            raise _fail("broke off, or does not speak HTTP") from None
        try:
            return await asyncio.to_thread(msgspec.json.decode, content)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise _fail("answered with what is no JSON") from None


async def _read(response: Response) -> bytes:
    if response.status == _TOO_MANY_REQUESTS:
        raise _fail("allows no more searches for now (status 429): wait before the next one")
    if response.status != _OK:
        raise _fail(f"answered with status {response.status}")
    body = await decode_body(
        await response.read_body(_MAX_BYTES),
        response.headers.get("content-encoding", ""),
        _MAX_BYTES,
    )
    if not body.is_whole:
        raise _fail("broke off, or answered with more than is read")
    return body.content


def _add_query(endpoint: OutboundUrl, backend: str, query: str, count: int) -> OutboundUrl:
    fields: dict[str, str | int] = {"q": query}
    if backend == "searxng":
        fields["format"] = "json"  # It knows no number of results
    else:
        fields["count"] = count
    if backend == "brave":
        fields["text_decorations"] = "false"  # No HTML in the snippets
    target = endpoint.target
    if backend == "searxng" and target == "/":
        target = "/search"
    return replace(endpoint, target=f"{target}{'&' if '?' in target else '?'}{urlencode(fields)}")


def _find_results(answer: Any) -> list[Any]:
    """Return the results of an answer: of Brave ``{web: {results}}``, of SearXNG
    ``{results}``, else either or a list.
    """
    found = answer
    if isinstance(answer, dict):
        web = answer.get("web")
        found = web.get("results") if isinstance(web, dict) else answer.get("results")
        if found is None and answer.get("type") == "search":
            found = []  # Brave leaves ``web`` out where nothing was found
    if not isinstance(found, list):
        raise _fail("answered with JSON that has no results")
    return found


def _read_result(entry: Any) -> dict[str, str] | None:
    """Return a result, shortened; None for an entry without a link of HTTP."""
    if not isinstance(entry, dict):
        return None
    link = _text(entry, _LINKS)
    if not link.lower().startswith(("http://", "https://")) or len(link) > _MAX_LINK:
        return None
    return {
        "title": _text(entry, ("title",))[:_MAX_TITLE],
        "url": link,
        "snippet": _text(entry, _SNIPPETS)[:_MAX_SNIPPET],
    }


def _text(entry: JsonObject, names: tuple[str, ...]) -> str:
    values = (entry.get(name) for name in names)
    return " ".join(next((value for value in values if isinstance(value, str)), "").split())


def _fail(why: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the search engine {why}.")
