"""Requests as providers are sent them: with managed tools, hidden rounds and context."""

from functools import cache, partial

from msgspec.structs import replace

from claw_contract.manifest import Tool
from claw_mediate.core.session_id import read_session_id
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.weave import Weaves, change_hidden, hidden_messages
from claw_mediate.dialects.base import WriteRequest
from claw_mediate.dialects.bodies import insert_hidden_rounds
from claw_mediate.http.large_bodies import compute
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest, PreparedRequest
from claw_mediate.turns.continuity import Continuity

_MAX_CATALOGS = 256
type _CatalogKey = tuple[str, frozenset[str], int, bool, frozenset[str]]
"""The key of a cached catalog.

It is the agent, the names of the runner's own tools, the room, whether the runner may have others,
and the names that were managed earlier.
"""


class RequestPreparer:
    """Makes the requests for providers.

    Catalogs are cached: the same manifest gives the same one.
    """

    def __init__(self, continuity: Continuity, log: EventLog) -> None:
        self._continuity = continuity
        self._log = log
        self._catalogs: dict[_CatalogKey, tuple[tuple[Tool, ...], ToolCatalog]] = {}
        """Each with the tools that it was built of."""

    async def prepare(
        self, incoming: DialectRequest, text: str, maker: str = "", turn_id: str | None = None
    ) -> PreparedRequest:
        """Return a request with the managed tools and the hidden rounds of earlier turns.

        ``text`` goes to the end of the system prompt; ``maker`` is the provider and model that is
        asked first; ``turn_id`` is the turn that the request begins, if any. Raise
        ``UnreadableRequestError``.
        """
        view, dialect = incoming.view, incoming.dialect
        catalog = self._catalog(incoming)
        found = await self._continuity.find_hidden_rounds(incoming, name_session(incoming), turn_id)

        def build_with(weaves: Weaves, maker: str) -> WriteRequest:
            adapted = change_hidden(
                weaves, lambda messages: dialect.replay_rules.adapt(messages, maker)
            )
            return dialect.build_request(view, catalog, adapted, text)

        build = cache(partial(build_with, found.weaves))
        explain, build_explained = found.explained, None
        if explain is not None:
            build_explained = cache(lambda maker: build_with(explain(), maker))

        # What is built here is cached; of a large body it is built in a thread.
        size = len(view.body)
        await compute(size, partial(build, maker))
        woven = hidden_messages(found.weaves)
        return PreparedRequest(catalog, build, maker, size, woven, build_explained, found.broken)

    async def remind(self, incoming: DialectRequest) -> DialectRequest:
        """Return a request that is not mediated with its hidden rounds.

        A summary of a conversation is to know of them.
        """
        found = await self._continuity.find_hidden_rounds(incoming, name_session(incoming), None)
        adapt = incoming.dialect.replay_rules.adapt
        hidden = change_hidden(found.weaves, lambda messages: adapt(messages, ""))

        reminded = await _change_messages(incoming, hidden)
        return replace(reminded, woven=hidden_messages(hidden))

    async def without_hidden_reasoning(self, incoming: DialectRequest) -> DialectRequest:
        """Return a request that gets no hidden rounds, without their reasoning.

        A provider would refuse it (docs/spec/live.md section 14).
        """
        weaves = await self._continuity.find_hidden_reasoning(incoming)
        return await _change_messages(incoming, weaves) if weaves else incoming

    def _catalog(self, incoming: DialectRequest) -> ToolCatalog:
        """Return the tools that a request is offered."""
        agent, view, predecessor = incoming.agent, incoming.view, incoming.predecessor
        room = incoming.dialect.max_tools - len(view.declared_tools)
        earlier = frozenset(predecessor.managed_names if predecessor is not None else ())

        key = (agent.id, frozenset(view.declared_tools), room, view.declares_elsewhere, earlier)
        tools, catalog = self._catalogs.get(key, (None, None))
        if catalog is None or tools is not agent.tools:
            if len(self._catalogs) >= _MAX_CATALOGS:
                self._catalogs.clear()
            catalog = ToolCatalog.build(
                agent.tools,
                view.declared_tools,
                room,
                is_open=view.declares_elsewhere,
                earlier=earlier,
            )
            self._catalogs[key] = agent.tools, catalog

        if len(catalog.offered) < len(agent.tools):
            self._log.event(
                "intervention",
                agent,
                model=view.model,
                intervention="managed_tools_over_limit",
                tools=[tool.name for tool in agent.tools[len(catalog.offered) :]],
            )
        return catalog


async def _change_messages(incoming: DialectRequest, weaves: Weaves) -> DialectRequest:
    view = incoming.view
    change = partial(insert_hidden_rounds, view.body, incoming.dialect.transcript, weaves)
    body = await compute(len(view.body), change)
    return replace(incoming, view=replace(view, body=body))


def name_session(incoming: DialectRequest) -> str:
    """Return the name of the conversation.

    It is the runner's name, or that of the object that the request goes on from.
    """
    session = read_session_id(incoming.request.headers, incoming.view.session_hints)
    if session or incoming.predecessor is None:
        return session
    return incoming.predecessor.session
