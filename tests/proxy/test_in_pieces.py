"""A provider that sends its key in two pieces of a stream: neither history nor its
transcript has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claw_contract.transcript.render import render_transcript
from tests.peers import events
from tests.proxy.looking import peopled, saved
from tests.proxy.pod import PROVIDER_KEY
from tests.waiting import eventually


def delta(words: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": words}, "finish_reason": None}
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test",
        "choices": [choice],
    }


@pytest.mark.requirement("history:in-pieces")
def test_a_key_that_comes_in_two_pieces_is_put_together_by_nobody(tmp_path: Path) -> None:
    with peopled(tmp_path) as pod:
        pod.start("-w", str(pod.home / "flows"))
        pod.provider.says(
            events(*map(delta, ("It is ", PROVIDER_KEY[:9], PROVIDER_KEY[9:], ", really.")))
        )
        asked = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hi."}]}
        with pod.client("plain").chat.completions.create(**asked, stream=True) as stream:  # type: ignore[call-overload]
            assert sum(1 for _ in stream) == 4
        (line,) = eventually(lambda: pod.history("plain"), "it is written")
        (flow,) = eventually(
            lambda: [each for each in saved(pod).flows() if "claw.entry" in each.metadata],
            "its flow is saved",
        )
        for kept in (
            render_transcript(line),
            render_transcript(json.loads(flow.metadata["claw.entry"])),
        ):
            assert "assistant: It is ••" in kept
            assert "•, really." in kept
            assert PROVIDER_KEY not in kept
        assert not any(
            part in str(line) + flow.metadata["claw.entry"]
            for part in (PROVIDER_KEY[:9], PROVIDER_KEY[9:])
        )
