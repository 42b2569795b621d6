"""The redactors of a pod and of its agents' requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_contract.secret import Secret
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.providers.redactors import Redactors, without_own_token
from claw_mediate.telemetry.event_log import EventLog
from tests.mediate.providers.auth import Auth

TOKEN = "s3cret-of-the-analyst"
KEY = "sk-of-the-provider"


@pytest.fixture
def agents(tmp_path: Path) -> AgentDirectory:
    folder = tmp_path / "context" / "analyst"
    folder.mkdir(parents=True)
    metadata = {"service": "analyst", "pod": "p", "token": f"analyst:{TOKEN}"}
    (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return AgentDirectory(tmp_path / "context", EventLog(lambda _: None))


@pytest.fixture
def redactors(tmp_path: Path, agents: AgentDirectory) -> Redactors:
    registry = Auth(tmp_path).registry({"OPENAI_API_KEY": KEY})
    return Redactors(registry, agents, EventLog(lambda _: None))


def identify(agents: AgentDirectory, secret: str = TOKEN) -> Identity:
    agent = agents.find("analyst")
    assert agent is not None
    return Identity(agent, Secret(f"analyst:{secret}"), Secret(secret))


@pytest.mark.requirement("contract:redaction")
def test_a_secret_of_the_pod_is_not_forgotten_with_its_file(
    tmp_path: Path, redactors: Redactors
) -> None:
    for _ in range(2):
        shown = redactors.of_pod().text(f"{TOKEN} and {KEY}")
        assert TOKEN not in shown
        assert KEY not in shown
        (tmp_path / "context" / "analyst" / "metadata.json").unlink(missing_ok=True)


@pytest.mark.requirement("contract:redaction")
def test_the_redactor_of_a_request_is_made_again_for_another_token_only(
    agents: AgentDirectory, redactors: Redactors
) -> None:
    first = redactors.of_request(identify(agents))
    assert redactors.of_request(identify(agents)) is first

    other = redactors.of_request(identify(agents, "an0ther-token"))
    assert other is not first
    assert "an0ther-token" not in other.text("an0ther-token")


@pytest.mark.requirement("contract:redaction")
@pytest.mark.parametrize("padding", [0, 3 << 20])
async def test_an_agents_own_token_leaves_its_request(agents: AgentDirectory, padding: int) -> None:
    body = json.dumps(["x" * padding, f"TOKEN={TOKEN}"]).encode()
    shown = await without_own_token(identify(agents), body)
    assert TOKEN.encode() not in shown
    assert json.loads(shown)[0] == "x" * padding


@pytest.mark.requirement("contract:redaction")
async def test_a_text_too_long_to_be_redacted_is_refused(agents: AgentDirectory) -> None:
    body = json.dumps(["x" * (5 << 20) + TOKEN]).encode()
    with pytest.raises(UnreadableRequestError, match="own token"):
        await without_own_token(identify(agents), body)
