"""What a request may cost, and what is charged where nobody knows what it did cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.metadata import Metadata
from claw_contract.prices import Price
from claw_mediate.agents.directory import Agent
from claw_mediate.core.cost import (
    FREE,
    Cost,
    ReceivedAnswer,
    RequestSize,
    count_event_tokens,
    count_tokens,
    estimate_answer,
    find_dearest_price,
    measure_request,
)
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.core.json_splice import RepeatedMemberError
from claw_mediate.core.stream_usage import UsageChunkFilter, ask_for_usage
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.turns.budgets import Admission, Budgets, PriceList
from claw_state.sqlite.connection import Database
from claw_state.sqlite.spending import SqliteSpending
from tests.mediate.made import limits

CHAT = "/v1/chat/completions"


@pytest.mark.requirement("budget:estimate")
@pytest.mark.parametrize(
    ("members", "tokens", "is_limited"),
    [
        ({}, 4096, False),
        ({"max_tokens": 100}, 100, True),
        ({"max_completion_tokens": 200, "max_tokens": 100}, 200, True),
        ({"max_output_tokens": 300}, 300, True),
        ({"generationConfig": {"maxOutputTokens": 50, "candidateCount": 2}}, 100, True),
        ({"max_tokens": 10**12}, 128_000, True),
        ({"max_tokens": 100, "n": 128}, 12_800, True),
        ({"max_tokens": 100, "n": 10**9}, 12_800, True),
        ({"max_tokens": 100, "n": 2, "best_of": 5}, 500, True),
        ({"max_tokens": 100, "prompt": ["a", "b", "c"]}, 300, True),
        ({"max_tokens": 100, "prompt": [1, 2, 3]}, 100, True),
        *(
            ({"max_tokens": odd, "n": odd}, 4096, False)
            for odd in (-1, 0, "9", 1.5, True, None, [9], {"a": 9})
        ),
    ],
)
def test_the_output_is_what_the_request_allows_within_bounds(
    members: dict[str, Any], tokens: int, is_limited: bool
) -> None:
    size = measure_request(json.dumps({"model": "m", **members}).encode(), CHAT)
    assert (size.output_tokens, size.is_limited) == (tokens, is_limited)


@pytest.mark.requirement("budget:estimate")
def test_the_input_is_counted_by_bytes_and_files_are_cheaper() -> None:
    assert measure_request(b"x" * 400 + b" ", "/v1/embeddings") == RequestSize(
        401 / 4, 0.0, is_limited=True
    )
    assert measure_request(b"", CHAT, declared_length=4000).input_tokens == 1000
    assert measure_request(b"some words, " * 10**6, CHAT).input_tokens == 10**6, (
        "no model reads more"
    )
    image = json.dumps(
        {
            "messages": [
                {
                    "content": [
                        {"image_url": {"url": "data:image/png;base64," + "iVBOR/+w" * 50_000}}
                    ]
                }
            ]
        }
    )
    assert count_tokens(image.encode()) == pytest.approx(400_000 / 32, rel=0.1)
    prose = json.dumps({"content": "The quick brown fox; it jumps over the lazy dog. " * 10_000})
    assert count_tokens(prose.encode()) == len(prose) / 4


@pytest.mark.requirement("budget:estimate")
@given(
    st.binary(max_size=300)
    | st.text(max_size=99).map(lambda text: json.dumps({"max_tokens": text, "n": [text]}).encode())
)
def test_any_bytes_have_a_size(body: bytes) -> None:
    size = measure_request(body, CHAT)
    assert 0 <= size.input_tokens <= 300
    assert size.output_tokens > 0
    assert count_event_tokens(body) >= 0


@pytest.mark.requirement("budget:estimate")
def test_a_model_has_the_dearest_price_that_it_may_turn_out_to_have() -> None:
    prices = {
        "openai/gpt": Price(input=1, output=2),
        "openrouter/gpt": Price(input=3, output=4),
        "anthropic/claude": Price(input=15, output=75),
    }
    found = [find_dearest_price(prices, model) for model in ("gpt-5", "openai/gpt-5", "unheard-of")]
    assert [price and price.output for price in found] == [4.0, 2.0, 75.0]
    assert find_dearest_price({}, "gpt-5") is None


@pytest.mark.requirement("budget:broken-off")
def test_what_was_received_is_charged_and_else_what_was_expected() -> None:
    price, size = Price(input=1, output=10), RequestSize(1000, 50_000, is_limited=True)

    def dollars(answer: ReceivedAnswer) -> float:
        return estimate_answer(answer, size, price) * 1_000_000

    cut = ReceivedAnswer(200, {}, tokens=70, is_cut_stream=True)
    assert dollars(cut) == 1000 + 700
    assert dollars(cut._replace(usage={"input_tokens": 30, "output_tokens": 1})) == 30 + 700
    assert dollars(cut._replace(usage={"input_tokens": -30})) == 1000 + 700
    assert dollars(cut._replace(tokens=0)) == 1000 + 500_000
    assert dollars(ReceivedAnswer(0, {})) == 1000 + 500_000
    assert dollars(ReceivedAnswer(200, {}, tokens=90_000)) == 1000 + 900_000, (
        "a document without usage, longer than expected"
    )


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", '"stream_options":{"include_usage":true}'),
        ('"stream_options" : null', '"stream_options" : {"include_usage":true}'),
        ('"stream_options":{ }', '"stream_options":{ "include_usage":true}'),
        (
            '"stream_options":{"include_usage" :false, "x":1.0}',
            '"stream_options":{"include_usage" :true, "x":1.0}',
        ),
        ('"stream_options":{"include_usage":true}', None),
        ('"stream_options":{"include_usage":"yes"}', None),
        ('"stream_options":[7]', None),
    ],
)
def test_only_the_option_is_edited(options: str, sent: str | None) -> None:
    comma = "," if options or sent else ""
    body = f'{{"model": "m" ,"id":12345678901234567890{"," if options else ""}{options}}}'
    expected = (
        None
        if sent is None
        else f'{{"model": "m" ,"id":12345678901234567890{comma}{sent}}}'.encode()
    )
    assert ask_for_usage(body.encode()) == expected


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options":{},"stream_options":{}}',
        b'{"stream_options":{"include_usage":0,"include_usage":1}}',
    ],
)
def test_an_option_that_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(RepeatedMemberError):
        ask_for_usage(body)


USED = '{"id":"c","choices":[],"usage":{"prompt_tokens":1}}'
KEPT = [
    'data: {"choices":[{"delta":{"content":"\\"usage\\" {}"}}],"usage":null}',
    ': a comment with "usage"',
    'data: {"choices":[],"usage":null}',
    'data: {"choices":[{"index":0}],"usage":{"prompt_tokens":1}}',
    'data: {"usage":{"prompt_tokens":1}}',
    'event: x\nid: 7\ndata: {"choices":7,"usage":{}}',
    'data: {"choices":[],\ndata: "usage"',
    "data: [DONE]",
]


@pytest.mark.requirement("budget:usage-asked-for")
@given(
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sets(st.integers(1, 700)),
    st.integers(0, len(KEPT)),
    st.booleans(),
)
def test_only_the_chunk_with_nothing_but_usage_leaves_a_stream_however_it_is_cut(
    end: str, cuts: set[int], place: int, has_name: bool
) -> None:
    used = f"event: usage\ndata: {USED}" if has_name else f"data:{USED}"

    def written(*events: str) -> bytes:
        return "".join(event.replace("\n", end) + end * 2 for event in events).encode()

    stream = written(*KEPT[:place], used, *KEPT[place:])
    chunks, out = UsageChunkFilter(), b""
    for start, stop in pairwise(
        [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    ):
        out += chunks.feed(stream[start:stop])
    assert out + chunks.end() == written(*KEPT)


@pytest.mark.requirement("budget:usage-asked-for")
def test_a_stream_without_ends_of_events_goes_on_and_takes_no_memory() -> None:
    chunks = UsageChunkFilter()
    sent = sum(len(chunks.feed(b'data: "usage" ' * 5000)) for _ in range(100))
    assert sent + len(chunks.end()) == 100 * 5000 * 14
    assert chunks.feed(f"data: {USED}\n\n".encode()) != b"", "from there on nothing is searched for"
    assert UsageChunkFilter().feed(b"data: 1\n\n") == b"data: 1\n\n", "an event is not held back"


@pytest.fixture
def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def budgets(tmp_path: Path, events: list[dict[str, Any]]) -> Iterator[Budgets]:
    log = EventLog(lambda line: events.append(json.loads(line)))
    database = Database("")
    yield Budgets(SqliteSpending(database), PriceList(tmp_path, log), log)
    database.close()


def limited(usd: float = 1.0, **metadata: Any) -> Agent:
    made = Metadata.model_validate(
        {
            "service": "a",
            "pod": "p",
            "token": "a:s",
            "budget": {"window": "1h", "limit_usd": usd},
            **metadata,
        }
    )
    return Agent("a", made, (), limits(), "d")


async def admitted(budgets: Budgets, agent: Agent, model: str = "m", **members: Any) -> Admission:
    body = json.dumps({"model": model, **members}).encode()
    found = await budgets.admit(agent, Request("POST", CHAT, [], body), RunnerRequest(body, model))
    assert isinstance(found, Admission)
    return found


def write_prices(folder: Path, **prices: tuple[float, float]) -> None:
    listed = {
        name: {"input": given, "output": written} for name, (given, written) in prices.items()
    }
    (folder / "prices.json").write_text(json.dumps(listed), encoding="utf-8")


@pytest.mark.requirement("budget:cost-unknown")
async def test_a_model_without_a_price_has_the_dearest_of_the_list_and_no_usage_is_never_free(
    tmp_path: Path, budgets: Budgets, events: list[dict[str, Any]]
) -> None:
    write_prices(tmp_path, cheap=(1, 1), dear=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent, "unheard-of", max_tokens=1000)
    cost = budgets.cost_of_answer("x", "unheard-of", ReceivedAnswer(200, {}), admission)
    assert cost.known is None
    assert cost.estimated == pytest.approx(0.02, rel=0.1)
    budgets.settle(agent, "unheard-of", cost, admission)
    assert [event["reason"] for event in events] == ["the answer has no usage"]


@pytest.mark.requirement("budget:cost-unknown")
async def test_without_any_price_the_average_of_reported_costs_is_charged_and_else_it_is_said(
    budgets: Budgets, events: list[dict[str, Any]]
) -> None:
    agent, silent = limited(9.0), ReceivedAnswer(200, {}, tokens=5, is_cut_stream=True)
    first = await admitted(budgets, agent)
    cost = budgets.cost_of_answer("x", "m", silent, first)
    assert cost == Cost(None)
    budgets.settle(agent, "m", cost, first)
    assert [event["reason"] for event in events] == ["the model has no price"]

    second = await admitted(budgets, agent)
    told = ReceivedAnswer(200, {"prompt_tokens": 1, "cost": 2.0}, is_usage_final=True)
    budgets.settle(agent, "m", budgets.cost_of_answer("x", "m", told, second), second)
    third = await admitted(budgets, agent)
    assert budgets.cost_of_answer("x", "m", silent, third) == Cost(None, 1.0), (
        "2 dollars for two requests"
    )
    budgets.settle(agent, "m", FREE, third)


@pytest.mark.requirement("budget:broken-off")
@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"prompt_tokens": -1, "completion_tokens": -1},
        {"prompt_tokens": "9", "completion_tokens": "9"},
        {"prompt_tokens": 1e300, "completion_tokens": 9},
        {"prompt_tokens": True},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"cost": -5, "prompt_tokens": None},
    ],
)
async def test_an_odd_usage_is_none(
    tmp_path: Path, budgets: Budgets, usage: dict[str, Any]
) -> None:
    write_prices(tmp_path, m=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent, max_tokens=1000)
    cost = budgets.cost_of_answer(
        "x", "m", ReceivedAnswer(200, usage, is_usage_final=True), admission
    )
    assert cost.known is None
    assert cost.estimated is not None
    assert cost.estimated > 0
    budgets.settle(agent, "m", FREE, admission)


@pytest.mark.requirement("budget:broken-off")
async def test_a_refusal_is_free_and_a_request_that_was_never_sent_too(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(10, 20))
    agent = limited()
    admission = await admitted(budgets, agent)
    for status in (None, 400, 401, 429, 500, 503):
        assert budgets.cost_of_answer("x", "m", ReceivedAnswer(status, {}), admission) == FREE
    assert budgets.cost_of_answer("x", "m", ReceivedAnswer(0, {}), admission).charge > 0
    with budgets.held(agent, "m", admission):
        pass
    assert isinstance(await admitted(budgets, agent), Admission), "and nothing stays reserved"


@pytest.mark.requirement("budget:reserved")
async def test_a_model_that_costs_nothing_needs_no_room(tmp_path: Path, budgets: Budgets) -> None:
    write_prices(tmp_path, local=(0, 0))
    found = [await admitted(budgets, limited(), "local-7b") for _ in range(5)]
    assert [each.reservation for each in found] == [None] * 5


@pytest.mark.requirement("budget:reserved")
async def test_a_clamped_request_is_expected_to_cost_what_the_policys_first_model_costs(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, big=(10, 20), small=(1, 2))
    allowed = (
        {"slot": "fallback", "ref": "openai/small"},
        {"slot": "primary", "ref": "openai/big"},
    )
    agent = limited(100.0, model_policy={"mode": "clamp", "allowed": allowed})
    expected = []
    for model in ("small", "openai/small", "forbidden"):
        admission = await admitted(budgets, agent, model, max_tokens=100_000)
        assert admission.reservation is not None
        expected.append(round(admission.reservation.estimate, 1))
        budgets.settle(agent, model, Cost(0.1), admission)
    assert expected == [0.2, 0.2, 2.0]


@pytest.mark.requirement("budget:reserved")
async def test_a_request_that_only_another_keeps_out_waits_a_moment(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(1, 1))
    agent = limited()
    first = await admitted(budgets, agent)
    second = asyncio.ensure_future(admitted(budgets, agent))
    await asyncio.sleep(0)
    assert not second.done()
    budgets.settle(agent, "m", Cost(0.01), first)
    budgets.settle(agent, "m", FREE, await second)


@pytest.mark.requirement("budget:reserved")
async def test_a_turn_reserves_what_it_has_cost_and_its_next_call(
    tmp_path: Path, budgets: Budgets
) -> None:
    write_prices(tmp_path, m=(0, 10))
    agent = limited(5.0)
    turn = await admitted(budgets, agent, max_tokens=100_000)
    assert turn.reservation is not None
    budgets.note_call("x", "m", b"{}", {"prompt_tokens": 1, "completion_tokens": 200_000}, turn)
    await budgets.grow(turn)
    assert turn.reservation.estimate == pytest.approx(3.0)
    budgets.note_call("x", "m", b"{}", None, turn)
    cost = budgets.cost_of_turn("x", "m", {"prompt_tokens": 1, "completion_tokens": 200_000}, turn)
    assert cost == Cost(pytest.approx(2.0), pytest.approx(1.0))
    budgets.settle(agent, "m", cost, turn)
    refusal = await budgets.admit(
        agent, Request("POST", CHAT, [], b""), RunnerRequest(b'{"max_tokens":128000,"n":2}', "m")
    )
    assert isinstance(refusal, RunnerResponse)
    assert refusal.status == 429
