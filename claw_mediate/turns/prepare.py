"""What is offered to the model: the agent's tools beside the runner's own, hidden rounds in their places, and context."""

from __future__ import annotations

from dataclasses import dataclass

from claw_contract.manifest import Tool
from claw_mediate.agents.directory import Agent
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.dialects.base import Additions, Dialect, RequestVariants, RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.continuity import Continuing


@dataclass(frozen=True, slots=True)
class Around:
    """What goes with a request: text for the system prompt, the conversation that it belongs to where that is known, and the
    turn that it begins, if any.
    """

    context: str
    session: str
    turn_id: str | None = None


_MOST_CATALOGS = 256


class Offering:
    """Requests as the provider gets them."""

    def __init__(self, continuing: Continuing, log: EventLog) -> None:
        self._continuing = continuing
        self._log = log
        self._catalogs: dict[tuple[str, frozenset[str], int], tuple[tuple[Tool, ...], ToolCatalog]] = {}
        """By agent, names of the runner's own tools, and room, each with the tools that it was made of."""

    async def made(
        self, agent: Agent, view: RunnerRequest, dialect: Dialect, around: Around
    ) -> tuple[ToolCatalog, RequestVariants]:
        """The tools of this request, and its bodies. Raises ``UnreadableRequestError``."""
        catalog = self._catalog(agent, view, dialect)
        woven = await self._continuing.woven(agent, view, dialect, session=around.session, turn_id=around.turn_id)
        return catalog, dialect.build_request(view, catalog, Additions(woven, around.context))

    def _catalog(self, agent: Agent, view: RunnerRequest, dialect: Dialect) -> ToolCatalog:
        """Those that the provider has no room for are left out from the end."""
        room = dialect.MAX_TOOLS - len(view.declared_tools)
        key = (agent.id, frozenset(view.declared_tools), room)
        tools, catalog = self._catalogs.get(key, (None, None))
        if catalog is None or tools is not agent.tools:
            if len(self._catalogs) >= _MOST_CATALOGS:
                self._catalogs.clear()
            catalog = ToolCatalog.build(agent.tools, view.declared_tools, room)
            self._catalogs[key] = agent.tools, catalog
        if len(catalog.offered) < len(agent.tools):
            left_out = [tool.name for tool in agent.tools[len(catalog.offered) :]]
            self._log.event(
                "intervention", agent, model=view.model, intervention="managed_tools_over_limit", tools=left_out
            )
        return catalog
