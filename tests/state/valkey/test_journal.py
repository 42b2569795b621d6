"""The turn journal on a server: its indexes stay small."""

from __future__ import annotations

import pytest

from claw_state.journal import RESUME_SECONDS, RequestFingerprint
from claw_state.valkey.client import ValkeyClient
from claw_state.valkey.journal import ValkeyJournal
from tests.state.conftest import Clock
from tests.state.server import SharedState
from tests.state.test_journal import HERE


@pytest.mark.requirement("journal:ten-minutes")
async def test_what_a_busy_agent_is_found_by_on_a_server_does_not_grow(
    shared: SharedState, clock: Clock
) -> None:
    """Conversations that begin alike share one key, and a busy agent never leaves
    it unused for ten minutes.
    """
    journal = ValkeyJournal(ValkeyClient(shared.place, timeout=10), HERE, clock)
    for number in range(20):
        assert await journal.begin(
            f"t{number}", "a", RequestFingerprint(f"request-{number}", "earlier", "Buy", "")
        )
        clock.now += RESUME_SECONDS / 4
    for kept in ("turns", "earlier:earlier"):
        assert int(shared.asks("ZCARD", f"claw:a:a:{kept}").strip(b":\r\n")) <= 4
    await journal.close()
