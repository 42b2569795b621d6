"""``/health`` and ``/ready``: the answers that an orchestrator gets without a credential."""

from __future__ import annotations

import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from claw_mediate.core.http import Request
from claw_mediate.mediator import Mediator
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.workers import worker as workers
from claw_mediate.workers.worker import Place
from tests.settings import default_settings

pytestmark = pytest.mark.requirement("own:health-ready")


@pytest.fixture
async def mediator(tmp_path: Path) -> AsyncIterator[Mediator]:
    values = default_settings()
    values |= {"state": str(tmp_path / "state.db")}
    values |= {name: str(tmp_path / name) for name in ("context", "auth", "history")}
    (tmp_path / "context").mkdir()
    made = Mediator(Settings.of(values), EventLog(lambda _: None), {"OPENAI_API_KEY": "sk-some"})
    yield made
    await made.close(0)


async def asked(
    mediator: Mediator, path: str, method: str = "GET", host: str | None = None
) -> int | None:
    answer = await mediator.readiness.answer(Request(method, path, [], b"", host))
    return answer.status if answer is not None else None


async def test_health_and_readiness_are_answered_on_the_proxys_own_port_only(
    mediator: Mediator,
) -> None:
    for path in ("/health", "/ready", "/ready?x=1"):
        assert await asked(mediator, path) == await asked(mediator, path, "HEAD") == 200
        assert await asked(mediator, path, "POST") is None
        assert await asked(mediator, path, host="api.openai.com") is None


def no_contexts(home: Path) -> None:
    (home / "context").rmdir()


def no_history(home: Path) -> None:
    shutil.rmtree(home / "history")
    (home / "history").write_text("", encoding="utf-8")


@pytest.mark.parametrize("happens", [no_contexts, no_history])
async def test_without_what_a_turn_needs_the_proxy_is_alive_and_not_ready(
    mediator: Mediator, tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    assert await asked(mediator, "/ready") == 200
    happens(tmp_path)
    assert (await asked(mediator, "/ready"), await asked(mediator, "/health")) == (503, 200)


async def test_a_history_that_can_not_be_written_is_named_as_this_worker_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_current", [])
    values = default_settings() | {"history": str(tmp_path)}
    (tmp_path / ".worker-2").touch()
    with socket.socket() as channel, socket.socket() as inner:
        workers.become(Place(2, 2, channel, inner))
        made = Mediator(Settings.of(values), EventLog(lambda _: None), {})
        assert f"no history can be written in '{tmp_path / '.worker-2'}'" in str(
            made.readiness.missing()
        )
        await made.close(0)


@pytest.mark.usefixtures("brief_lock")
async def test_a_state_that_can_not_be_written_is_not_ready_until_it_can(
    mediator: Mediator, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db", autocommit=True)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await asked(mediator, "/ready") == 503
    assert await asked(mediator, "/ready") == 200
