"""What an operator asks for: the Turn view, and commands of mitmweb, of mitmproxy's console, and of scripts (spec/inspect.md).

    claw.turn FLOW     the turn that a flow is of, as a transcript
    claw.agents        who may call what, and what is wrong
    claw.reload        agents and providers are read again now
    claw.replay FLOW   the turn again from what was recorded of it: a new flow, and what differs

Whatever they return is text to be read, without secrets. They are the master's, and outlive the script.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mitmproxy import contentviews, ctx, exceptions, flow, http

from claw_mediate import reload
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.mitm.lifecycle import Life
from claw_mediate.mitm.view import hidden_flows, replay, turn_view


class Commands:
    """Added to the master itself."""

    name = "claw-commands"

    def load(self, _loader: Any) -> None:
        contentviews.add(turn_view.TurnView)
        for what in (self.turn, self.agents, self.reload, self.replay):
            ctx.master.commands.add(f"claw.{what.__name__}", what)

    def turn(self, flow: flow.Flow) -> str:
        """The turn that this flow is of, as a transcript."""
        parent = flow.metadata.get(hidden_flows.PARENT)
        return turn_view.told(next((other for other in _flows() if other.id == parent), flow))

    def agents(self) -> str:
        """Every agent with the tools that it was granted, and what is wrong with it."""
        return reload.describe_agents(Path(ctx.options.cllama_context))

    def reload(self) -> str:
        """Read agents and providers from their files again, now, and say what has changed."""
        mediator = ctx.master.addons.get(Life.name).current
        if mediator is None:
            raise exceptions.CommandError("nothing is governed here: there is no server (-n)")
        return "\n".join(mediator.reread()) or "nothing has changed"

    def replay(self, flow: flow.Flow) -> str:
        """Play this flow's turn again, from what was recorded of it, under the agent's present manifest. Nobody is asked."""
        if not isinstance(flow, http.HTTPFlow):
            raise exceptions.CommandError("this flow is no turn")
        agents = AgentDirectory(Path(ctx.options.cllama_context))
        # Commands are no coroutines, and this loop is taken: the turn is played in a loop of its own, where nothing waits.
        with ThreadPoolExecutor(1) as thread:
            playing = thread.submit(lambda: asyncio.run(replay.replay(flow, _flows(), agents)))
        try:
            new, told = playing.result()
        except replay.NotReplayableError as error:
            raise exceptions.CommandError(str(error)) from error
        if (view := ctx.master.addons.get("view")) is not None:
            view.add([new])
        return told


def _flows() -> list[http.HTTPFlow]:
    """All that are kept; mitmdump keeps none."""
    view = ctx.master.addons.get("view")
    kept = view.resolve("@all") if view is not None else ()
    return [each for each in kept if isinstance(each, http.HTTPFlow)]
