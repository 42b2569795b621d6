"""Parts of a response beside text and calls stay in transcript and answer (docs/spec/mediation.md
sections 4, 6 and 7).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.turns.desk import Desk
from tests.turns.scripted import Thought
from tests.wires import anthropic
from tests.wires.anthropic import message, tool_use
from tests.wires.openai import completion

REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="}
THINKING = {"type": "thinking", "thinking": "x" * 100, "signature": "sig/" + "A" * 600}
SEARCH = [
    {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "NVDA"},
    },
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {"type": "web_search_result", "url": "https://x.example", "encrypted_content": "Ev8D="}
        ],
    },
]
CITED = {
    "type": "text",
    "text": "It rose.",
    "citations": [
        {"type": "web_search_result_location", "cited_text": "rose", "encrypted_index": "Eo8B"}
    ],
}
NEW = {"type": "hologram", "beam": {"n": 9007199254740993}}


@pytest.mark.requirement("blocks:thought")
async def test_what_a_model_thought_is_kept_in_the_transcript_and_in_the_answer(desk: Desk) -> None:
    desk.model_says(Thought("I must look."), ("desk.balance", {}))
    desk.model_says(Thought("And list."), ("desk.quote", {}), ("shell", {}))
    desk.model_says(Thought("Now list."), ("shell", {}))
    assert await desk.asks("Go", native=["shell"]) == snapshot("""\

cllama → model    the runner's request
model  → cllama   thought:'I must look.' managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   thought:'And list.' managed:desk.quote native:shell
cllama → service  desk.quote {}
cllama → model    desk.quote = {}
model  → cllama   thought:'Now list.' native:shell
cllama → runner   thought:'Now list.' native:shell   [2 hidden]
""")
    desk.model_says(Thought("All is well."), "Done.")
    assert await desk.runs_native("a file") == snapshot("""\

cllama → model    the runner's request + 4 hidden messages
model  → cllama   thought:'All is well.' 'Done.'
cllama → runner   thought:'All is well.' 'Done.'
""")
    desk.model_says("Yes.")
    await desk.asks("Sure?")


@pytest.mark.requirement("blocks:thought")
async def test_a_rejected_reply_keeps_what_was_thought_before_it(desk: Desk) -> None:
    desk.model_says(Thought("Both at once."), ("shell", {}), ("desk.balance", {}))
    desk.model_says(Thought("One by one."), "Later.")
    await desk.asks("Go", native=["shell"])
    assert desk.answer.thought == "One by one."


@pytest.mark.requirement("calls:cut-off")
async def test_a_call_that_ran_out_of_tokens_never_runs_though_its_arguments_look_whole(
    desk: Desk,
) -> None:
    desk.model_says("Buying.", ("desk.balance", {}), ("desk.trade", {"n": 1}), cut=True)
    desk.model_says("Sorry.")
    assert await desk.asks("Buy") == snapshot("""\

cllama → model    the runner's request
model  → cllama   'Buying.' managed:desk.balance managed:desk.trade{"n": 1}
cllama → service  desk.balance {}
cllama → model    desk.balance = {}, desk.trade = ! invalid_arguments
model  → cllama   'Sorry.'
cllama → runner   'Sorry.'   [1 hidden]
""")
    assert desk.services.calls == ["desk.balance"]


@pytest.mark.requirement("blocks:end-reason")
async def test_an_answer_that_ran_out_of_tokens_says_so(desk: Desk) -> None:
    desk.model_says(("desk.balance", {}))
    desk.model_says("You have fif", cut=True)
    await desk.asks("Go")
    assert desk.wire.ended(desk.body) in {"length", "max_tokens", "max_output_tokens"}


@pytest.mark.requirement("blocks:images")
async def test_an_image_stays_where_it_is_and_what_followed_it_is_remembered(desk: Desk) -> None:
    image = desk.wire.picture("What is this?")
    desk.model_says(("desk.quote", {}))
    desk.model_says("A chart.")
    await desk.sends(image)
    desk.model_says("Sure.")
    assert await desk.asks("Sure?") == snapshot("""\

cllama → model    the runner's request + 2 hidden messages
model  → cllama   'Sure.'
cllama → runner   'Sure.'
""")
    assert [body[desk.wire.TRANSCRIPT][0] for body in desk.model.bodies] == [image] * 3


@pytest.mark.requirement("anthropic:blocks-survive")
async def test_blocks_of_every_type_stay_in_the_transcript(claude: Desk) -> None:
    said = [THINKING, REDACTED, *SEARCH, CITED, NEW, tool_use("toolu_1", "desk__balance", {})]
    claude.model_answers(json.dumps(message(*said)).encode())
    claude.model_says("Done.")
    await claude.asks("Go")
    _, hidden, _ = claude.model.bodies[-1]["messages"]
    assert hidden == {"role": "assistant", "content": said}
    claude.model_says("Yes.")
    await claude.asks("Sure?")
    assert claude.model.bodies[-1]["messages"][1] == hidden


@pytest.mark.requirement("anthropic:blocks-survive")
async def test_blocks_of_every_type_are_in_the_answer_behind_hidden_rounds(claude: Desk) -> None:
    said = [THINKING, REDACTED, *SEARCH, CITED, NEW]
    claude.model_says(("desk.balance", {}))
    claude.model_answers(json.dumps(message(*said)).encode())
    await claude.asks("Go")
    assert json.loads(claude.body)["content"] == said


@pytest.mark.requirement("anthropic:blocks-survive")
async def test_blocks_of_every_type_go_out_and_come_back_with_a_native_call(
    claude: Desk,
) -> None:
    said = [
        THINKING,
        REDACTED,
        {"type": "text", "text": "Listing."},
        tool_use("toolu_9", "shell", {"cmd": "ls"}),
    ]
    claude.model_says(("desk.balance", {}))
    claude.model_answers(json.dumps(message(*said)).encode())
    await claude.asks("Go", native=["shell"])
    assert json.loads(claude.body)["content"] == said
    claude.model_says("Done.")
    assert "+ 2 hidden messages" in await claude.runs_native("a file")


@pytest.mark.requirement("anthropic:blank-text")
@pytest.mark.parametrize("blank", ["", " ", "\n\n"])
async def test_blank_text_that_the_api_gives_is_not_given_back_to_it(
    claude: Desk, blank: str
) -> None:
    said = message(THINKING, blank, tool_use("toolu_1", "desk__balance", {}))
    claude.model_answers(json.dumps(said).encode())
    claude.model_says("Done.")
    await claude.asks("Go")
    assert claude.answer.text == "Done."


@pytest.mark.requirement("blocks:end-reason")
@pytest.mark.parametrize(
    "reason",
    ["end_turn", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"],
)
async def test_an_anthropic_answer_ends_for_the_reason_that_it_ended_for(
    claude: Desk, reason: str
) -> None:
    claude.model_says(("desk.balance", {}))
    more: dict[str, Any] = {
        "stop_reason": reason,
        "stop_sequence": "END" if reason == "stop_sequence" else None,
    }
    claude.model_answers(
        json.dumps(message(*([] if reason == "refusal" else ["Well."]), **more)).encode()
    )
    await claude.asks("Go")
    body = json.loads(claude.body)
    assert (body["stop_reason"], body["stop_sequence"]) == (
        more["stop_reason"],
        more["stop_sequence"],
    )


@pytest.mark.requirement("anthropic:roles-alternate")
@pytest.mark.parametrize("prefill", ["The answer is", [{"type": "text", "text": "The answer is"}]])
async def test_hidden_rounds_of_an_answer_that_the_runner_began_are_remembered_behind_it(
    claude: Desk, prefill: Any
) -> None:
    claude.messages = [anthropic.user("How much?"), {"role": "assistant", "content": prefill}]
    claude.model_says(("desk.balance", {}))
    claude.model_says(" fifty dollars.")
    assert await claude.turn() == snapshot("""\

cllama → model    the runner's request
model  → cllama   managed:desk.balance
cllama → service  desk.balance {}
cllama → model    desk.balance = {}
model  → cllama   ' fifty dollars.'
cllama → runner   ' fifty dollars.'   [1 hidden]
""")
    claude.messages = [
        anthropic.user("How much?"),
        {"role": "assistant", "content": "The answer is fifty dollars."},
    ]
    claude.model_says("Yes.")
    assert "+ 2 hidden messages" in await claude.asks("Sure?")


@pytest.mark.requirement("anthropic:roles-alternate")
async def test_entries_of_the_system_between_messages_stay_where_they_are(claude: Desk) -> None:
    entry = {"role": "system", "content": "The user is in a hurry."}
    claude.messages = [anthropic.user("Hi"), entry]
    claude.model_says(("desk.balance", {}))
    claude.model_says("Done.")
    await claude.turn()
    claude.model_says("Yes.")
    assert "+ 2 hidden messages" in await claude.asks("Sure?")
    told = ["user", "system", "assistant", "user", "assistant", "user"]
    assert [one["role"] for one in claude.model.bodies[-1]["messages"]] == told


@pytest.mark.requirement("blocks:openai-members")
async def test_a_refusal_annotations_and_unknown_members_are_in_the_answer_and_in_the_transcript(
    gpt: Desk,
) -> None:
    members = {
        "refusal": "I can't.",
        "annotations": [
            {"type": "url_citation", "url_citation": {"url": "https://x.example", "start_index": 0}}
        ],
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "Ev8D="}],
    }
    called = completion(calls=[("call_1", "desk__balance", {})])
    called["choices"][0]["message"] |= members
    gpt.model_answers(json.dumps(called).encode())
    answer = completion(None)
    answer["choices"][0]["message"] |= members
    gpt.model_answers(json.dumps(answer).encode())
    await gpt.asks("Go")
    _, hidden, _ = gpt.model.bodies[-1]["messages"]
    assert {name: hidden[name] for name in members} == members
    shown = json.loads(gpt.body)["choices"][0]["message"]
    assert {name: shown[name] for name in members} == members
