"""A mediator that is being stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from tests.settings import default_settings


@pytest.mark.requirement("drain:what-was-begun-ends")
async def test_a_mediator_that_is_stopped_admits_no_request_and_is_not_ready(
    tmp_path: Path,
) -> None:
    (tmp_path / "context").mkdir()
    values = default_settings() | {"context": str(tmp_path / "context")}
    mediator = Mediator(Settings.of(values), EventLog(lambda _: None), {"OPENAI_API_KEY": "sk"})
    request = Request("POST", "/v1/chat/completions", [], b"")
    before = mediator.admit(request)
    assert isinstance(before, RunnerResponse)
    assert before.status == 401

    mediator.stop()
    refused = mediator.admit(request)
    assert isinstance(refused, RunnerResponse)
    assert refused.status == 503

    ready = await mediator.readiness.answer(Request("GET", "/ready", [], b""))
    assert ready is not None
    assert ready.status == 503
    await mediator.close(0)
