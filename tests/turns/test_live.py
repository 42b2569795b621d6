"""Live turns: what a model says is shown while it comes, over all replies of a turn
(docs/spec/live.md). Numbers are those of its edge cases.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from claw_mediate.core.http import Request, RunnerResponse
from claw_state.journal import StoredResponse
from tests.turns.desk import TERMINAL_TOOL, WIRES, Desk, opened, tool
from tests.turns.retrying import until_called
from tests.turns.scripted import ExactName, Thought
from tests.wires import ReplyContent, anthropic, responses

NAMES = ("openai", "anthropic", "responses")


@pytest.fixture(params=NAMES)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, whose agent's streams are live."""
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        yield desk


@pytest.fixture
async def claude(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, anthropic, stream=True, live=True)) as desk:
        yield desk


@pytest.fixture
async def codex(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, responses, stream=True, live=True)) as desk:
        yield desk


def joined(desk: Desk, *texts: str) -> str:
    """Return texts of several replies as a protocol joins them."""
    return ("\n\n" if desk.wire is WIRES["openai"] else "").join(texts)


def transcript(desk: Desk, index: int = -1) -> list[bytes]:
    """Return the messages of a request to the provider, in their own bytes."""
    body = msgspec.json.decode(desk.model.raw[index], type=dict[str, msgspec.Raw])
    return [*map(bytes, msgspec.json.decode(body[desk.wire.TRANSCRIPT], type=list[msgspec.Raw]))]


def assert_hidden(desk: Desk) -> None:
    """Check that nothing of a managed call is in what the runner got."""
    events = re.sub(rb"(?m)^: .*$", b"", desk.raw)
    for name in (b"desk__balance", b"desk__trade", b"desk.balance", b"desk.trade"):
        assert name not in events


@pytest.mark.requirement("live:shown-words")
async def test_words_before_two_managed_calls_stay_in_the_answer(live: Desk) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))  # 3, 21, 22
    live.model_says("And buy.", ("desk.trade", {}))
    live.model_says("Bought.")
    await live.asks("Buy")
    assert live.shown == ReplyContent(joined(live, "Let me look.", "And buy.", "Bought."))
    assert_hidden(live)
    entry = live.history()[-1]
    glue = len(joined(live, "", ""))  # Counted with the text behind it
    assert [past["shown"] for past in entry["tool_trace"]] == [12, glue + 8]
    assert live.wire.said(json.dumps(entry["response"]["json"]).encode()) == live.shown


@pytest.mark.requirement("live:shown-words")
@pytest.mark.parametrize("thinks", [False, True])
async def test_the_next_turn_has_the_transcript_as_the_provider_saw_it(
    live: Desk, *, thinks: bool
) -> None:
    thoughts = [[Thought(words)] if thinks else [] for words in ("Where?", "There.", "So.")]
    live.model_says(*thoughts[0], "Let me look.", ("desk.balance", {}))  # 12, 21
    live.model_says(*thoughts[1], "And buy.", ("desk.trade", {}))
    live.model_says(*thoughts[2], "Bought.")
    await live.asks("Buy")
    assert live.shown.thought == ("Where?There.So." if thinks else "")

    before = transcript(live)
    for words in ("Thanks", "Bye"):
        live.model_says("Well.")
        await live.asks(words)
        assert transcript(live)[: len(before)] == before


@pytest.mark.requirement("live:continuity-own")
async def test_a_conversation_like_another_one_has_its_own_rounds_alone(live: Desk) -> None:
    for name in ("one", "two"):
        live.messages = []
        live.model_says("Hello.")
        await live.asks("Hi")
        live.model_says("Let me look.", ("desk.balance", {}))
        live.model_says("Fifty.")
        await live.asks(f"What has {name}?")
    live.model_says("Well.")
    await live.asks("Thanks")
    assert [call for call, _ in live.wire.answers(live.model.messages())] == ["call_2"]


@pytest.mark.requirement("live:shown-words")
async def test_a_managed_call_alone_shows_nothing(live: Desk) -> None:
    live.model_says(("desk.balance", {}))  # 2
    live.model_says("Fifty.")
    await live.asks("How much?")
    assert live.shown == ReplyContent("Fifty.")
    assert live.history()[-1]["tool_trace"][0].get("shown", 0) == 0
    assert_hidden(live)


@pytest.mark.requirement("live:shown-words")
async def test_native_calls_behind_words_come_whole(live: Desk) -> None:
    live.model_says("Listing.", ("shell", {"cmd": "ls"}), ("shell", {"cmd": "pwd"}))  # 4
    await live.asks("List", native=["shell"])
    assert live.shown.text == "Listing."
    assert [json.loads(call.arguments) for call in live.shown.calls] == [
        {"cmd": "ls"},
        {"cmd": "pwd"},
    ]


@pytest.mark.requirement("live:shown-words")
@pytest.mark.parametrize(
    ("calls", "ran"),
    [
        ([("shell", {}), ("desk.balance", {})], []),  # 5
        ([("desk.balance", {}), ("shell", {})], ["desk.balance"]),  # 6
        ([("desk.typo", {})], []),  # 7
        ([(ExactName("no such tool"), {}), ("shell", {})], []),
    ],
)
async def test_a_reply_whose_calls_are_not_handed_over_has_shown_its_words(
    live: Desk, calls: list[Any], ran: list[str]
) -> None:
    live.model_says("Both at once.", *calls)
    live.model_says("One by one.")
    await live.asks("Go", native=["shell"])
    assert live.shown == ReplyContent(joined(live, "Both at once.", "One by one."))
    assert live.services.calls == ran
    assert_hidden(live)


@pytest.mark.requirement("live:shown-words")
async def test_a_call_that_ran_out_of_tokens_while_it_was_held_never_runs(live: Desk) -> None:
    live.model_says("Buying.", ("desk.trade", '{"n": 1'), cut=True)  # 27
    live.model_says("Sorry.")
    await live.asks("Buy")
    assert live.shown == ReplyContent(joined(live, "Buying.", "Sorry."))
    assert live.services.calls == []


@pytest.mark.requirement("live:shown-words")
async def test_words_that_a_model_repeats_are_shown_each_time(live: Desk) -> None:
    for _ in range(4):
        live.model_says("Let me look.", ("desk.balance", {}))  # 37
    live.model_says("Let me stop.")
    await live.asks("Go")
    assert live.shown.text == joined(live, *["Let me look."] * 4, "Let me stop.")
    assert live.services.calls == ["desk.balance"]
    # Three rounds of nothing but repeats: the last model call has no tools, or may call none.
    last = live.model.bodies[-1]
    assert not live.wire.tools(last) or live.wire.chosen(last)[0] == "none"


@pytest.mark.requirement("live:terminal")
async def test_a_turn_that_a_tool_ended_says_done_only_if_nothing_was_shown(live: Desk) -> None:
    live.grant(tool("trade", write=True, **TERMINAL_TOOL), tool("balance"))
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says(("desk.trade", {}))
    await live.asks("Buy")
    assert live.shown == ReplyContent("Let me look.")
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert live.wire.called(live.model.bodies[-1]) == ["desk__balance", "desk__trade"]

    live.model_says("Buying.", ("desk.trade", {}))
    await live.asks("Buy")
    assert live.shown == ReplyContent("Buying.")

    live.model_says(("desk.trade", {}))
    await live.asks("Buy again")
    assert live.shown == ReplyContent("Done.")


@pytest.mark.requirement("live:hidden-preamble")
async def test_without_preambles_the_answer_is_that_of_a_buffered_turn(live: Desk) -> None:
    live.grant(tool("balance"), preamble="hide")
    live.model_says(Thought("Hm."), "Let me look.", ("desk.balance", {}))
    live.model_says("Fifty.")
    live.shows_preambles = False
    await live.asks("How much?")
    assert live.wire.said(live.body) == ReplyContent("Fifty.")
    assert b"look" not in live.raw


@pytest.mark.requirement("live:retry")
async def test_a_retry_of_a_done_turn_has_the_same_answer(live: Desk) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))  # 41
    live.model_says("Fifty.")
    await live.asks("How much?")
    first = live.shown
    live.messages, live.headers = live.messages[:1], {"x-stainless-retry-count": "1"}
    await live.turn()
    assert live.shown == first
    assert live.services.calls == ["desk.balance"]


@pytest.mark.requirement("live:catalog")
async def test_a_turn_keeps_the_tools_that_it_began_with(live: Desk) -> None:
    gate = live.services.gates["desk.balance"] = asyncio.Event()
    live.model_says("Let me look.", ("desk.balance", {}))  # 36
    live.model_says("And buy.", ("desk.trade", {}))
    live.model_says("Bought.")
    turn = asyncio.create_task(live.asks("Buy"))
    await until_called(live, "desk.balance")
    live.grant(tool("balance"))
    gate.set()
    await turn
    assert live.services.calls == ["desk.balance", "desk.trade"]
    assert live.shown.text == joined(live, "Let me look.", "And buy.", "Bought.")


@pytest.mark.requirement("live:empty")
async def test_an_empty_reply_behind_words_adds_nothing(live: Desk) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("")  # 28
    await live.asks("Go")
    assert live.shown == ReplyContent("Let me look.")
    entry = live.history()[-1]
    assert live.wire.said(json.dumps(entry["response"]["json"]).encode()) == live.shown
    live.model_says("Yes.")
    await live.asks("Sure?")
    assert live.wire.called(live.model.bodies[-1]) == ["desk__balance"]


@pytest.mark.requirement("live:empty")
async def test_an_empty_reply_is_the_answer(live: Desk) -> None:
    live.model_says("")  # 28
    await live.asks("Go")
    assert live.status == 200
    assert live.shown == ReplyContent()


@pytest.mark.requirement("live:responses-message-behind-call")
async def test_a_message_behind_a_managed_call_is_dropped_with_it(codex: Desk) -> None:
    call = responses.function_call("c1", "desk__balance", "{}")
    hosted = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    output = [responses.message("Look.", "msg_1"), hosted, call, responses.message("No.", "msg_2")]
    codex.model_answers(json.dumps(responses.response(*output)).encode())  # 17, 18
    codex.model_says("Fifty.")
    codex.shows_preambles = False  # The message behind the call is none
    await codex.asks("How much?")
    items = json.loads(codex.body)["output"]
    assert [item["type"] for item in items] == ["message", "web_search_call", "message"]
    assert codex.wire.said(codex.body).text == "Look.Fifty."
    assert b"No." not in codex.raw


@pytest.mark.requirement("live:responses-kept")
async def test_a_kept_live_answer_goes_on_from_its_last_reply_and_is_shown_whole(
    codex: Desk,
) -> None:
    call = responses.function_call("c1", "desk__balance", "{}")
    first = responses.response(responses.message("Look.", "msg_1"), call, id="resp_a", store=True)
    last = responses.response(responses.message("Fifty.", "msg_2"), id="resp_b", store=True)
    codex.model_answers(json.dumps(first).encode())
    codex.model_answers(json.dumps(last).encode())
    await codex.asks("How much?", store=True)
    assert json.loads(codex.body)["id"] == "resp_a"

    request = Request("GET", "/v1/responses/resp_a", codex.request().headers, b"")
    exchange = await codex.mediator.exchange(codex.admitted(), request)  # 40
    assert isinstance(exchange, RunnerResponse)
    kept = json.loads(b"".join([chunk async for chunk in exchange.chunks]))
    assert kept["output"] == json.loads(codex.body)["output"]

    codex.messages = []
    codex.model.replies.clear()
    codex.model_says("Yes.")
    await codex.asks("Sure?", store=True, previous_response_id="resp_a")  # 19
    assert codex.model.bodies[-1]["previous_response_id"] == "resp_b"


@pytest.mark.requirement("live:owned-first")
async def test_the_id_that_a_runner_has_is_its_own_before_the_answer_is_recorded(
    codex: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may be killed right behind the record, which a retry is then given."""
    call = responses.function_call("c1", "desk__balance", "{}")
    first = responses.response(responses.message("Look.", "msg_1"), call, id="resp_a", store=True)
    last = responses.response(responses.message("Fifty.", "msg_2"), id="resp_b", store=True)
    codex.model_answers(json.dumps(first).encode())
    codex.model_answers(json.dumps(last).encode())
    state = codex.mediator.state
    owned: list[bool] = []
    end = state.journal.end

    async def note_owner(turn_id: str, response: StoredResponse | None) -> None:
        assert response is not None
        answer_id = json.loads(response.body)["id"]
        owned.append(await state.ownership.find(codex.admitted().agent.id, answer_id) is not None)
        await end(turn_id, response)

    monkeypatch.setattr(state.journal, "end", note_owner)
    await codex.asks("How much?", store=True)
    assert owned == [True]


@pytest.mark.requirement("live:minted-ids")
async def test_reasoning_under_a_minted_id_leaves_with_its_round(codex: Desk) -> None:
    codex.model_says(Thought("Where?"), "Look.", ("desk.balance", {}))
    codex.model_says(Thought("There."), ("desk.quote", {}))
    codex.model_says("Fifty.")
    await codex.asks("How much?")
    ids = [item["id"] for item in json.loads(codex.body)["output"] if item["type"] == "reasoning"]
    assert ids[0] == "rs_1"
    assert len(set(ids)) == 2

    codex.model_says("Yes.")
    await codex.asks("Sure?")  # The provider's rules refuse reasoning that it has not kept
    assert all(each.encode() not in codex.model.raw[-1] for each in ids[1:])


@pytest.mark.requirement("live:prefill")
async def test_words_go_on_behind_what_the_runner_began(claude: Desk) -> None:
    claude.messages = [claude.wire.user("How much?"), {"role": "assistant", "content": "I think"}]
    claude.model_says(" I must look.", ("desk.balance", {}))  # 15
    claude.model_says("Fifty.")
    await claude.turn()
    blocks = json.loads(claude.body)["content"]
    assert [block["text"] for block in blocks] == [" I must look.", "Fifty."]
    second = claude.model.messages()
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert "".join(block.get("text", "") for block in second[1]["content"]) == (
        "I think I must look."
    )


@pytest.mark.requirement("live:refused-reasoning")
async def test_refused_thinking_is_left_out_once(claude: Desk) -> None:
    signed = {"type": "thinking", "thinking": "Old.", "signature": "lost"}
    answer = {"role": "assistant", "content": [signed, {"type": "text", "text": "Well."}]}
    claude.messages = [claude.wire.user("Go"), answer]
    words = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
    claude.model_refuses(400, "invalid_request_error", words)
    claude.model_says("Yes.")
    await claude.asks("Sure?")
    assert claude.shown == ReplyContent("Yes.")
    sent = [[*map(json.loads, transcript(claude, index))][1]["content"] for index in (0, 1)]
    assert sent == [answer["content"], answer["content"][1:]]
    assert claude.interventions() == ["refused_reasoning_dropped"]

    claude.model_refuses(400, "invalid_request_error", "max_tokens is too large")
    claude.messages = [claude.wire.user("Go"), answer]
    await claude.asks("Sure?")
    assert claude.status == 400
    assert len(claude.model.bodies) == 3


@pytest.mark.requirement("live:last-word")
async def test_a_reply_that_flows_past_the_turns_time_is_followed_by_a_last_word(
    live: Desk,
) -> None:
    live.grant(tool("balance"), total_timeout_ms=10_000)
    live.model_says("Let me look.", ("desk.balance", {}), takes=11.0)
    live.model_says("I was slow.")
    await live.asks("How much?")
    assert live.shown == ReplyContent(joined(live, "Let me look.", "I was slow."))
    assert live.services.calls == []
    assert "tool_budget_exhausted" in str(live.model.messages())
    assert live.wire.chosen(live.model.bodies[-1])[0] == "none"


@pytest.mark.requirement("live:last-word")
async def test_a_reply_that_showed_nothing_until_the_turns_time_was_spent_is_the_last(
    live: Desk,
) -> None:
    live.grant(tool("balance"), total_timeout_ms=10_000)
    live.model_says(("desk.balance", {}), takes=11.0)
    await live.asks("How much?")
    assert live.logged_error() == "total_timeout"


@pytest.mark.requirement("live:last-call-fails")
@pytest.mark.parametrize("asks_for_tools", [False, True])
async def test_a_last_model_call_that_fails_is_an_error_event_and_is_asked_again(
    live: Desk, *, asks_for_tools: bool
) -> None:
    live.grant(tool("trade", write=True), max_rounds=1)
    live.model_says("Let me buy.", ("desk.trade", {}))
    live.model_says(("desk.trade", {}))
    if asks_for_tools:
        live.model_says("And again.", ("desk.trade", {"n": 1}))
    else:
        live.model_refuses(400, "invalid_request")
    await live.asks("Buy")
    code = "tool_budget_exhausted" if asks_for_tools else "provider_http_400"
    assert (live.status, live.logged_error()) == (502, code)

    live.model_says("Bought.")
    await live.turn()
    assert live.shown.text.startswith("Let me buy.")
    assert live.shown.text.endswith("Bought.")
    assert live.services.calls == ["desk.trade"]
    assert len({line["turn_id"] for line in live.history()}) == 1
    paid = [line["usage"]["total_rounds"] for line in live.history()]
    assert paid == [3 if asks_for_tools else 2, 1], "the call that was made again is paid for again"


@pytest.mark.requirement("journal:openclaw")
async def test_words_that_openclaw_wraps_after_a_live_answer_failed_make_no_new_turn(
    live: Desk,
) -> None:
    live.grant(tool("trade", write=True))
    live.model_says("Let me buy.", ("desk.trade", {}))
    live.model_refuses(400, "invalid_request")
    first = "[Sat 2026-11-28 19:20 UTC] Buy\n\nRuntime: agent=main | host=vm"
    await live.asks(first)

    queued = "[Queued user message from a previous active turn; preserved as context only.]"
    go_on = "Continue the current task from the existing transcript."
    again = f"[Sat 2026-11-28 19:21 UTC] {queued}\nBuy\n\n{go_on}\n\nRuntime: agent=main | host=vm"
    live.messages = [live.wire.user(again)]
    live.model_says("Bought.")
    await live.turn()
    assert live.shown.text.startswith("Let me buy.")
    assert live.services.calls == ["desk.trade"]

    live.messages[0] = live.wire.user(first)
    live.model_says("One share.")
    assert "+ 2 hidden messages" in await live.asks("[Sat 2026-11-28 19:22 UTC] What do I have?")
