"""The scripted model over the real openai SDK: it decides from what it is offered, and says what it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.pods.processes import serving

KEY = "the-model-key"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("scripted_model.py", {"SCRIPTED_MODEL_KEY": KEY}) as (_, served):
        yield served


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as made:
        yield made


def tool(name: str, description: str, **properties: str) -> Any:
    schema = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(schema)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


CONTEXT = tool(
    "trading-api__get_market_context", "Retrieve agent-scoped market context: positions, balance, buying power"
)
QUOTE = tool("trading-api__get_quote", "The price of one symbol", symbol="string")
TRADE = tool("trading-api__execute_trade", "Execute a market order", symbol="string", side="string", quantity="number")
ORDERS = tool("trading-api__list_orders", "The agent's own orders, newest first, buy or sell")
NOTE = tool("write_note", "Write a note", text="string")


def ask(client: openai.OpenAI, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(model="scripted-model", messages=messages, tools=tools or openai.omit, **more)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def called(completion: Any) -> list[tuple[str, Any]]:
    calls = completion.choices[0].message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def answered(name: str, result: object) -> list[Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": json.dumps(result)},
    ]


@pytest.mark.requirement("pods:scripted-model-wire")
def test_it_wants_its_key_and_says_that_it_is_scripted(client: openai.OpenAI, url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            ask(stranger, [user("Hi")], [])
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()
    assert [model.id for model in client.models.list()] == ["scripted-model"]
    raw = client.chat.completions.with_raw_response.create(model="x", messages=[{"role": "user", "content": "Hi"}])
    assert raw.headers["x-scripted-model"] == "1"
    assert "scripted model" in str(raw.parse().choices[0].message.content)


@pytest.mark.requirement("pods:scripted-model-decides")
@pytest.mark.parametrize(
    ("text", "tools", "calls"),
    [
        ("What is my balance?", [NOTE, CONTEXT, QUOTE], [("trading-api__get_market_context", {})]),
        ("What is the price of Apple?", [CONTEXT, QUOTE], [("trading-api__get_quote", {"symbol": "AAPL"})]),
        ("Buy 10 NVDA.", [QUOTE, TRADE], [("trading-api__get_quote", {"symbol": "NVDA"})]),
        ("Sell 3 MSFT", [TRADE], [("trading-api__execute_trade", {"symbol": "MSFT", "side": "sell", "quantity": 3})]),
        ("Write a note: buy milk", [QUOTE, TRADE, NOTE], [("write_note", {"text": "buy milk"})]),
        ("Buy 10 NVDA.", [CONTEXT, QUOTE, ORDERS, NOTE], []),
        ("What is my balance?", [], []),
    ],
)
def test_it_calls_what_fits_among_what_it_is_offered(
    client: openai.OpenAI, text: str, tools: list[Any], calls: list[tuple[str, Any]]
) -> None:
    completion = ask(client, [user(text)], tools)
    assert called(completion) == calls
    assert ("no tool for that" in (completion.choices[0].message.content or "")) == (calls == [])


@pytest.mark.requirement("pods:scripted-model-decides")
def test_its_numbers_are_those_of_the_results(client: openai.OpenAI) -> None:
    data = {"balance": 1234.5, "buying_power": 99, "positions": [{"symbol": "TSLA", "quantity": 7}]}
    result = {"ok": True, "status_code": 200, "data": data}
    said = ask(client, [user("My balance?"), *answered("trading-api__get_market_context", result)], [CONTEXT])
    text = "Your balance is $1,234.50, your buying power $99.00, your positions: 7 TSLA."
    assert said.choices[0].message.content == text


@pytest.mark.requirement("pods:scripted-model-decides")
def test_a_failed_call_is_told_and_a_call_that_was_not_run_is_made_again(client: openai.OpenAI) -> None:
    failed = {
        "ok": False,
        "error": {"code": "http_409", "message": "no", "details": {"error": {"message": "too dear"}}},
    }
    said = ask(client, [user("Buy 10 NVDA"), *answered("trading-api__execute_trade", failed)], [QUOTE, TRADE])
    assert said.choices[0].message.content == "Execute trade failed: too dear (http_409)."
    not_run = {"ok": False, "error": {"code": "managed_tools_first", "message": "again"}}
    again = ask(client, [user("Quote NVDA"), *answered("trading-api__get_quote", not_run)], [QUOTE])
    assert called(again) == [("trading-api__get_quote", {"symbol": "NVDA"})]


@pytest.mark.requirement("pods:scripted-model-decides")
def test_the_choice_of_tools_is_kept(client: openai.OpenAI) -> None:
    assert called(ask(client, [user("Quote NVDA")], [QUOTE], tool_choice="none")) == []
    forced = {"type": "function", "function": {"name": "write_note"}}
    assert [name for name, _ in called(ask(client, [user("Quote NVDA")], [QUOTE, NOTE], tool_choice=forced))] == [
        "write_note"
    ]
    assert [name for name, _ in called(ask(client, [user("Hi")], [QUOTE], tool_choice="required"))] == [
        "trading-api__get_quote"
    ]


@pytest.mark.requirement("pods:scripted-model-wire")
def test_a_stream_says_the_same_as_a_whole_answer(client: openai.OpenAI) -> None:
    messages = [user("Get a quote for MSFT and write a note, at once.")]
    whole = ask(client, messages, [QUOTE, NOTE])
    with client.chat.completions.stream(
        model="scripted-model", messages=messages, tools=[QUOTE, NOTE], stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion()
    assert called(streamed) == called(whole)
    assert [name for name, _ in called(whole)] == ["trading-api__get_quote", "write_note"]
    assert streamed.usage == whole.usage
    said = ask(client, [user("Hi")], [])
    chunks = list(ask(client, [user("Hi")], [], stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == said.choices[0].message.content


@pytest.mark.requirement("pods:scripted-model-wire")
def test_it_tells_what_it_was_sent(client: openai.OpenAI, url: str) -> None:
    ask(client, [user("What is my balance?")], [CONTEXT, NOTE])
    assert httpx2.get(f"{url}/_seen", trust_env=False).status_code == 401
    seen = httpx2.get(f"{url}/_seen", headers={"authorization": f"Bearer {KEY}"}, trust_env=False).json()[-1]
    assert seen["tools"] == ["trading-api__get_market_context", "write_note"]
    assert (seen["messages"], seen["roles"]) == (1, ["user"])
    assert seen["authorization_sha256"] == hashlib.sha256(KEY.encode()).hexdigest()
