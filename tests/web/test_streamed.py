"""Live turns as an operator sees them: in the real mitmweb, its Turn view, a real browser, the
replay and the transcript of ``claw audit show``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from playwright.sync_api import expect
from starlette.requests import Request
from starlette.responses import StreamingResponse

from claw_contract.transcript.render import render_transcript
from tests.peers import Answer, GatedReply, calls, text, wire_of
from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN, Pod, whole_lines
from tests.waiting import eventually
from tests.web.browser import browsing
from tests.web.conftest import Live, furnished
from tests.web.mitmweb import Mitmweb

LOOK = calls(("c1", "desk__balance", {}), words="Let me look.")
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic", "responses"])


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Yield a pod whose agent streams live, with mitmweb as its proxy."""
    web = Mitmweb()
    with furnished(tmp_path_factory.mktemp("pod")) as pod:
        pod.agent("analyst", *pod.balance_and_trade(), stream="live")
        web.start(pod)
        yield Live(pod, web)


def ask(pod: Pod, dialect: str = "openai", words: str = "What is left?") -> str:
    """Send a request that asks for a stream; return all that was shown."""
    messages: list[Any] = [{"role": "user", "content": words}]
    if dialect == "anthropic":
        claude = pod.claude().messages
        with claude.stream(model="claude", max_tokens=99, messages=messages) as answer:
            return "".join(answer.text_stream)
    if dialect == "responses":
        events = pod.client().responses.create(model="gpt", input=words, store=False, stream=True)
        return "".join(
            event.delta for event in events if event.type == "response.output_text.delta"
        )

    with pod.client().chat.completions.create(
        model="gpt", messages=messages, stream=True
    ) as chunks:
        deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    return "".join(filter(None, deltas))


def two_rounds(pod: Pod, dialect: str) -> str:
    """Run a turn with a hidden round that shows something; return all that was shown."""
    pod.provider.says(LOOK, text("50,000 are left."))
    return ask(pod, dialect)


def last_turn(live: Live) -> dict[str, Any]:
    """Return the runner's flow of the last turn, once it has its line of history."""

    def whole() -> dict[str, Any] | None:
        turn = live.web.turns()[-1]
        return turn if live.web.view(turn)["view_name"] == "Turn" else None

    return eventually(whole, "the turn is over")


def hidden(live: Live, turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the flows of the turn's model calls."""
    turn_id = turn["comment"].split()[1]
    return [
        flow
        for flow in live.web.commented(turn_id)
        if flow["comment"].startswith("claw model round")
    ]


def content(live: Live, flow: dict[str, Any]) -> Any:
    return json.loads(live.web.fetch(f"/flows/{flow['id']}/response/content.data"))


@DIALECTS
@pytest.mark.requirement("live:hidden-flow")
def test_the_flow_of_a_model_call_has_the_reply_that_a_stream_told_as_one_body(
    streamed: Live, dialect: str
) -> None:
    two_rounds(streamed.pod, dialect)
    first, second = hidden(streamed, last_turn(streamed))
    wire = wire_of(first["request"]["path"])
    assert (
        json.loads(streamed.web.fetch(f"/flows/{first['id']}/request/content.data"))["stream"]
        is True
    )
    replies = [wire.said(json.dumps(content(streamed, flow)).encode()) for flow in (first, second)]
    assert [(reply.text, len(reply.calls)) for reply in replies] == [
        ("Let me look.", 1),
        ("50,000 are left.", 0),
    ]
    assert streamed.web.view(first)["view_name"] == "JSON"


@DIALECTS
@pytest.mark.requirement("live:turn-view")
def test_the_turn_view_says_what_was_shown_before_the_call_and_then_the_rest(
    streamed: Live, dialect: str
) -> None:
    shown = two_rounds(streamed.pod, dialect)
    assert "desk__balance" not in shown
    lines = streamed.web.view(last_turn(streamed))["text"].splitlines()
    at = [
        next(place for place, line in enumerate(lines) if words in line)
        for words in (
            "shown: Let me look.",
            "model → cllama: desk.balance",
            "cllama → runner: ok 200",
            "assistant: 50,000 are left.",
        )
    ]
    assert at == sorted(at)
    line = streamed.pod.history("analyst")[-1]
    assert render_transcript(line).splitlines() == lines


@DIALECTS
@pytest.mark.requirement("live:replay")
def test_a_live_turn_is_played_again_and_nothing_differs(streamed: Live, dialect: str) -> None:
    two_rounds(streamed.pod, dialect)
    turn = last_turn(streamed)
    asked = len(streamed.pod.provider.received), len(streamed.pod.service.received)
    told = streamed.web.command("claw.replay", f"@{turn['id']}")
    assert told.splitlines()[1:] == ["nothing differs"]
    assert (len(streamed.pod.provider.received), len(streamed.pod.service.received)) == asked


def breaks_off(words: str, *, error: dict[str, Any] | None = None) -> Answer:
    """Return a stream that shows the words and breaks off, or tells an error."""

    async def answer(request: Request) -> Answer:
        wire = wire_of(request.url.path)
        whole = wire.streamed(wire.reply(words, (), {})).split(b"\n\n")
        end = next(place for place, event in enumerate(whole) if b'"stop"' in event)

        async def events() -> AsyncIterator[bytes]:
            for event in whole[:end]:
                yield event + b"\n\n"
            if error is None:
                raise ConnectionResetError
            yield b"data: %b\n\n" % json.dumps({"error": error}).encode()

        return StreamingResponse(events(), media_type="text/event-stream")

    return answer


@pytest.mark.requirement("live:hidden-flow", "live:turn-view", "live:replay")
def test_a_reply_that_breaks_off_says_why_and_its_turn_what_it_showed(streamed: Live) -> None:
    streamed.pod.provider.says(LOOK, breaks_off("50,000 are"))
    with pytest.raises(openai.APIConnectionError):
        ask(streamed.pod, words="What would be left?")
    turn = last_turn(streamed)
    flow = hidden(streamed, turn)[-1]
    assert "broke off" in flow["error"]["msg"]
    lines = streamed.web.view(turn)["text"].splitlines()
    shown = [line for line in lines if "shown: " in line]
    assert shown == ["  │ shown: Let me look.", "  │ shown: 50,000 are"]
    told = streamed.web.command("claw.replay", f"@{turn['id']}")
    assert told.splitlines()[1:] == ["nothing differs"]


@pytest.mark.requirement("live:turn-view", "live:replay", "live:observed")
def test_a_turn_that_goes_on_shows_what_an_earlier_attempt_showed(streamed: Live) -> None:
    asked = "And what comes after that?"
    streamed.pod.provider.says(LOOK, breaks_off("50,000 are"))
    with pytest.raises(openai.APIConnectionError):
        ask(streamed.pod, words=asked)
    streamed.pod.provider.says(text("50,000 are left."))
    assert ask(streamed.pod, words=asked) == "Let me look.\n\n50,000 are left."
    turn = last_turn(streamed)
    view = streamed.web.view(turn)["text"]
    assert "goes on with an earlier attempt" in view
    assert [line for line in view.splitlines() if "shown: " in line] == ["  │ shown: Let me look."]
    told = streamed.web.command("claw.replay", f"@{turn['id']}")
    assert told.splitlines()[1:] == ["nothing differs"]


@pytest.mark.requirement("live:hidden-flow", "live:replay")
def test_an_error_that_a_stream_tells_is_the_response_that_it_means(streamed: Live) -> None:
    overloaded = {"message": "too many", "type": "server_error", "code": "overloaded_error"}
    streamed.pod.provider.says(breaks_off("50,000 are", error=overloaded))
    with pytest.raises(openai.APIError, match="too many"):
        ask(streamed.pod, words="How much can be lost?")
    turn = last_turn(streamed)
    (flow,) = hidden(streamed, turn)
    assert flow["response"]["status_code"] >= 500
    assert content(streamed, flow)["error"]["message"] == "too many"
    told = streamed.web.command("claw.replay", f"@{turn['id']}")
    assert told.splitlines()[1:] == ["nothing differs"]


@pytest.mark.requirement("live:observed", "live:hidden-flow")
def test_a_runner_that_leaves_has_been_shown_what_its_turn_says(streamed: Live) -> None:
    pod = streamed.pod
    gated = GatedReply(text("50,000 are left of it."))
    pod.provider.says(gated)
    gated.release(3)  # The head of the answer comes with its first word
    with pod.client().chat.completions.create(
        model="gpt", messages=[{"role": "user", "content": "How much is that?"}], stream=True
    ) as chunks:
        first = next(chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content)
    eventually(gated.left.is_set, "the model is left, too")
    line = eventually(
        lambda: [each for each in pod.history("analyst") if each["status_code"] == 499],
        "the turn is over",
    )[-1]
    assert line["response"]["shown"].startswith(first.choices[0].delta.content or "-")
    told = [json.loads(each) for each in whole_lines(pod.stdout) if each.startswith("{")]
    turn_id = line["turn_id"]
    (ended,) = [event for event in told if event["type"] == "error" and event["turn_id"] == turn_id]
    assert (ended["stream_mode"], ended["shown_rounds"]) == ("live", 1)
    assert 0 <= ended["upstream_ttft_ms"] <= ended["ttft_ms"]
    assert hidden(streamed, last_turn(streamed))[-1]["error"]["msg"]


@pytest.mark.requirement("live:turn-view")
def test_an_operator_reads_a_live_turn_in_a_browser_and_no_secret(
    streamed: Live, tmp_path: Path
) -> None:
    with browsing(streamed.web, tmp_path / "profile") as browser:
        two_rounds(streamed.pod, "openai")
        turn_id = last_turn(streamed)["comment"].split()[1]
        rows = browser.find(f"~comment {turn_id}")
        expect(rows).to_have_count(4)  # The runner's, two model calls and a tool
        rows.first.click()
        browser.page.get_by_text("Response", exact=True).click()
        view = browser.page.locator(".contentview")
        expect(view).to_contain_text("shown: Let me look.")
        expect(view).to_contain_text("assistant: 50,000 are left.")
        everything = browser.received() + browser.page.content()
    planted = (SECRET, TOOL_TOKEN, PROVIDER_KEY, ANTHROPIC_KEY)
    assert [secret for secret in planted if secret in everything] == []
