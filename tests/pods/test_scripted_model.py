"""The scripted model over the real SDKs: it decides by the tools that it is
offered, and is labelled as scripted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.pods.processes import serving

KEY = "the-model-key"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model") / "requests.jsonl"


@pytest.fixture(scope="module")
def url(record: Path) -> Iterator[str]:
    with serving(
        "scripted_model", {"SCRIPTED_MODEL_KEY": KEY, "SCRIPTED_MODEL_RECORD": str(record)}
    ) as (_, address):
        yield address


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as sdk:
        yield sdk


def tool(name: str, description: str, **properties: str) -> Any:
    schema = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": schema, "required": list(schema)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


CONTEXT = tool(
    "trading-api__get_market_context",
    "Retrieve agent-scoped market context: positions, balance, buying power",
)
QUOTE = tool("trading-api__get_quote", "The price of one symbol", symbol="string")
TRADE = tool(
    "trading-api__execute_trade",
    "Execute a market order",
    symbol="string",
    side="string",
    quantity="number",
)
ORDERS = tool("trading-api__list_orders", "The agent's own orders, newest first, buy or sell")
ADD = tool("journal__add_entry", "Add an entry to the journal", entry="string")
FIND = tool("journal__find_entries", "Find the journal's latest entries", word="string")
NOTE = tool("write_note", "Write a note", text="string")


def ask(client: openai.OpenAI, messages: list[Any], tools: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(
        model="scripted-model", messages=messages, tools=tools or openai.omit, **more
    )


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
def test_it_needs_its_key_and_is_labelled_as_scripted(client: openai.OpenAI, url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(stranger, [user("Hi")], [])
        assert refused.value.response.headers["x-scripted-model"] == "1"
    raw = client.chat.completions.with_raw_response.create(
        model="x", messages=[{"role": "user", "content": "Hi"}]
    )
    assert raw.headers["x-scripted-model"] == "1"
    assert raw.parse().model == "scripted-model"
    assert "scripted model" in str(raw.parse().choices[0].message.content)


@pytest.mark.requirement("pods:scripted-model-decides")
@pytest.mark.parametrize(
    ("text", "tools", "calls"),
    [
        ("What is my balance?", [NOTE, CONTEXT, QUOTE], [("trading-api__get_market_context", {})]),
        (
            "What is the price of AAPL?",
            [CONTEXT, QUOTE],
            [("trading-api__get_quote", {"symbol": "AAPL"})],
        ),
        ("Buy 10 NVDA.", [QUOTE, TRADE], [("trading-api__get_quote", {"symbol": "NVDA"})]),
        (
            "Add to the journal: up 2%.",
            [QUOTE, ADD, FIND],
            [("journal__add_entry", {"entry": "up 2%."})],
        ),
        (
            "Read the journal about SPY.",
            [QUOTE, FIND],
            [("journal__find_entries", {"word": "SPY"})],
        ),
        ("Read the journal about SPY.", [QUOTE, NOTE], []),
        ("Write a note.", [QUOTE, TRADE, NOTE], [("write_note", {"text": "Write a note."})]),
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
    said = ask(
        client,
        [user("My balance?"), *answered("trading-api__get_market_context", result)],
        [CONTEXT],
    )
    text = "Your balance is $1,234.50, your buying power $99.00, your positions: 7 TSLA."
    assert said.choices[0].message.content == text


@pytest.mark.requirement("pods:scripted-model-decides")
def test_it_trades_after_the_quote(client: openai.OpenAI) -> None:
    quote = answered(
        "trading-api__get_quote", {"ok": True, "data": {"symbol": "MSFT", "price": 431.17}}
    )
    trade = ask(client, [user("Sell 3 MSFT"), *quote], [QUOTE, TRADE])
    assert called(trade) == [
        ("trading-api__execute_trade", {"symbol": "MSFT", "side": "sell", "quantity": 3})
    ]


@pytest.mark.requirement("pods:scripted-model-decides")
def test_a_failed_call_is_told(client: openai.OpenAI) -> None:
    failed = answered(
        "trading-api__get_quote",
        {"ok": False, "error": {"code": "http_404", "message": "no such symbol"}},
    )
    said = ask(client, [user("Quote XYZ"), *failed], [QUOTE])
    assert said.choices[0].message.content == "get_quote failed: no such symbol."


@pytest.mark.requirement("pods:scripted-model-decides")
def test_at_once_puts_all_calls_into_one_response(client: openai.OpenAI) -> None:
    completion = ask(
        client, [user("Get a quote for MSFT and write a note, at once.")], [QUOTE, NOTE]
    )
    assert [name for name, _ in called(completion)] == ["trading-api__get_quote", "write_note"]


@pytest.mark.requirement("pods:scripted-model-wire")
def test_it_decides_the_same_on_the_anthropic_protocol(url: str) -> None:
    tools: Any = [
        {"name": each["function"]["name"], "input_schema": each["function"]["parameters"]}
        for each in (QUOTE, NOTE)
    ]
    prompt: Any = user("Quote NVDA")
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        first = client.messages.create(model="x", max_tokens=100, messages=[prompt], tools=tools)
        [call] = first.content
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("trading-api__get_quote", {"symbol": "NVDA"})
        data = json.dumps({"ok": True, "data": {"symbol": "NVDA", "price": 135.25}})
        result: Any = {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": data}],
        }
        history: Any = [prompt, {"role": "assistant", "content": first.content}, result]
        last = client.messages.create(model="x", max_tokens=100, messages=history, tools=tools)
    assert (first.stop_reason, last.stop_reason) == ("tool_use", "end_turn")
    assert [block.text for block in last.content if block.type == "text"] == [
        "NVDA is quoted at $135.25."
    ]


@pytest.mark.requirement("pods:scripted-model-wire")
def test_it_records_each_request_whole(client: openai.OpenAI, record: Path) -> None:
    ask(client, [user("What is my balance?")], [CONTEXT, NOTE])
    last = json.loads(record.read_text(encoding="utf-8").splitlines()[-1])
    assert last["headers"]["authorization"] == f"Bearer {KEY}"
    assert json.loads(last["body"])["messages"] == [user("What is my balance?")]


@pytest.mark.requirement("pods:scripted-model-wire")
def test_it_decides_the_same_on_the_responses_protocol_and_repeats_the_tools(
    client: openai.OpenAI,
) -> None:
    tools: Any = [
        {"type": "function", "strict": False, **each["function"]} for each in (QUOTE, NOTE)
    ]
    history: list[Any] = [user("Quote NVDA")]
    first = client.responses.create(model="x", input=history, tools=tools, store=False)
    [call] = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("trading-api__get_quote", {"symbol": "NVDA"})
    assert [tool.name for tool in first.tools if tool.type == "function"] == [
        "trading-api__get_quote",
        "write_note",
    ]
    data = json.dumps({"ok": True, "data": {"symbol": "NVDA", "price": 135.25}})
    history += [call, {"type": "function_call_output", "call_id": call.call_id, "output": data}]
    last = client.responses.create(model="x", input=history, tools=tools, store=False)
    assert last.output_text == "NVDA is quoted at $135.25."


TALK = "Quote AAPL, and say what you do."
PREAMBLE = "Before I answer, I look at the quotes of today."


@pytest.mark.requirement("pods:scripted-model-streams")
def test_it_streams_a_preamble_and_a_call_of_chat_completions(client: openai.OpenAI) -> None:
    messages: Any = [user(TALK)]
    with client.chat.completions.stream(
        model="x", messages=messages, tools=[QUOTE], stream_options={"include_usage": True}
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        completion = stream.get_final_completion()
    said = [*filter(None, deltas)]  # As the API's, its first chunk has an empty text
    assert said == [word + " " for word in PREAMBLE.split()[:-1]] + ["today."]
    assert called(completion) == [("trading-api__get_quote", {"symbol": "AAPL"})]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage is not None


@pytest.mark.requirement("pods:scripted-model-streams")
def test_it_streams_a_preamble_and_a_call_of_anthropic_messages(url: str) -> None:
    tools: Any = [
        {"name": QUOTE["function"]["name"], "input_schema": QUOTE["function"]["parameters"]}
    ]
    prompt: Any = user(TALK)
    with (
        anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client,
        client.messages.stream(model="x", max_tokens=100, messages=[prompt], tools=tools) as stream,
    ):
        said = [event.text for event in stream if event.type == "text"]
        text, call = stream.get_final_message().content
    assert said == [word + " " for word in PREAMBLE.split()[:-1]] + ["today."]
    assert text.type == "text"
    assert text.text == PREAMBLE
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("trading-api__get_quote", {"symbol": "AAPL"})


@pytest.mark.requirement("pods:scripted-model-streams")
def test_it_streams_a_preamble_and_a_call_of_responses(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "strict": False, **QUOTE["function"]}]
    messages: Any = [user(TALK)]
    with client.responses.stream(model="x", input=messages, tools=tools, store=False) as stream:
        said = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert said == [word + " " for word in PREAMBLE.split()[:-1]] + ["today."]
    assert response.output_text == PREAMBLE
    call = response.output[-1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("trading-api__get_quote", '{"symbol": "AAPL"}')
