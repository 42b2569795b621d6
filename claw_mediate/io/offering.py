"""What is offered to the model: the agent's tools beside the runner's own, hidden rounds in their places, and context."""

from __future__ import annotations

import sqlite3

from claw_mediate.catalog import Catalog
from claw_mediate.continuity import bounded
from claw_mediate.dialects.base import Additions, Dialect, Offers, RunnerRequest
from claw_mediate.io.agents import Agent
from claw_mediate.io.log import EventLog
from claw_mediate.io.store import Store


class Offering:
    """Requests as the provider gets them."""

    def __init__(self, store: Store, log: EventLog) -> None:
        self._store = store
        self._log = log

    def made(self, agent: Agent, view: RunnerRequest, dialect: Dialect, context: str) -> tuple[Catalog, Offers]:
        """The tools of this request, and its bodies. Raises ``UnreadableRequestError``."""
        catalog = self._catalog(agent, view, dialect)
        return catalog, dialect.offer(view, catalog, Additions(self._woven(agent.id, view), context))

    def _catalog(self, agent: Agent, view: RunnerRequest, dialect: Dialect) -> Catalog:
        """Those that the provider has no room for are left out from the end."""
        catalog = Catalog.of(agent.tools, view.declared, dialect.MOST_TOOLS - len(view.declared))
        if len(catalog.offered) < len(agent.tools):
            left_out = [tool.name for tool in agent.tools[len(catalog.offered) :]]
            self._log.event(
                "intervention", agent.id, model=view.model, intervention="managed_tools_over_limit", tools=left_out
            )
        return catalog

    def _woven(self, agent_id: str, view: RunnerRequest) -> dict[int, bytes]:
        """Hidden rounds of earlier turns, by the message that they go before. A store that fails costs the memory of them,
        never the turn.
        """
        try:
            recalled = self._store.recall(agent_id, view.anchors.values())
        except sqlite3.Error as error:
            self._log.event("error", agent_id, error="continuity_not_read", reason=str(error))
            return {}
        return bounded({index: recalled[anchor] for index, anchor in view.anchors.items() if anchor in recalled})
