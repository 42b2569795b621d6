"""Who is asking: the agent by its token, compared in constant time (spec/mediation.md section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from claw_contract.names import is_agent_id
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent, Agents
from claw_mediate.core.http import Request, RunnerResponse, refuse
from claw_mediate.http.headers import tells
from claw_mediate.telemetry.event_log import EventLog


@dataclass(frozen=True, slots=True)
class Admitted:
    """An identified agent, and the credential that it showed (so that it can be kept out of everything that leaves)."""

    agent: Agent
    token: Secret
    secret: Secret


def admit(agents: Agents, request: Request, log: EventLog) -> Admitted | RunnerResponse:
    """The agent, or the refusal: 401 for a missing or malformed credential, 403 for one that is not right. The log is told more
    of it than who asks.
    """
    shown = {token for token in (*_bearers(request), *request.header("x-api-key")) if token}
    if len(shown) != 1:
        problem = "two different credentials were sent" if shown else "no credential was sent"
        _tell(log, problem)
        return refuse(request.path, 401, "invalid_api_key", f"{problem}; send the agent's token as the API key")
    token = shown.pop()
    agent_id, colon, secret = token.partition(":")
    if not (agent_id and colon and secret):
        problem = "the credential is not an agent's token"
        _tell(log, problem)
        return refuse(request.path, 401, "invalid_api_key", f"{problem}; send <agent-id>:<secret> as the API key")
    agent = agents.find(agent_id) if is_agent_id(agent_id) else None
    if agent is None or not agent.metadata.admits(agent_id, secret):
        _tell(
            log,
            "the token is of no agent that is known" if agent is None else f"the token of {agent.id} is another one",
        )
        return refuse(request.path, 403, "agent_not_admitted", "this token is not admitted here")
    if tells(unquote(request.path), Secret(secret)):
        _tell(log, f"the token of {agent.id} stands in a URL")
        message = "a credential must not stand in a URL; send it as a header"
        return refuse(request.path, 400, "credential_in_url", message)
    return Admitted(agent, Secret(token), Secret(secret))


def _tell(log: EventLog, reason: str) -> None:
    log.event("error", error="not_admitted", reason=reason)


def _bearers(request: Request) -> list[str]:
    found = []
    for value in request.header("authorization"):
        scheme, _, token = value.strip().partition(" ")
        # Any other scheme counts as a credential that can't be read, not as none.
        found.append(token.strip() if scheme.lower() == "bearer" else "\0")
    return found
