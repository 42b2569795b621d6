"""The log: one JSON object a line, with the common members, and without the secrets
that it knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

import msgspec
import pytest

from claw_contract.log import COMMON, EventType
from claw_contract.secret import Secret
from claw_mediate.telemetry.event_log import Event, EventLog, now_rfc3339


@pytest.fixture
def lines() -> list[bytes]:
    return []


@pytest.fixture
def log(lines: list[bytes]) -> EventLog:
    return EventLog(lines.append)


@pytest.mark.requirement("log:shape")
@pytest.mark.parametrize("kind", get_args(EventType.__value__))
def test_every_line_has_the_common_members_first(
    log: EventLog, lines: list[bytes], kind: Any
) -> None:
    log.event(kind, "analyst", turn_id="t", status=200, text="a\nb\u2028")
    log.event(kind)
    first, second = map(json.loads, lines)
    assert tuple(first)[: len(COMMON)] == COMMON == tuple(second)
    assert (first["type"], first["claw_id"], first["turn_id"], first["status"]) == (
        kind,
        "analyst",
        "t",
        200,
    )
    assert (second["claw_id"], second["model"], second["intervention"]) == (None, None, None)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@pytest.mark.requirement("log:unseen")
def test_no_name_ends_a_line_or_moves_a_cursor(log: EventLog, lines: list[bytes]) -> None:
    name = 'gpt\u2028{"type":"response"}\x85\x9b2J\x7f\u202e\ufeff caf\u00e9'
    log.event("request", "analyst", model=name, path=f"/{name}")
    text = lines[0].decode()
    assert len(text.splitlines()) == 1
    assert all(each.isprintable() for each in text[:-1])
    assert (json.loads(text)["model"], json.loads(text)["path"]) == (name, f"/{name}")
    assert "caf\u00e9" in text


def test_the_time_is_rfc_3339_with_milliseconds() -> None:
    text = now_rfc3339()
    assert len(text) == len("2026-01-01T00:00:00.000Z")
    assert datetime.fromisoformat(text).utcoffset() is not None


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("secret", ["sk-s3cr3t", 'a"b/c\\d', "12345678"])
def test_a_secret_that_the_log_was_told_of_is_in_no_line(
    log: EventLog, lines: list[bytes], secret: str
) -> None:
    log.protect([Secret(secret)])
    log.protect([Secret("another")])
    log.event("error", reason=f"it says {secret}", number=12345678, nested={secret: [secret]})
    assert secret not in json.dumps(json.loads(lines[0]), ensure_ascii=False)
    assert json.dumps(secret)[1:-1].encode() not in lines[0]


@dataclass
class CompiledAgent:
    id: str = "analyst"
    digest: str = "a1" * 32


@pytest.mark.requirement("log:digest")
def test_what_is_told_of_an_agent_names_its_compile(log: EventLog, lines: list[bytes]) -> None:
    log.event("request", CompiledAgent())
    log.event("error", "analyst")
    assert [json.loads(line)["digest"] for line in lines] == ["a1" * 32, None]


@pytest.mark.requirement("log:any-text")
def test_text_that_is_no_unicode_is_written_and_listeners_get_what_is_written(
    log: EventLog, lines: list[bytes]
) -> None:
    heard: list[Event] = []
    log.add_listener(heard.append)
    odd = "a\udcff\ud800é"
    log.protect([Secret("sk-s3cr3t")])
    log.event(
        "error", odd, model=odd, reason=f"{odd} says sk-s3cr3t", nested={odd: [odd, (odd, 1)]}
    )
    (line,) = lines
    shown = "a\\udcff\\ud800é"
    read = msgspec.json.decode(line)
    assert (read["claw_id"], read["model"], read["nested"]) == (
        shown,
        shown,
        {shown: [shown, [shown, 1]]},
    )
    assert read["reason"] == f"{shown} says ••••••"
    assert heard[0]["model"] == shown


def test_a_listener_hears_of_each_event_and_one_that_fails_stops_nothing(
    log: EventLog, lines: list[bytes]
) -> None:
    heard: list[Any] = []

    def fails(_event: Event) -> None:
        raise LookupError

    log.add_listener(fails)
    log.add_listener(heard.append)
    log.event("join", CompiledAgent(), how="running")
    assert heard == [json.loads(line) for line in lines]
