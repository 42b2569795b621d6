"""The request that a provider gets: the managed tools beside the runner's own, hidden rounds in their places, and context."""

from __future__ import annotations

from claw_contract.manifest import Tool
from claw_mediate.agents.directory import Agent
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.dialects.base import Additions, Dialect, RequestVariants, RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.context import DialectRequest
from claw_mediate.turns.continuity import Continuity

_MAX_CATALOGS = 256


class RequestPreparer:
    """Makes the requests for providers. Catalogs are kept: the same manifest gives the same one."""

    def __init__(self, continuity: Continuity, log: EventLog) -> None:
        self._continuity = continuity
        self._log = log
        self._catalogs: dict[tuple[str, frozenset[str], int], tuple[tuple[Tool, ...], ToolCatalog]] = {}
        """By agent, names of the runner's own tools, and room, each with the tools that it was made of."""

    async def prepare(
        self, incoming: DialectRequest, text: str, session: str, turn_id: str | None = None
    ) -> tuple[ToolCatalog, RequestVariants]:
        """Return the tools of a request, and its bodies. Raise ``UnreadableRequestError``.

        ``text`` goes to the end of the system prompt; ``turn_id`` is the turn that the request begins, if any.
        """
        view, dialect = incoming.view, incoming.dialect
        catalog = self._catalog(incoming.agent, view, dialect)
        hidden = await self._continuity.find_hidden_rounds(incoming, session, turn_id)
        return catalog, dialect.build_request(view, catalog, Additions(hidden, text))

    def _catalog(self, agent: Agent, view: RunnerRequest, dialect: Dialect) -> ToolCatalog:
        """Return the tools to offer. Those that the provider has no room for are left out from the end."""
        room = dialect.MAX_TOOLS - len(view.declared_tools)
        key = (agent.id, frozenset(view.declared_tools), room)
        tools, catalog = self._catalogs.get(key, (None, None))
        if catalog is None or tools is not agent.tools:
            if len(self._catalogs) >= _MAX_CATALOGS:
                self._catalogs.clear()
            catalog = ToolCatalog.build(agent.tools, view.declared_tools, room)
            self._catalogs[key] = agent.tools, catalog
        if len(catalog.offered) < len(agent.tools):
            left_out = [tool.name for tool in agent.tools[len(catalog.offered) :]]
            self._log.event(
                "intervention", agent, model=view.model, intervention="managed_tools_over_limit", tools=left_out
            )
        return catalog
