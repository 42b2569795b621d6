"""A runner that asks and never reads: it holds neither its turn nor its connection
(docs/spec/live.md section 8).
"""

from __future__ import annotations

import json

import pytest

from tests.peers import text
from tests.proxy.live_pod import BUYS, Flood, Scene, stream
from tests.proxy.unread import UnreadAnswer, request
from tests.waiting import eventually
from tests.wires import Body

SETTINGS = {"CLLAMA_LIVE_FIRST_MS": "60000", "CLLAMA_LIVE_MAX_MS": "500"}
MIB = 1 << 20


def closed(scene: Scene) -> list[Body]:
    """Return the events that tell of connections which the proxy has closed."""
    return [event for event in scene.log("error") if event["error"] == "connections_closed"]


@pytest.mark.requirement("live:unread")
@pytest.mark.parametrize("protocol", ["chat"])
def test_a_runner_that_never_reads_holds_neither_its_turn_nor_its_connection(scene: Scene) -> None:
    scene.says(BUYS, stream(Flood(scene.wire, 12 * MIB)))
    body = {**scene.request(), "stream": True}
    asks = request(scene.wire.PATH, scene.pod.token(), json.dumps(body).encode())
    with UnreadAnswer(scene.pod.port, asks):
        assert scene.ended()["error"] == "runner_not_reading"
        eventually(lambda: closed(scene), "its connection is closed")

    failed = scene.recorded()
    assert failed["tool_trace"][0]["tool_calls"][0]["result"]["data"] == {"order": 1}
    assert len(scene.writes) == 1

    scene.says(text("All is done."))
    assert scene.said(scene.ask(body=body)).text.endswith("All is done.")
    assert len(scene.writes) == 1, "the turn goes on, and writes no more"
