"""The expected cost of a request, and the charge where nobody knows the real one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_contract.prices import Price
from claw_mediate.core.cost import (
    ReceivedAnswer,
    RequestSize,
    count_event_tokens,
    count_tokens,
    estimate_answer,
    find_dearest_price,
    measure_request,
)

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
