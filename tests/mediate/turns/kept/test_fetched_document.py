"""A document that the proxy fetches itself: only a whole and plain success is shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response

from tests.mediate.turns.kept.kept_pod import FIRST, KeptPod, filled_pod, kept_response


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[KeptPod]:
    async with filled_pod(tmp_path) as made:
        yield made


@pytest.mark.requirement("responses:paths-read")
@pytest.mark.parametrize("status", [201, 202, 203, 206, 226, 300])
@pytest.mark.parametrize(
    "path",
    ["/v1/responses/resp_A", "/v1/responses/resp_A/input_items", "/v1/conversations/conv_A/items"],
)
async def test_a_part_of_an_answer_or_one_of_another_kind_is_not_shown(
    pod: KeptPod, path: str, status: int
) -> None:
    pod.api.instead = Response(
        json.dumps(kept_response("resp_A") | {"data": FIRST}), status, media_type="application/json"
    )
    shown = await pod.asks("GET", path)
    assert "desk__balance" not in json.dumps(shown)
    assert shown[0] == 502
