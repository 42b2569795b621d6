"""The rules of connections, by their table and a clock of the test."""

from __future__ import annotations

import pytest

from claw_mediate.mitm.connection_table import HEAD_SECONDS, IDLE_SECONDS, ConnectionTable


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> ConnectionTable:
    made = ConnectionTable(clock)
    made.open("a")
    return made


def expired(table: ConnectionTable, **half_heads: float) -> list[str]:
    return [each.client_id for each in table.expired(half_heads)]


@pytest.mark.requirement("connections:head")
def test_a_connection_has_half_a_minute_for_its_first_head(
    table: ConnectionTable, clock: Clock
) -> None:
    clock.now += HEAD_SECONDS
    assert expired(table) == []
    clock.now += 1
    assert expired(table) == ["a"]


@pytest.mark.requirement("connections:head")
def test_behind_connect_the_time_for_a_head_begins_anew(
    table: ConnectionTable, clock: Clock
) -> None:
    clock.now += HEAD_SECONDS
    table.begin_request("a", "connect")
    table.end_connect("a", "connect")
    clock.now += HEAD_SECONDS
    assert expired(table) == []
    clock.now += 1
    assert expired(table) == ["a"]


@pytest.mark.requirement("connections:head")
def test_half_a_head_behind_an_answer_has_no_more_time_than_the_first(
    table: ConnectionTable, clock: Clock
) -> None:
    table.begin_request("a", "one")
    table.end_request("a", "one")
    clock.now += HEAD_SECONDS
    first_byte = clock.now
    clock.now += HEAD_SECONDS
    assert expired(table, a=first_byte) == []
    clock.now += 1
    assert expired(table, a=first_byte) == ["a"]
    assert expired(table) == []

    table.begin_request("a", "two")
    assert expired(table, a=first_byte) == []


@pytest.mark.requirement("connections:idle")
def test_a_connection_in_use_stays_until_all_its_requests_have_ended(
    table: ConnectionTable, clock: Clock
) -> None:
    table.begin_request("a", "one")
    table.begin_request("a", "two")
    table.end_request("a", "one")
    clock.now += 10 * IDLE_SECONDS
    assert expired(table) == []

    table.end_request("a", "two")
    clock.now += IDLE_SECONDS
    assert expired(table) == []
    clock.now += 1
    assert expired(table) == ["a"]


@pytest.mark.requirement("connections:idle")
def test_a_tunnel_stays(table: ConnectionTable, clock: Clock) -> None:
    table.begin_request("a", "connect")
    table.end_connect("a", "connect")
    table.note_tunnel("a")
    clock.now += 10 * IDLE_SECONDS
    assert expired(table) == []


@pytest.mark.requirement("connections:strangers")
def test_the_oldest_connection_without_a_token_goes_first_and_a_known_one_never(
    table: ConnectionTable,
) -> None:
    table.max_unknown = 2
    table.open("b")
    assert table.surplus() is None
    table.open("c")
    assert table.surplus() == "a"

    table.note_token("a", "analyst")
    assert table.surplus() is None
    table.open("d")
    assert table.surplus() == "b"
    table.close("b")
    assert table.surplus() is None

    table.add_descriptors("d", 1)  # a connection that was opened for it counts with it
    assert table.surplus() == "c"
    table.close("c")
    table.close("d")
    table.open("e")
    assert table.surplus() is None


@pytest.mark.requirement("connections:agent-share")
def test_an_agent_has_its_share_whatever_others_have(table: ConnectionTable) -> None:
    table.max_agent = 3
    for client_id in ("a", "b", "c"):
        table.open(client_id)
        table.begin_request(client_id, f"first of {client_id}")
        table.note_token(client_id, "analyst" if client_id != "c" else "trader")

    assert table.exceeds_share("b")
    assert not table.exceeds_share("c")
    assert table.oldest_unused("b") is None

    table.end_request("a", "first of a")
    assert not table.exceeds_share("b")
    table.begin_request("b", "second of b")
    assert table.exceeds_share("b")
    assert table.oldest_unused("b") == "a"
    table.close("a")
    assert not table.exceeds_share("b")

    table.add_descriptors("b", 2)  # the connections on which the two requests go out
    assert not table.exceeds_share("b")
    table.end_request("b", "first of b")
    table.end_request("b", "second of b")
    table.add_descriptors("b", 1)
    assert table.exceeds_share("b")


@pytest.mark.requirement("connections:agent-share")
def test_what_the_agents_leave_free_is_always_enough_for_one_more(table: ConnectionTable) -> None:
    table.max_agents = 60
    table.close("a")

    def connect_all(agent_id: str) -> int:
        """Open connections of this agent until one has no room; return how many are open."""
        for number in range(1000):
            client_id = f"{agent_id} {number}"
            table.open(client_id)
            table.note_token(client_id, agent_id)
            if table.exceeds_share(client_id):
                table.close(client_id)
                return number
        raise AssertionError("there is no limit")

    assert [connect_all(agent_id) for agent_id in ("one", "two", "three")] == [30, 15, 7]
    # The first has more than its share now, and gets no other connection before it is down to what
    # is free.
    assert connect_all("four") == 4
    assert table.exceeds_share("one 0")
    for number in range(30):
        table.close(f"one {number}")
    assert connect_all("two") > 0


@pytest.mark.requirement("connections:descriptors", "connections:agent-share")
def test_strangers_are_the_first_to_go_and_then_who_has_the_most(table: ConnectionTable) -> None:
    assert table.most_dispensable() == "a"
    table.note_token("a", "analyst")
    for client_id in ("b", "c"):
        table.open(client_id)
        table.note_token(client_id, "trader")

    table.begin_request("b", "one")
    assert table.most_dispensable() == "c"
    table.begin_request("c", "one")
    assert table.most_dispensable() is None
