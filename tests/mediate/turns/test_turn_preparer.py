"""What a turn starts with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_mediate.http.headers import Headers
from claw_mediate.providers.failover import ModelCall, ModelResult
from claw_mediate.providers.routing import Route
from tests.turns.desk import Desk, opened
from tests.wires import openai

SHAPE = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


async def headers_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the headers of a turn's model call."""
    sent: list[Headers] = []
    post = desk.model.post

    async def note(route: Route, call: ModelCall) -> ModelResult:
        sent.append(route.provider_headers)
        return await post(route, call)

    monkeypatch.setattr(desk.model, "post", note)
    desk.model_says("Fifty.")
    await desk.asks("How much?")
    return dict(sent[0])


@pytest.mark.requirement("live:asks-upstream")
@pytest.mark.parametrize("live", [False, True])
async def test_only_a_live_turn_asks_for_a_stream_without_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    async with opened(Desk(tmp_path, openai, stream=True, live=live)) as desk:
        headers = await headers_of(desk, monkeypatch)
    assert headers["accept-encoding"] == ("identity" if live else "gzip, deflate")


@pytest.mark.requirement("policy:headers")
@pytest.mark.parametrize("has_policy", [False, True])
async def test_a_header_that_names_a_model_is_not_sent_for_an_agent_with_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_policy: bool
) -> None:
    async with opened(Desk(tmp_path, openai, stream=False)) as desk:
        if has_policy:
            file = tmp_path / "context" / desk.agent / "metadata.json"
            allowed = [{"slot": "primary", "ref": f"openai/{openai.MODEL}"}]
            policy = {"mode": "clamp", "allowed": allowed}
            file.write_text(json.dumps(json.loads(file.read_text()) | {"model_policy": policy}))
            desk.open()
        desk.headers = {"x-model-provider": "other", "x-mine": "1"}
        headers = await headers_of(desk, monkeypatch)
    assert headers["x-mine"] == "1"
    assert ("x-model-provider" in headers) is not has_policy


@pytest.mark.requirement("live:falls-back")
async def test_a_stream_of_structured_output_is_buffered_and_the_log_says_why(
    tmp_path: Path,
) -> None:
    async with opened(Desk(tmp_path, openai, stream=True, live=True)) as desk:
        desk.model_says("{}")
        await desk.asks("How much?", response_format=SHAPE)
        (fallback,) = desk.told("live_fallback")
        assert fallback["reason"] == "structured_output"
        assert desk.history()[-1]["turn_id"] == fallback["turn_id"]
