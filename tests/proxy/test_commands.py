"""The commands of an operator, each with what it says where it can do nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mitmproxy import exceptions

from claw_mediate.mitm.addon_state import AddonState, BuiltinAddons
from claw_mediate.mitm.view.commands import CommandsAddon
from claw_mediate.telemetry.event_log import EventLog
from tests.proxy.looking import http, taddons, tflow, view


class Console:
    """mitmproxy's commands and its view, and a context directory that can't be read."""

    def __init__(self, home: Path) -> None:
        (home / "context").symlink_to("context")
        self.view = view.View()
        with taddons.context(self.view) as context:
            context.options.add_option("cllama_context", str, str(home / "context"), "")
            addon_state = AddonState(EventLog([].append), BuiltinAddons.find())
            context.master.addons.add(CommandsAddon(addon_state))
            self.call = context.master.commands.call

    def flow(self, **metadata: Any) -> http.HTTPFlow:
        """Return a flow of the view, with metadata by its names without ``claw.``."""
        flow = tflow.tflow(resp=True)
        flow.metadata |= {f"claw.{name}": value for name, value in metadata.items()}
        self.view.add([flow])
        return flow


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


@pytest.mark.requirement("web:commands")
def test_the_turn_of_a_hidden_request_is_that_of_its_runner(console: Console) -> None:
    parent = console.flow(turn="turn-1")
    child = console.flow(parent=parent.id, kind="tool", turn="turn-1")
    orphan = console.flow(parent="gone", kind="tool", turn="turn-1")
    assert console.call("claw.turn", child) == "turn turn-1 is not over"
    assert "part of turn turn-1" in console.call("claw.turn", orphan)
    assert console.call("claw.turn", console.flow()) == "this flow is no mediated turn"


@pytest.mark.requirement("web:commands")
def test_without_readable_agents_or_a_server_a_command_says_so(console: Console) -> None:
    with pytest.raises(exceptions.CommandError, match="symbolic links"):
        console.call("claw.agents")
    with pytest.raises(exceptions.CommandError, match="there is no server"):
        console.call("claw.reload")


@pytest.mark.requirement("web:replay")
def test_what_can_not_be_replayed_is_an_error_of_the_command(console: Console) -> None:
    with pytest.raises(exceptions.CommandError, match="no turn"):
        console.call("claw.replay", tflow.ttcpflow())
    native = console.flow(entry=json.dumps({"delivery": "native"}))
    with pytest.raises(exceptions.CommandError, match="no model was asked"):
        console.call("claw.replay", native)
