"""Commands of an operator, for mitmweb, mitmproxy's console and scripts; and the Turn view.

    claw.turn FLOW     the turn of a flow, as a transcript
    claw.agents        the agents, their tools and their problems
    claw.reload        read agents and providers again now
    claw.replay FLOW   replay the turn from its recording: a new flow, and the differences

Each returns text without secrets. The addon outlives the script (``docs/spec/inspect.md``).
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mitmproxy import contentviews, ctx, exceptions, flow, http

from claw_mediate import reload
from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.view import hidden_flows, replay, turn_view


class CommandsAddon:
    name = "claw-commands"

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state

    def load(self, _loader: Any) -> None:
        contentviews.add(turn_view.TurnView)
        for command in (self.turn, self.agents, self.reload, self.replay):
            ctx.master.commands.add(f"claw.{command.__name__}", command)

    def turn(self, flow: flow.Flow) -> str:
        """Show the turn of this flow as a transcript."""
        parent = flow.metadata.get(hidden_flows.PARENT)
        for other in self._flows():
            if other.id == parent:
                return turn_view.describe(other)

        return turn_view.describe(flow)

    def agents(self) -> str:
        """List every agent with the tools that it was granted, and its problems."""
        try:
            return reload.describe_agents(Path(ctx.options.cllama_context))
        except UnreadableDirectoryError as error:
            raise exceptions.CommandError(str(error)) from error

    def reload(self) -> str:
        """Read agents and providers from their files again, now, and list what has changed."""
        mediator = self._addon_state.mediator
        if mediator is None:
            raise exceptions.CommandError("nothing is governed here: there is no server (-n)")
        try:
            return "\n".join(mediator.reread()) or "nothing has changed"
        except UnreadableDirectoryError as error:
            raise exceptions.CommandError(str(error)) from error

    def replay(self, flow: flow.Flow) -> str:
        """Replay this flow's turn from its recording, under the agent's present manifest.

        Nothing is sent to anybody.
        """
        if not isinstance(flow, http.HTTPFlow):
            raise exceptions.CommandError("this flow is no turn")

        agents = AgentDirectory(Path(ctx.options.cllama_context))
        # A command is no coroutine, and this loop is running. So the replay, which never waits,
        # gets a loop of its own.
        with ThreadPoolExecutor(1) as thread:
            replaying = thread.submit(
                lambda: asyncio.run(replay.replay(flow, self._flows(), agents))
            )
        try:
            result = replaying.result()
        except replay.NotReplayableError as error:
            raise exceptions.CommandError(str(error)) from error

        view = self._addon_state.builtin.view
        if view is not None:
            view.add([result.flow])
        return result.report

    def _flows(self) -> list[http.HTTPFlow]:
        """Return all flows in the view; mitmdump has none."""
        view = self._addon_state.builtin.view
        kept = view.resolve("@all") if view is not None else ()
        return [each for each in kept if isinstance(each, http.HTTPFlow)]
