"""Model replies and results that are made to exhaust the proxy: each costs bounded work, and the
turn ends as defined.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import raw
from tests.failures.clocked_pod import ClockedPod, TurnOutput
from tests.wires import MadeCall, openai

DEEP = "[" * 50_000 + "]" * 50_000
HUGE = "9" * 20_000


async def play(pod: ClockedPod, reply: bytes, result: raw.Act) -> TurnOutput:
    """Run a turn whose first model reply is `reply`, and whose second one ends it."""
    async with pod.open() as mediator:
        pod.provider.script = [
            raw.answers(200, reply),
            raw.answers(200, pod.dialect.reply("Done.", (), {})),
        ]
        pod.service.script = [result]
        return await pod.ask(mediator, pod.request())


def calling(pod: ClockedPod, *arguments: str, name: str = "desk__trade") -> bytes:
    made = [MadeCall(f"c{number}", name, text) for number, text in enumerate(arguments)]
    return pod.dialect.reply("", made, {})


def odd(pod: ClockedPod, value: str) -> bytes:
    """Return a reply with a call whose argument is raw text: the tests themselves
    could not serialize or parse it.
    """
    return calling(pod, '{"a":0}').replace(b":0}", b":%b}" % value.encode())


def told(pod: ClockedPod, seen: TurnOutput) -> list[dict[str, Any]]:
    """Return the results of its calls that the model was sent."""
    assert pod.dialect.said(pod.dialect.assembled(seen.body)).text == "Done."
    request = json.loads(
        seen.to_provider[-1].partition(b"\r\n\r\n")[2], parse_int=str, parse_float=str
    )
    return [json.loads(content) for _, content in pod.dialect.answers(request["messages"])]


@pytest.mark.requirement("attack:many-calls")
async def test_of_ten_thousand_calls_none_runs_and_each_is_answered(
    pod: ClockedPod,
) -> None:
    made = calling(pod, *(f'{{"n":{number}}}' for number in range(10_000)))
    seen = await play(pod, made, raw.answers(200, b"{}"))
    assert {answer["error"]["code"] for answer in told(pod, seen)} == {"too_many_calls"}
    assert seen.to_service == []
    assert len(seen.history) == 1


@pytest.mark.requirement("attack:many-calls")
async def test_an_answer_with_a_hundred_thousand_calls_is_refused(pod: ClockedPod) -> None:
    one = calling(pod, '{"n":0}', '{"n":1}')
    first, second = (one.index(b'"c%d"' % number) for number in (0, 1))
    start = one.rindex(b"{", 0, first)
    call = one[start : one.rindex(b"{", 0, second)]
    async with pod.open() as mediator:
        pod.provider.script = [raw.answers(200, one[:start] + call * 100_000 + one[start:])]
        pod.service.script = [raw.answers(200, b"{}")]
        seen = await pod.ask(mediator, pod.request())
    assert (seen.status, seen.to_service, len(seen.history)) == (502, [], 1)
    assert b"holds more than 10000" in seen.body


@pytest.mark.requirement("attack:deep-and-huge")
@pytest.mark.parametrize(
    "value",
    [
        "9" * 4000,
        "1e400",
        '{"a":' * 400 + "1" + "}" * 400,
        json.dumps({str(number): number for number in range(50_000)}),
    ],
    ids=["huge", "huge-exponent", "rather-deep", "wide"],
)
async def test_arguments_of_any_size_are_sent_as_they_are(pod: ClockedPod, value: str) -> None:
    arguments = f'{{"a":{value}}}'
    seen = await play(pod, calling(pod, arguments), raw.answers(200, b"{}"))
    assert [answer["ok"] for answer in told(pod, seen)] == [True]
    assert [sent.partition(b"\r\n\r\n")[2] for sent in seen.to_service] == [arguments.encode()]


@pytest.mark.requirement("attack:deep-and-huge")
@pytest.mark.parametrize(
    "value", [HUGE, f"1e{HUGE}", f"-0.{HUGE}e-{HUGE}"], ids=["huge", "exponent", "fraction"]
)
async def test_a_number_that_takes_too_long_to_read_is_not_run(pod: ClockedPod, value: str) -> None:
    seen = await play(pod, odd(pod, value), raw.answers(200, b"{}"))
    assert [answer["error"]["code"] for answer in told(pod, seen)] == ["invalid_arguments"]
    assert seen.to_service == []


@pytest.mark.requirement("attack:deep-and-huge")
async def test_arguments_that_are_too_deep_to_be_read_are_not_run(pod: ClockedPod) -> None:
    """OpenAI's arguments are a string in the response; Anthropic's are part of its
    JSON, so nobody can read the response.
    """
    seen = await play(pod, odd(pod, DEEP), raw.answers(200, b"{}"))
    assert seen.to_service == []
    if pod.dialect is openai:
        assert [answer["error"]["code"] for answer in told(pod, seen)] == ["invalid_arguments"]
    else:
        assert (seen.status, seen.history[0]["status_code"]) == (502, 502)


@pytest.mark.requirement("attack:deep-and-huge")
@pytest.mark.parametrize(
    "body", [DEEP, f'{{"n": {HUGE}}}', f"[{'0,' * 3000}0]"], ids=["deep", "huge", "wide"]
)
async def test_a_result_that_is_deep_wide_or_huge_is_data(pod: ClockedPod, body: str) -> None:
    seen = await play(
        pod, calling(pod, "{}", name="desk__balance"), raw.answers(200, body.encode())
    )
    (answer,) = told(pod, seen)
    assert answer["ok"]
    assert len(seen.history) == 1


@pytest.mark.requirement("attack:endless-results")
@pytest.mark.parametrize(
    ("result", "code"),
    [
        (raw.repeats_for_ever(raw.head(200, "transfer-encoding: chunked")), "response_too_large"),
        (raw.repeats_for_ever(b"HTTP/1.1 200 OK\r\n", b"x-more: 1\r\n" * 500), "request_failed"),
        (raw.hangs_after(raw.head(200, "content-length: 100") + b"{"), "timeout"),
        (raw.hangs_after(b"HTTP/1.1 2"), "timeout"),
    ],
    ids=["body", "headers", "slow-body", "slow-headers"],
)
async def test_a_result_without_an_end_is_given_up(
    pod: ClockedPod, result: raw.Act, code: str
) -> None:
    pod.policy = {"timeout_per_tool_ms": 300 if code == "timeout" else 60_000}
    seen = await play(pod, calling(pod, "{}", name="desk__balance"), result)
    (answer,) = told(pod, seen)
    assert answer["error"]["code"] == code
    (entry,) = seen.history
    assert entry["status"] == "ok"
