"""Merged writes: the same bytes to the same peers, in the same order, by fewer writes."""

from __future__ import annotations

import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import connection
from mitmproxy.proxy import commands

from claw_mediate.mitm import merged_writes

PEERS = [
    connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2)),
    connection.Server(address=("127.0.0.1", 3)),
    connection.Server(address=("127.0.0.1", 4), transport_protocol="udp"),
]
SENT = st.builds(
    commands.SendData, st.sampled_from(PEERS), st.sampled_from([b"a", b"bc", b"x" * 40_000])
)
OTHERS = st.one_of(
    st.builds(commands.Log, st.just("said")),
    st.builds(commands.CloseConnection, st.sampled_from(PEERS)),
)


@pytest.mark.requirement("dispatch:writes")
@given(st.lists(st.one_of(SENT, SENT, OTHERS), max_size=12))
def test_merged_writes_are_the_same_bytes_before_what_came_after_them(
    made: list[commands.Command],
) -> None:
    handler = types.SimpleNamespace(
        layer=types.SimpleNamespace(handle_event=lambda _event: iter(made))
    )
    merged_writes.install(handler)
    merged = list(handler.layer.handle_event(None))
    assert [each for each in merged if not isinstance(each, commands.SendData)] == [
        each for each in made if not isinstance(each, commands.SendData)
    ]
    for peer in PEERS:
        assert story(merged, peer) == story(made, peer)
    datagrams = [[each.data for each in some if is_sent(each, PEERS[2])] for some in (made, merged)]
    assert datagrams[0] == datagrams[1]
    silent = [each for each in merged if not isinstance(each, commands.Log)]
    for one, other in pairwise(silent):
        if is_sent(one, PEERS[0]) and is_sent(other, PEERS[0]):
            assert len(one.data) + len(other.data) > 64 << 10


@pytest.mark.requirement("dispatch:writes")
def test_what_a_layer_wrote_before_it_failed_goes_out() -> None:
    def handle_event(_event: object) -> Iterator[commands.Command]:
        yield commands.SendData(PEERS[0], b"a")
        yield commands.SendData(PEERS[0], b"b")
        raise ValueError("a layer failed")

    handler = types.SimpleNamespace(layer=types.SimpleNamespace(handle_event=handle_event))
    merged_writes.install(handler)
    made = []
    with pytest.raises(ValueError, match="a layer failed"):
        made += handler.layer.handle_event(None)
    assert story(made, PEERS[0]) == [b"ab"]


def is_sent(command: Any, peer: connection.Connection) -> bool:
    return isinstance(command, commands.SendData) and command.connection is peer


def story(made: list[Any], peer: connection.Connection) -> list[Any]:
    """Return the bytes that a peer is sent, with the ends of connections where they come."""
    told: list[Any] = [b""]
    for command in made:
        if is_sent(command, peer):
            told[-1] += command.data
        elif not isinstance(command, commands.SendData | commands.Log):
            told += [command, b""]
    return told
