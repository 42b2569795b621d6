"""Identification of the agent: 401 without a credential, 403 with a wrong one, in
the same words for both reasons.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from claw_mediate.agents.authenticate import Identity, authenticate
from claw_mediate.agents.directory import AgentDirectory
from claw_mediate.core.http import Request, RunnerResponse
from claw_mediate.telemetry.event_log import EventLog

GOOD = "analyst:secret"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages?beta=true"


@pytest.fixture
def agents(tmp_path: Path) -> AgentDirectory:
    for name in ("analyst", "clerk"):
        (tmp_path / name).mkdir()
        metadata = {
            "service": name,
            "pod": "p",
            "token": f"{name}:secret" if name == "analyst" else "bare",
        }
        (tmp_path / name / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
    return AgentDirectory(tmp_path, EventLog(lambda _: None))


def ask(
    agents: AgentDirectory,
    *headers: tuple[str, str],
    path: str = CHAT,
    told: list[bytes] | None = None,
) -> Identity | RunnerResponse:
    return authenticate(
        agents,
        Request("POST", path, list(headers), b""),
        EventLog(([] if told is None else told).append),
    )


async def refusal(answer: Identity | RunnerResponse) -> tuple[int, bytes]:
    assert isinstance(answer, RunnerResponse)
    return answer.status, b"".join([chunk async for chunk in answer.chunks])


@pytest.mark.requirement("identity:forms")
@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"Bearer {GOOD}")],
        [("authorization", f"bearer  {GOOD} ")],
        [("X-Api-Key", GOOD)],
        [("x-api-key", GOOD), ("authorization", f"Bearer {GOOD}")],
        [("authorization", "Bearer clerk:bare")],
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/models"])
def test_both_header_forms_are_admitted_for_every_dialect(
    agents: AgentDirectory, headers: list[tuple[str, str]], path: str
) -> None:
    answer = ask(agents, *headers, path=path)
    assert isinstance(answer, Identity)
    assert answer.agent.id in repr(headers)
    assert "secret" not in repr(answer.token) + repr(answer.secret)


@pytest.mark.requirement("identity:refused")
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer ")],
        [("x-api-key", "")],
        [("authorization", f"Basic {GOOD}")],
        [("authorization", GOOD)],
        [("authorization", "Bearer analyst")],
        [("authorization", "Bearer analyst:")],
        [("authorization", "Bearer :secret")],
        [("x-api-key", GOOD), ("authorization", "Bearer clerk:bare")],
        [("x-api-key", GOOD), ("x-api-key", "clerk:bare")],
        [("x-api-key", GOOD), ("authorization", "Basic abc")],
        [("authorization", "Bearer sk-real-provider-key")],
    ],
)
async def test_missing_malformed_and_disagreeing_credentials_are_401(
    agents: AgentDirectory, headers: list[tuple[str, str]]
) -> None:
    status, body = await refusal(ask(agents, *headers))
    assert status == 401
    assert json.loads(body)["error"]["code"] == "invalid_api_key"
    assert b"sk-real" not in body


@pytest.mark.requirement("identity:refused")
async def test_an_unknown_agent_and_a_wrong_secret_are_the_same_403(agents: AgentDirectory) -> None:
    tokens = [
        "nobody:secret",
        "analyst:wrong",
        "analyst:Secret",
        "../analyst:secret",
        "ANALYST:secret",
        "clerk:clerk:bare",
    ]
    tokens += [
        "analyst:\udcff\udcfe",
        "analyst:\x00",
        "analyst:secret:",
        "..:x",
        "\udcff:secret",
        "analyst:" + "x" * 100_000,
    ]
    answers = {await refusal(ask(agents, ("authorization", f"Bearer {token}"))) for token in tokens}
    assert len(answers) == 1
    (answer,) = answers
    assert answer[0] == 403


@pytest.mark.requirement("identity:shapes")
@pytest.mark.parametrize("path", [MESSAGES, "/v1/messages/", "/v1/messages/count_tokens"])
async def test_a_refusal_has_the_shape_of_its_dialect(agents: AgentDirectory, path: str) -> None:
    _, anthropic = await refusal(ask(agents, path=path))
    assert json.loads(anthropic)["type"] == "error"
    assert json.loads(anthropic)["error"].keys() == {"type", "message"}
    _, chat = await refusal(ask(agents))
    assert json.loads(chat)["error"].keys() == {"message", "type", "param", "code"}
    for other in ("/v1/files?x=/messages", "/v1/threads/thread_1/messages"):
        _, refused = await refusal(ask(agents, path=other))
        assert json.loads(refused)["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.requirement("identity:told")
@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "no credential was sent"),
        ("sk-of-a-provider", "the credential is not an agent's token"),
        ("nobody:planted", "unknown agent"),
        ("analyst:planted", "wrong token for agent analyst"),
    ],
)
def test_the_log_says_who_was_refused_and_why_without_the_credential(
    agents: AgentDirectory, token: str, reason: str
) -> None:
    told: list[bytes] = []
    ask(agents, ("x-api-key", token), told=told)
    (line,) = told
    event = json.loads(line)
    assert (event["type"], event["error"], event["reason"]) == ("error", "not_admitted", reason)
    assert event["claw_id"] is None
    assert b"planted" not in line
    assert b"sk-of" not in line


@pytest.mark.requirement("connections:unreadable-directory")
async def test_a_runner_is_asked_to_retry_if_the_agents_cannot_be_read(
    agents: AgentDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", fail)
        answer = ask(agents, ("x-api-key", GOOD), told=told)
    assert isinstance(answer, RunnerResponse)
    assert answer.status == 503
    assert dict(answer.headers)["retry-after"]
    assert [json.loads(line)["error"] for line in told] == ["agents_not_read"]
    assert isinstance(ask(agents, ("x-api-key", GOOD)), Identity)


@pytest.mark.requirement("connections:refusals-limited")
def test_endless_refusals_are_a_few_lines_that_name_each_agent(agents: AgentDirectory) -> None:
    told: list[bytes] = []
    log = EventLog(told.append)
    for name in ("analyst", "clerk"):
        request = Request("POST", CHAT, [("x-api-key", f"{name}:wrong")], b"")
        for _ in range(1000):
            assert isinstance(authenticate(agents, request, log), RunnerResponse)
    reasons = [json.loads(line)["reason"] for line in told]
    assert len(reasons) <= 20
    assert set(reasons) == {"wrong token for agent analyst", "wrong token for agent clerk"}
