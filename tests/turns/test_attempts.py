"""The turn that a request goes on with: in other words, places and sessions
(docs/spec/mediation.md section 5).
"""

from __future__ import annotations

import asyncio

import pytest

from tests.turns.desk import Desk, with_tools
from tests.turns.retrying import answer, failed_after_a_trade
from tests.waiting import eventually_async

pytestmark = pytest.mark.both_forms


@pytest.mark.requirement("journal:altered")
async def test_words_that_the_runner_appends_when_it_tries_again_make_no_new_turn(
    desk: Desk,
) -> None:
    await failed_after_a_trade(desk)
    desk.messages = [desk.wire.user("Buy\n\n[Queued user message] Continue the current task")]
    desk.model_says("Bought.")
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:altered-and-lost")
@pytest.mark.parametrize("words", ["Buy", "Buy\n\n[Queued user message] Continue the current task"])
async def test_an_answer_that_was_lost_with_the_proxy_is_given_in_another_form(
    desk: Desk, words: str
) -> None:
    """Claude Code asks without a stream after its stream broke."""
    desk.remembers()
    desk.listens = False
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.model_says(("desk.trade", {"symbol": "X"}))
    desk.model_says("Bought.")
    await desk.asks("Buy")
    await desk.mediator.close(0)
    desk.open()
    desk.listens, desk.stream, desk.messages = True, not desk.stream, [desk.wire.user(words)]
    assert "'Bought.'" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:altered")
async def test_appended_words_in_a_part_of_their_own_go_on_with_the_turn(
    desk: Desk,
) -> None:
    """Claude Code makes one message of everything that the user said since the last answer."""
    await failed_after_a_trade(desk)
    desk.messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": text} for text in ("Buy", "What happened?")],
        }
    ]
    desk.model_says("Bought.")
    assert "+ 2 hidden messages" in await desk.turn()
    desk.model_says("Yes.")
    assert "+ 2 hidden messages" in await desk.asks("Sure?")
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:altered")
async def test_words_with_nul_in_them_are_gone_on_with_too(desk: Desk) -> None:
    await failed_after_a_trade(desk, "Buy\0now")
    desk.messages = [desk.wire.user("Buy\0now\n\n[Queued user message] Continue the current task")]
    desk.model_says("Bought.")
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:altered")
async def test_the_note_that_openclaw_ends_every_request_with_is_not_what_the_user_said_last(
    gpt: Desk,
) -> None:
    gpt.messages = [gpt.wire.user("Buy")]
    gpt.service_answers("trade", {"order": 1}, {"order": 2})
    gpt.model_says(("desk.trade", {}))
    gpt.model_refuses(400, "invalid_request")
    await gpt.sends(gpt.wire.user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> 12:00"))
    words = ("Buy\n\n[Queued user message] Go on", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> 12:01")
    gpt.messages = [gpt.wire.user(text) for text in words]
    gpt.model_says("Bought.")
    await gpt.turn()
    assert gpt.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:openclaw")
@pytest.mark.parametrize("earlier", [False, True])
async def test_words_that_openclaw_wraps_when_it_tries_again_make_no_new_turn(
    desk: Desk, *, earlier: bool
) -> None:
    """As OpenClaw 2026.9.6 sent it in the end of a live stream that was cut."""
    runtime = "\n\nRuntime: agent=main | session=agent:main:explicit:s1 | host=vm"
    if earlier:
        desk.model_says("Hello.")
        await desk.asks(f"[Sat 2026-11-28 19:18 UTC] Hi{runtime}")
        runtime = ""  # Which it sends with the first message only

    first = f"[Sat 2026-11-28 19:20 UTC] Buy{runtime}"
    await failed_after_a_trade(desk, first)

    queued = "[Queued user message from a previous active turn; preserved as context only.]"
    go_on = "Continue the current task from the existing transcript. Do not restart the task."
    again = f"[Sat 2026-11-28 19:21 UTC] {queued}\nBuy\n\n{go_on}{runtime}"
    desk.messages[-1] = desk.wire.user(again)
    desk.model_says("Bought.")
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]

    said = desk.messages.pop()
    desk.messages[-1:] = [desk.wire.user(first), said]
    desk.model_says("One share.")
    assert "+ 2 hidden messages" in await desk.asks("[Sat 2026-11-28 19:22 UTC] What do I have?")


@pytest.mark.requirement("journal:openclaw")
async def test_other_words_in_openclaws_wrapping_are_another_turn(desk: Desk) -> None:
    await failed_after_a_trade(desk, "[Sat 2026-11-28 19:20 UTC] Buy")
    desk.messages = [desk.wire.user("[Sat 2026-11-28 19:21 UTC] Sell")]
    desk.model_says("Why?")
    assert "hidden" not in await desk.turn()


@pytest.mark.requirement("journal:altered")
@pytest.mark.parametrize("words", ["Sell", "bu", "Please: Buy"])
async def test_other_words_are_another_turn(desk: Desk, words: str) -> None:
    await failed_after_a_trade(desk)
    desk.messages = [desk.wire.user(words)]
    desk.model_says(("desk.trade", {"symbol": "X"}))
    desk.model_says("Done.")
    await desk.turn()
    assert desk.services.calls == ["desk.trade"] * 2


@pytest.mark.requirement("journal:altered")
async def test_the_same_words_at_another_place_of_a_native_loop_are_another_turn(
    desk: Desk,
) -> None:
    desk.model_says(("shell", {"cmd": "ls"}))
    await desk.asks("Buy", native=["shell"])
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.runs_native("a file")
    desk.messages = [desk.wire.user("Buy now")]
    desk.model_says("Why?")
    assert "hidden" not in await desk.turn()


@pytest.mark.requirement("journal:altered")
@pytest.mark.parametrize("sessions", [("one", "another"), ("one", ""), ("", "another"), ("", "")])
async def test_words_that_begin_like_those_of_another_conversation_are_a_turn_of_its_own(
    desk: Desk, sessions: tuple[str, str]
) -> None:
    first, second = ({"x-claude-code-session-id": name} if name else {} for name in sessions)
    desk.headers = first
    await failed_after_a_trade(desk)
    desk.headers, desk.messages = second, []
    desk.model_says("Which one?")
    assert "hidden" not in await desk.asks("Buy me a car")
    desk.headers, desk.messages = first, [desk.wire.user("Buy\n\n[Queued user message] Go on")]
    desk.model_says("Bought.")
    assert "+ 2 hidden messages" in await desk.turn()
    assert desk.services.calls == ["desk.trade"]


@pytest.mark.requirement("journal:sessions")
async def test_equal_requests_of_two_sessions_are_two_turns(desk: Desk) -> None:
    for name in ("one", "another"):
        desk.headers, desk.messages = {"x-claude-code-session-id": name}, []
        await failed_after_a_trade(desk)
    assert desk.services.calls == ["desk.trade"] * 2
    for name in ("one", "another"):
        desk.headers, desk.messages = {"x-claude-code-session-id": name}, [desk.wire.user("Buy")]
        desk.model_says(f"Bought by {name}.")
        assert "+ 2 hidden messages" in await desk.turn()
    assert desk.services.calls == ["desk.trade"] * 2
    assert len({line["turn_id"] for line in desk.history()}) == 2


@pytest.mark.requirement("journal:sessions")
async def test_equal_requests_of_two_sessions_at_one_moment_do_not_join(desk: Desk) -> None:
    gate = desk.services.gates["desk.trade"] = asyncio.Event()
    desk.messages = [desk.wire.user("Buy")]
    runners = []
    for name in ("one", "another"):
        desk.headers = {"x-claude-code-session-id": name}
        desk.model_says(("desk.trade", {}))
        runners.append(asyncio.ensure_future(answer(desk)))
        await eventually_async(lambda: desk.services.running == len(runners), "each trades")
    desk.model_says("Bought.")
    desk.model_says("Bought.")
    gate.set()
    await asyncio.gather(*runners)
    assert len(set(desk.services.keys)) == 2
    assert desk.told("join") == []


@with_tools
@pytest.mark.requirement("journal:altered")
async def test_a_follow_up_that_failed_is_resumed_with_the_native_result_run_anew(
    desk: Desk,
) -> None:
    desk.model_says(("shell", {"cmd": "date"}))
    await desk.asks("Buy", native=["shell"])
    handed = desk.answer
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.runs_native("12:00")
    desk.messages, desk.answer = desk.messages[:2], handed
    desk.model_says("Bought.")
    await desk.runs_native("12:01")
    assert desk.services.calls == ["desk.trade"]
