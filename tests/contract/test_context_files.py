"""The small files of an agent: feeds, memory, context blocks, service-auth."""

from __future__ import annotations

import json

from claw_contract.context_files import Feeds, Memory, ServiceAuth


def test_feeds_are_a_bare_array() -> None:
    feed = {"name": "n", "source": "s", "path": "/p", "url": "http://s/p", "auth": "t0k3n"}
    (read,) = Feeds.model_validate_json(json.dumps([feed])).root
    assert (read.ttl, str(read.auth)) == (60, "••••••")


def test_memory_and_service_auth_hide_their_tokens() -> None:
    auth = {"type": "bearer", "token": "t0k3n"}
    memory = Memory.model_validate(
        {"version": 1, "service": "m", "base_url": "http://m", "auth": auth}
    )
    principal = ServiceAuth.model_validate(
        {"service": "m", "auth_type": "bearer", "token": "t0k3n"}
    )
    assert "t0k3n" not in f"{memory!r}{principal!r}{memory.model_dump_json()}"
