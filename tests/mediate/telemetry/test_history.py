"""Session history: a chain that shows every cut and edit, survives restarts and
crashes, and holds no secret.
"""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from claw_contract.chain import GENESIS
from claw_contract.published import schemas
from claw_contract.redaction.redactor import Redactor
from claw_mediate.core import tool_result
from claw_mediate.core.types import UnreadableArguments
from claw_mediate.telemetry.history import (
    MAX_BODY_BYTES,
    MAX_FREE_BODY_BYTES,
    History,
    body_for_history,
    last_hash,
)
from claw_mediate.turns.history_lines import call_record
from tests.mediate.made import called, granted
from tests.turns.desk import Desk

NONE = Redactor(())


def append(history: History, number: int, agent: str = "analyst", **more: Any) -> None:
    history.append(agent, {"version": 1, "turn_id": f"t{number}", **more}, NONE)


def lines(directory: Path, name: str = "history.jsonl", agent: str = "analyst") -> list[bytes]:
    return (directory / agent / name).read_bytes().splitlines(keepends=True)


def line_hash(line: bytes) -> str:
    """Return the hash as an auditor computes it: SHA-256 over the line without its
    last member, ``hash``.
    """
    return hashlib.sha256(line.rstrip(b"\n").rpartition(b',"hash":')[0] + b"}").hexdigest()


def broken_links(found: list[bytes], before: str = GENESIS) -> list[int]:
    """Return the numbers of the lines whose hash or link is wrong."""
    wrong = []
    for number, line in enumerate(found):
        entry = json.loads(line)
        if entry["prev"] != before or entry["hash"] != line_hash(line):
            wrong.append(number)
        before = entry["hash"]
    return wrong


@pytest.mark.requirement("history:chain")
def test_every_line_holds_the_hash_of_the_line_before(tmp_path: Path) -> None:
    history = History(tmp_path, 10**9)
    for number in range(5):
        append(history, number)
    append(history, 0, agent="clerk")
    assert broken_links(lines(tmp_path)) == []
    assert broken_links(lines(tmp_path, agent="clerk")) == []
    assert len({json.loads(line)["id"] for line in lines(tmp_path)}) == 5


@pytest.mark.requirement("history:chain")
def test_a_cut_or_an_edit_shows(tmp_path: Path) -> None:
    history = History(tmp_path, 10**9)
    for number in range(4):
        append(history, number)
    whole = lines(tmp_path)
    assert broken_links(whole[:1] + whole[2:]) == [1]
    assert broken_links([whole[1], whole[0], *whole[2:]]) != []
    assert broken_links([*whole[:2], whole[2].replace(b'"t2"', b'"tX"'), whole[3]]) == [2]
    assert broken_links(whole[1:]) == [0]


@pytest.mark.requirement("history:restart")
@pytest.mark.parametrize("size", [10, 70_000, 3_000_000])
def test_the_chain_goes_on_after_a_restart_however_long_the_last_line_is(
    tmp_path: Path, size: int
) -> None:
    append(History(tmp_path, 10**9), 0)
    append(History(tmp_path, 10**9), 1, body="x" * size)
    append(History(tmp_path, 10**9), 2)
    assert broken_links(lines(tmp_path)) == []


@pytest.mark.requirement("history:torn-line")
@pytest.mark.parametrize("keep", [1, 30, -1, -2, -20])
def test_a_torn_last_line_breaks_neither_the_chain_nor_the_next_line(
    tmp_path: Path, keep: int
) -> None:
    history = History(tmp_path, 10**9)
    for number in range(3):
        append(history, number)
    file = tmp_path / "analyst" / "history.jsonl"
    whole = lines(tmp_path)
    file.write_bytes(b"".join(whole[:2]) + whole[2][:keep])
    again = History(tmp_path, 10**9)
    append(again, 3)
    append(again, 4)
    found = lines(tmp_path)
    # A line that lacks only its line break is valid.
    assert broken_links([*whole[:2], *found[2 if keep == -1 else 3 :]]) == []
    assert [json.loads(line)["turn_id"] for line in found[3:]] == ["t3", "t4"]


@pytest.mark.requirement("history:torn-line")
def test_a_line_that_was_written_in_part_breaks_neither_chain_nor_next_line(
    tmp_path: Path,
) -> None:
    history = History(tmp_path, 1 << 30)
    append(history, 1)
    whole = len(b"".join(lines(tmp_path)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 20, before[1]))  # like a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            append(history, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    append(history, 3)
    first, torn, third = lines(tmp_path)
    assert len(torn) == 21
    assert broken_links([first, third]) == []


@pytest.mark.parametrize(
    "content", [None, b"", b"\n\n", b"garbage", b'{"hash":5}\n', b'{"a":"\\"}\n"}\n']
)
def test_a_file_without_a_sound_line_begins_a_chain(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "analyst" / "history.jsonl"
    if content is not None:
        file.parent.mkdir()
        file.write_bytes(content)
    assert last_hash(file) is None
    append(History(tmp_path, 10**9), 0)
    assert broken_links(lines(tmp_path)[-1:]) == []


def test_what_looks_like_a_hash_inside_a_line_is_none(tmp_path: Path) -> None:
    history = History(tmp_path, 10**9)
    append(history, 0, request=body_for_history(b'{"x":1,"hash":"' + b"0" * 64 + b'"}\n', NONE))
    append(History(tmp_path, 10**9), 1)
    assert broken_links(lines(tmp_path)) == []


@pytest.mark.requirement("history:one-chain")
@pytest.mark.parametrize("most", [10**9, 500])
def test_two_writers_of_one_file_write_one_chain(tmp_path: Path, most: int) -> None:
    """A mediator with new settings writes while turns of the old one are still ending."""
    before, after = History(tmp_path, most), History(tmp_path, most)
    for number, history in enumerate([before, after, after, before, before, after]):
        append(history, number)
    found = lines(tmp_path)
    older = lines(tmp_path, "history.jsonl.1") if most == 500 else []
    assert broken_links(older + found, json.loads((older + found)[0])["prev"]) == []
    assert json.loads(found[-1])["turn_id"] == "t5"


@pytest.mark.requirement("history:rotation")
@pytest.mark.parametrize("way", ["moved", "truncated"])
def test_the_chain_goes_on_in_a_file_that_an_operator_rotates(tmp_path: Path, way: str) -> None:
    history, file = History(tmp_path, 10**9), tmp_path / "analyst" / "history.jsonl"
    for number in range(3):
        append(history, number)
    kept = lines(tmp_path)
    if way == "moved":
        file.rename(file.with_name("history.jsonl-yesterday"))
    else:
        file.write_bytes(b"")
    append(history, 3)
    append(history, 4)
    assert broken_links(kept + lines(tmp_path)) == []


@pytest.mark.requirement("history:rotation")
def test_rotation_keeps_one_older_file_and_the_chain(tmp_path: Path) -> None:
    for number in range(9):
        append(History(tmp_path, 500), number)  # each time as after a restart
    old, new = lines(tmp_path, "history.jsonl.1"), lines(tmp_path)
    assert broken_links(old + new, json.loads(old[0])["prev"]) == []
    assert json.loads(new[-1])["turn_id"] == "t8"
    assert sorted(path.name for path in (tmp_path / "analyst").iterdir()) == [
        "history.jsonl",
        "history.jsonl.1",
    ]


def older(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "analyst").iterdir())[1:]


@pytest.mark.requirement("history:rotation")
@pytest.mark.parametrize("generations", [1, 2, 4])
def test_rotation_keeps_as_many_older_files_as_the_setting_says(
    tmp_path: Path, generations: int
) -> None:
    history = History(tmp_path, 500, generations)
    for number in range(30):
        append(history, number)
    names = [f"history.jsonl.{number}" for number in range(generations, 0, -1)]
    assert older(tmp_path) == names[::-1]
    found = [line for name in (*names, "history.jsonl") for line in lines(tmp_path, name)]
    assert broken_links(found, json.loads(found[0])["prev"]) == []
    assert [json.loads(line)["turn_id"] for line in found] == [
        f"t{number}" for number in range(30 - len(found), 30)
    ]


@pytest.mark.requirement("history:rotation")
def test_a_setting_that_was_lowered_deletes_the_oldest_files(tmp_path: Path) -> None:
    for number in range(20):
        append(History(tmp_path, 500, 6), number)
    assert len(older(tmp_path)) == 6
    for number in range(20, 24):
        append(History(tmp_path, 500, 2), number)
    assert older(tmp_path) == ["history.jsonl.1", "history.jsonl.2"]


@pytest.mark.requirement("history:rotation")
@pytest.mark.parametrize("renames", range(5))
def test_a_crash_in_the_middle_of_a_rotation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    history = History(tmp_path, 500, 4)
    number = 0
    while len(older_or_none := list((tmp_path / "analyst").glob("history.jsonl.?"))) < 3:
        append(history, number)
        number += 1
    assert len(older_or_none) == 3
    file = tmp_path / "analyst" / "history.jsonl"
    while file.stat().st_size < 500:
        append(history, number)
        number += 1

    replace, done = Path.replace, 0

    def crash(self: Path, target: Path) -> Path:
        nonlocal done
        if done == renames:
            raise InterruptedError
        done += 1
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        try:
            append(history, number)
        except InterruptedError:
            assert renames < 4  # of .3, .2, .1 and the file itself
        else:
            number += 1

    append(History(tmp_path, 500, 4), number)
    number += 1
    names = [f"history.jsonl.{each}" for each in range(4, 0, -1)]
    found = [
        line for name in names if name in older(tmp_path) for line in lines(tmp_path, name)
    ] + lines(tmp_path)
    assert broken_links(found, json.loads(found[0])["prev"]) == []
    assert json.loads(found[-1])["turn_id"] == f"t{number - 1}"
    assert [json.loads(line)["turn_id"] for line in found] == [f"t{each}" for each in range(number)]


@pytest.mark.requirement("history:rotation")
def test_a_crash_between_rotation_and_the_next_line_breaks_no_chain(tmp_path: Path) -> None:
    append(History(tmp_path, 10**9), 0)
    (tmp_path / "analyst" / "history.jsonl").replace(tmp_path / "analyst" / "history.jsonl.1")
    append(History(tmp_path, 10**9), 1)
    assert broken_links(lines(tmp_path, "history.jsonl.1") + lines(tmp_path)) == []


@pytest.mark.requirement("history:rotation", "history:torn-line")
def test_a_torn_line_that_is_rotated_away_leaves_no_empty_line(tmp_path: Path) -> None:
    append(History(tmp_path, 10**9), 0)
    file = tmp_path / "analyst" / "history.jsonl"
    file.write_bytes(file.read_bytes() + b'{"vers')
    append(History(tmp_path, 10), 1)
    (first, torn), second = lines(tmp_path, "history.jsonl.1"), lines(tmp_path)
    assert torn == b'{"vers'
    assert broken_links([first, *second]) == []


@pytest.mark.requirement("history:chain", "contract:redaction")
def test_a_secret_that_is_in_a_hash_by_chance_breaks_no_chain(tmp_path: Path) -> None:
    append(History(tmp_path, 10**9), 0)
    digits = json.loads(lines(tmp_path)[0])["hash"][:6]
    History(tmp_path, 10**9).append("analyst", {"version": 1, "said": digits}, Redactor([digits]))
    assert broken_links(lines(tmp_path)) == []
    assert json.loads(lines(tmp_path)[1])["said"] == "••••••"


@pytest.mark.requirement("log:any-text")
def test_text_that_is_no_unicode_breaks_neither_the_line_nor_the_chain(tmp_path: Path) -> None:
    history = History(tmp_path, 1 << 20)
    append(
        history,
        1,
        path="/v1/\udcff",
        request=body_for_history(b'{"n": 1.0}', NONE),
        trace=[{"\ud800": ["é\udcff"]}],
    )
    append(history, 2)
    first, _ = found = lines(tmp_path)
    assert broken_links(found) == []
    read = msgspec.json.decode(first)
    assert (read["path"], read["request"], read["trace"]) == (
        "/v1/\\udcff",
        {"n": 1.0},
        [{"\\ud800": ["é\\udcff"]}],
    )


def test_files_are_private(tmp_path: Path) -> None:
    append(History(tmp_path / "new", 10**9), 0)
    assert oct((tmp_path / "new" / "analyst").stat().st_mode)[-3:] == "700"
    assert oct((tmp_path / "new" / "analyst" / "history.jsonl").stat().st_mode)[-3:] == "600"


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("secret", ["sk-s3cr3t", "12345678", 'a"b/c\\d', "pässwörd"])
def test_a_line_without_its_secrets_is_still_a_line(tmp_path: Path, secret: str) -> None:
    body = json.dumps({"text": f"<{secret}>", "n": 12345678, secret: 1}).encode()
    entry = {"request": body_for_history(body, NONE), "error": f"x {secret}"}
    History(tmp_path, 10**9).append("analyst", entry, Redactor([secret]))
    (line,) = lines(tmp_path)
    values = json.loads(line)
    assert secret not in json.dumps(values, ensure_ascii=False)
    assert json.dumps(secret)[1:-1] not in line.decode()
    assert broken_links([line]) == []


@pytest.mark.requirement("history:bodies")
@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: json.dumps(text).encode()))
def test_any_body_can_be_recorded_in_one_line(body: bytes) -> None:
    line = msgspec.json.encode({"body": body_for_history(body, NONE)})
    assert b"\n" not in line
    msgspec.json.decode(line)


@pytest.mark.requirement("history:bodies")
def test_a_body_keeps_its_exact_json_unless_it_is_too_long() -> None:
    body = b'{\r\n "id": 9007199254740993,\n "x": 1.0}'
    assert (
        msgspec.json.encode(body_for_history(body, NONE))
        == b'{   "id": 9007199254740993,  "x": 1.0}'
    )
    assert body_for_history(b"x" * MAX_BODY_BYTES, NONE) == "x" * MAX_BODY_BYTES
    cut = body_for_history(b"x" * (MAX_BODY_BYTES + 1), NONE)
    assert (cut["truncated"], cut["original_bytes"], len(cut["head"])) == (
        True,
        MAX_BODY_BYTES + 1,
        MAX_BODY_BYTES,
    )
    assert body_for_history(b"[" * 100_000, NONE) == "[" * 100_000


@pytest.mark.requirement("history:free-turns-short")
async def test_a_turn_that_the_provider_refused_keeps_the_beginning_of_its_bodies_only(
    desk: Desk,
) -> None:
    desk.model_refuses(400, "bad", "no " * 100_000)
    await desk.asks("Hi " * 80_000)
    (line,) = lines(desk.home / "history")
    entry = json.loads(line)
    bodies = entry["request_original"], entry["request_effective"]
    assert [(body["truncated"], len(body["head"])) for body in bodies] == [
        (True, MAX_FREE_BODY_BYTES)
    ] * 2
    assert entry["request_original"]["original_bytes"] > 240_000
    assert len(line) < 20_000


@pytest.mark.requirement("history:bodies")
async def test_a_turn_that_was_answered_keeps_its_bodies(desk: Desk) -> None:
    desk.model_says("Hello.")
    await desk.asks("Hi " * 80_000)
    assert b"Hi " * 80_000 in lines(desk.home / "history")[0]


@pytest.mark.requirement("history:bodies")
def test_long_arguments_are_cut_with_a_mark() -> None:
    result = tool_result.timeout(called(granted(), json.dumps({"note": "x" * MAX_BODY_BYTES})), 1)
    cut = call_record(result, NONE)["arguments"]
    assert (cut["truncated"], len(cut["head"])) == (True, MAX_BODY_BYTES)
    unread = called(granted())
    unread = msgspec.structs.replace(
        unread, arguments=UnreadableArguments("is no object", "[" * (MAX_BODY_BYTES + 1))
    )
    assert (
        call_record(tool_result.invalid_arguments(unread, "why."), NONE)["arguments"]["truncated"]
        is True
    )


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("before", [0, 1, 9, 10])
def test_a_long_body_is_not_cut_through_a_secret(before: int) -> None:
    body = b"x" * (MAX_BODY_BYTES - before) + b"sk-s3cr3t0" + b"x" * 50
    assert "sk-" not in body_for_history(body, Redactor(["sk-s3cr3t0"]))["head"][-9:]


@pytest.mark.requirement("contract:published")
async def test_the_lines_of_real_turns_fit_the_published_schema(desk: Desk) -> None:
    desk.model_says(
        ("desk.balance", '{"n": 9007199254740993, "f": 1.50,\n "big": 1e400}'),
        ("desk.nope", '{"a":'),
    )
    desk.model_says(("desk.balance", {"n": 9007199254740993, "f": 1.5}), ("desk.trade", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    desk.model_fails("provider_unreachable")
    await desk.asks("Again")
    schema = Draft202012Validator(schemas()["history.schema.json"])
    assert [error.message for line in desk.history() for error in schema.iter_errors(line)] == []
    raw = lines(desk.home / "history", agent="analyst")
    assert b'"arguments":{"n":9007199254740993,"f":1.50,"big":1e400}' in raw[0]
    assert broken_links(raw) == []


@pytest.mark.requirement("log:history-hash")
async def test_the_event_that_ends_a_turn_names_its_line_of_history(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}), ("desk.nope", {}))
    desk.model_says("Done.")
    await desk.asks("Go")
    desk.model_fails("provider_unreachable")
    await desk.asks("Again")
    told, history = desk.told("response") + desk.told("error"), desk.history()
    assert [event["history_hash"] for event in told] == [line["hash"] for line in history]
    assert [event["latency_ms"] for event in told] == [line["latency_ms"] for line in history]
    assert [line.get("error") for line in history] == [None, "provider_unreachable"]
    calls = history[0]["tool_trace"][0]["tool_calls"]
    assert [(call["name"], call.get("effect"), call["ran"]) for call in calls] == [
        ("desk.balance", "read", True),
        ("desk__nope", None, False),
    ]
