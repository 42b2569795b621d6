"""The table of attacks is complete, and docs/attacks.md is current; and tests of an attack that no
other module tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_mediate.core.http import Request, RunnerResponse
from tests import raw
from tests.attacks.table import ATTACKS, page, unknown
from tests.failures.stage import TOKEN, Stage


@pytest.mark.requirement("attack:documented")
def test_every_attack_names_its_requirements_and_the_page_is_current() -> None:
    assert unknown() == []
    assert [one.name for one in ATTACKS if not (one.held_off_by or one.instead)] == []
    file = Path(__file__).parent.parent.parent / "docs" / "attacks.md"
    assert file.read_text(encoding="utf-8") == page(), (
        "python -m tests.attacks.table > docs/attacks.md"
    )


@pytest.mark.requirement("attack:no-credential")
@pytest.mark.parametrize(
    "headers",
    [
        [
            ("host", "analyst"),
            ("origin", "http://localhost:8080"),
            ("sec-fetch-site", "same-origin"),
        ],
        [("cookie", f"authorization=Bearer {TOKEN}"), ("x-claw-id", "analyst")],
        [("proxy-authorization", f"Bearer {TOKEN}"), ("x-forwarded-for", "127.0.0.1")],
        [("authorization", "Bearer analyst:"), ("x-api-key", " ")],
        [("authorization", f"Bearer {TOKEN}, Bearer {TOKEN}")],
        [("authorization", f"bearer\t{TOKEN}x")],
    ],
    ids=["host-and-origin", "cookie", "proxy-authorization", "empty-secret", "doubled", "nearly"],
)
async def test_other_headers_are_no_credential_and_no_peer_is_asked(
    stage: Stage, headers: list[tuple[str, str]]
) -> None:
    async with stage.open() as mediator:
        stage.provider.script = stage.service.script = [raw.answers(200, b"{}")]
        answer = mediator.admit(Request("POST", stage.dialect.PATH, headers, stage.request().body))
        assert isinstance(answer, RunnerResponse)
        assert answer.status in (401, 403)
        assert "planted" not in b"".join([chunk async for chunk in answer.chunks]).decode()
    assert stage.provider.received == stage.service.received == []
