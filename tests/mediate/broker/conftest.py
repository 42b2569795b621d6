from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.mediate.broker.pod import SYMBOL, BrokerPod, McpClient


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[BrokerPod]:
    made = BrokerPod(tmp_path)
    made.open()
    made.service.routes["GET", "/balance"] = JSONResponse({"usd": 12})
    made.service.routes["POST", "/trade"] = JSONResponse({"order": 7})
    made.agent("analyst", made.tool("balance"), made.tool("trade", write=True, schema=SYMBOL))
    yield made
    await made.close()


@pytest.fixture
async def client(pod: BrokerPod) -> McpClient:
    return await pod.client().open()
