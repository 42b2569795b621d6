"""Streams: every SDK reads in one what the JSON answer of the same turn says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.once import make_once
from tests.sdks.cases import HEARD
from tests.sdks.conftest import Speakers, is_anthropic
from tests.sdks.hearing import ANTHROPIC, OPENAI, Heard, hear

_FINISH = {
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool-calls",
    "tool_use": "tool-calls",
    "stop": "stop",
    "end_turn": "stop",
    "content_filter": "content-filter",
    "refusal": "content-filter",
}
"""Vercel's names of the reasons to end."""


THEIRS = {
    ("cut short", "openai-py stream"): "LengthFinishReasonError",
    ("cut by a filter", "openai-py stream"): "ContentFilterFinishReasonError",
}
"""Errors that an SDK makes of an answer by itself, whoever gives it."""


def of_completion(body: Any) -> Heard:
    (choice,) = body["choices"]
    said = choice["message"]
    calls = [{"id": call["id"], **call["function"]} for call in said.get("tool_calls") or ()]
    return {
        "text": said["content"] or "",
        "refusal": said["refusal"] or "",
        "reasoning": said.get("reasoning_content") or "",
        "calls": [{**call, "arguments": json.loads(call["arguments"])} for call in calls],
        "finish": choice["finish_reason"],
        "usage": [body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]],
    }


def of_message(body: Any) -> Heard:
    def joined(kind: str, name: str) -> str:
        return "".join(block[name] for block in body["content"] if block["type"] == kind)

    made = [block for block in body["content"] if block["type"] == "tool_use"]
    return {
        "text": joined("text", "text"),
        "reasoning": joined("thinking", "thinking"),
        "signature": joined("thinking", "signature"),
        "calls": [
            {"id": block["id"], "name": block["name"], "arguments": block["input"]}
            for block in made
        ],
        "finish": body["stop_reason"],
        "usage": [body["usage"]["input_tokens"], body["usage"]["output_tokens"]],
    }


type Answers = dict[tuple[str, str], tuple[Heard, Heard]]
"""For each (case, SDK), the JSON answer and the SDK's reading of the stream."""


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return make_once(
        tmp_path_factory, "streams", lambda: read_all(request.getfixturevalue("spoken"))
    )


def read_all(spoken: Speakers) -> Answers:
    pairs = [(case, sdk) for case in HEARD for sdk in (*OPENAI, *ANTHROPIC)]
    heard = hear([spoken.job(case, sdk, **usage_asked(sdk)) for case, sdk in pairs])
    said = {
        (case, sdk): read(spoken.post(case, sdk).json())
        for case in HEARD
        for sdk, read in ((OPENAI[0], of_completion), (ANTHROPIC[0], of_message))
    }
    return {
        (case, sdk): (said[case, ANTHROPIC[0] if is_anthropic(sdk) else OPENAI[0]], mine)
        for (case, sdk), mine in zip(pairs, heard, strict=True)
    }


def usage_asked(sdk: str) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}} if sdk.startswith("openai") else {}


@pytest.mark.requirement("stream:sdks-hear-the-same", "stream:sdk-accepts")
@pytest.mark.parametrize("sdk", [*OPENAI, *ANTHROPIC])
@pytest.mark.parametrize("case", HEARD)
def test_the_sdk_hears_what_the_json_answer_says(answers: Answers, case: str, sdk: str) -> None:
    said, heard = answers[case, sdk]
    if (case, sdk) in THEIRS:
        assert heard["error"]["kind"] == THEIRS[case, sdk]
        return
    assert "error" not in heard
    if sdk.startswith("ai "):
        said = {**said, "finish": _FINISH[said["finish"]]}
        said.pop("refusal", None)  # Vercel's SDK has no refusals
    calls = [{**call, "arguments": json.loads(call["arguments"])} for call in heard["calls"]]
    assert {name: heard[name] or "" for name in said} | {"calls": calls} == said


@pytest.mark.requirement("stream:sdks-hear-the-same")
@pytest.mark.parametrize("case", ["words", "long and sharp", "call"])
def test_a_stream_has_the_id_and_the_role_of_the_answer(answers: Answers, case: str) -> None:
    for sdk in (*OPENAI, *ANTHROPIC):
        if not sdk.startswith("ai "):
            heard = answers[case, sdk][1]
            assert (sdk, heard["id"], heard["role"]) == (
                sdk,
                "msg_1" if is_anthropic(sdk) else "chatcmpl-1",
                "assistant",
            )


@pytest.mark.requirement("stream:usage")
def test_an_openai_stream_has_a_usage_only_if_it_was_asked_for(spoken: Speakers) -> None:
    sdks = [
        sdk for sdk in OPENAI if not sdk.startswith("ai ")
    ]  # these tests have Vercel's SDK always ask for it
    heard = hear(
        [
            spoken.job("after a hidden round", sdk, **asked)
            for sdk in sdks
            for asked in ({}, usage_asked(sdk))
        ]
    )
    assert [said["usage"] for said in heard] == [None, [10, 10]] * len(sdks)
    silent = hear(
        [spoken.job("words", sdk, stream_options={"include_usage": False}) for sdk in sdks]
    )
    assert [said["usage"] for said in silent] == [None] * len(sdks)
