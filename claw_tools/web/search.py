"""The tool ``web_search``: a search engine that the operator configured.

Specification: docs/spec/tools-host.md "The tools".

Rules. The endpoint may be private, since the operator named it; a redirect of it is not followed.
Each backend's answer becomes the same short list. An answer that holds no list of results fails,
and is never shown as an empty list.
"""

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from claw_contract.base import JsonObject
from claw_contract.toolhost_file import SearchSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.tool import READ_ONLY, Tool
from claw_tools.web.body import ACCEPTED_CODINGS, decode_body
from claw_tools.web.dialer import Dialer, UnreachableError
from claw_tools.web.exchange import (
    BrokenExchangeError,
    OutboundRequest,
    OutboundResponse,
    exchange,
)
from claw_tools.web.fetch import EXTERNAL
from claw_tools.web.urls import OutboundUrl, parse_url

_MAX_BYTES: Final = 4 << 20  # Of an answer
_DEFAULT_RESULTS: Final = 5
_MAX_RESULTS: Final = 20
_MAX_TITLE: Final = 300
_MAX_SNIPPET: Final = 1_000
_MAX_LINK: Final = 2_048
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
                "description": f"Default: {_DEFAULT_RESULTS}.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    annotations = {**READ_ONLY, "openWorldHint": True}  # noqa: RUF012 - the same
    max_seconds = 20.0

    def __init__(self, section: SearchSection) -> None:
        """Raise ``ValueError`` for an endpoint that is no URL."""
        try:
            self._endpoint = parse_url(section.endpoint)
        except ToolError:
            raise ValueError("web_search.endpoint is no http:// or https:// URL.") from None
        self._section = section
        self._dialer = Dialer(frozenset({self._endpoint.host}))

    async def execute(self, args: JsonObject) -> Any:
        """Return ``{query, notice, results: [{title, url, snippet}]}``. Raise ``ToolError``."""
        query = args["query"]
        max_results = int(args.get("num_results", _DEFAULT_RESULTS))
        try:
            url = _add_query(self._endpoint, self._section.backend, query, max_results)
        except UnicodeError:
            raise ToolError(
                ErrorCode.INVALID_ARGS, "the query has a character that is none."
            ) from None

        answer = await self._ask(OutboundRequest(url, self._headers()))
        results: list[JsonObject] = []
        for entry in _find_entries(answer):
            result = _read_result(entry)
            if result is not None and len(results) < max_results:
                results.append(result)
        return {"query": query, "notice": EXTERNAL, "results": results}

    def _headers(self) -> dict[str, str]:
        headers = {"accept": "application/json", "accept-encoding": ACCEPTED_CODINGS}
        if self._section.api_key is None:
            return headers

        key = self._section.api_key.reveal()
        if self._section.backend == "brave":
            headers["x-subscription-token"] = key
        else:
            headers["authorization"] = f"Bearer {key}"
        return headers

    async def _ask(self, request: OutboundRequest) -> Any:
        try:
            async with exchange(self._dialer, request) as response:
                content = await _read_content(response)
        except UnreachableError as error:
            raise _failure(f"can't be reached: {error}") from None
        except BrokenExchangeError:
            raise _failure("broke off, or does not speak HTTP") from None

        try:
            return await asyncio.to_thread(msgspec.json.decode, content)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise _failure("answered with what is no JSON") from None


async def _read_content(response: OutboundResponse) -> bytes:
    if response.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise _failure("allows no more searches for now (status 429): wait before the next one")
    if response.status != HTTPStatus.OK:
        raise _failure(f"answered with status {response.status}")

    coding = response.headers.get("content-encoding", "")
    body = await decode_body(await response.read_body(_MAX_BYTES), coding, _MAX_BYTES)
    if not body.is_whole:
        raise _failure("broke off, or answered with more than is read")
    return body.content


def _add_query(endpoint: OutboundUrl, backend: str, query: str, count: int) -> OutboundUrl:
    fields: dict[str, str | int] = {"q": query}
    if backend == "searxng":
        fields["format"] = "json"  # It takes no number of results
    else:
        fields["count"] = count
    if backend == "brave":
        fields["text_decorations"] = "false"  # No HTML in the snippets

    target = endpoint.target
    if backend == "searxng" and target == "/":
        target = "/search"
    separator = "&" if "?" in target else "?"
    return replace(endpoint, target=f"{target}{separator}{urlencode(fields)}")


def _find_entries(answer: Any) -> list[Any]:
    """Return the entries of an answer.

    Brave's is ``{web: {results}}``, SearXNG's ``{results}``; ``generic`` may be either, or a list.
    Raise ``ToolError``.
    """
    entries = answer
    if isinstance(answer, dict):
        web = answer.get("web")
        entries = web.get("results") if isinstance(web, dict) else answer.get("results")
        if entries is None and answer.get("type") == "search":
            entries = []  # Brave leaves ``web`` out if nothing was found
    if not isinstance(entries, list):
        raise _failure("answered with JSON that has no results")
    return entries


def _read_result(entry: Any) -> JsonObject | None:
    """Return a result, shortened; None for an entry without a link of HTTP."""
    if not isinstance(entry, dict):
        return None
    link = _first_text(entry, _LINKS)
    is_http = link.lower().startswith(("http://", "https://"))
    if not is_http or len(link) > _MAX_LINK:
        return None

    return {
        "title": _first_text(entry, ("title",))[:_MAX_TITLE],
        "url": link,
        "snippet": _first_text(entry, _SNIPPETS)[:_MAX_SNIPPET],
    }


def _first_text(entry: JsonObject, names: tuple[str, ...]) -> str:
    """Return the first of these members that is a text, on one line; "" if none is."""
    for name in names:
        value = entry.get(name)
        if isinstance(value, str):
            return " ".join(value.split())
    return ""


def _failure(reason: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the search engine {reason}.")
