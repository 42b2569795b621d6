"""Authentication of requests by the agent's token, compared in constant time.

docs/spec/mediation.md section 2.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from claw_contract.names import is_agent_id
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent, AgentDirectory, UnreadableDirectoryError
from claw_mediate.core.http import (
    RETRY_AFTER,
    Request,
    RunnerResponse,
    build_error_body,
    refuse,
    respond,
)
from claw_mediate.http.headers import contains_secret
from claw_mediate.telemetry.event_log import EventLog

_MAX_DECODINGS = 8


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated agent and its credential.

    The credential must not appear in anything that leaves the proxy.
    """

    agent: Agent
    token: Secret
    secret: Secret


def authenticate(
    agents: AgentDirectory, request: Request, log: EventLog
) -> Identity | RunnerResponse:
    """Return the agent, or the refusal.

        401     the credential is missing or malformed
        403     it is wrong
        400     it stands in the URL
        503     which agents there are can't be found out now

    The log names the exact reason; the client sees less.
    """
    tokens = {token for token in (*_bearer_tokens(request), *request.header("x-api-key")) if token}
    if len(tokens) != 1:
        problem = "two different credentials were sent" if tokens else "no credential was sent"
        return _refuse_key(log, request, problem, "send the agent's token as the API key")

    token = tokens.pop()
    agent_id, colon, secret = token.partition(":")
    if not (agent_id and colon and secret):
        problem = "the credential is not an agent's token"
        return _refuse_key(log, request, problem, "send <agent-id>:<secret> as the API key")

    try:
        agent = agents.find(agent_id) if is_agent_id(agent_id) else None
    except UnreadableDirectoryError as error:
        log.limited_event("error", error="agents_not_read", reason=str(error))
        message = "the agents can't be read now; ask again"
        body = build_error_body(request.path, 503, "agents_unavailable", message)
        return respond(503, body, retry_after=RETRY_AFTER)

    if agent is None or not agent.metadata.admits(agent_id, secret):
        _log_refusal(log, "unknown agent" if agent is None else f"wrong token for agent {agent.id}")
        return refuse(request.path, 403, "agent_not_admitted", "this token is not admitted here")

    if _url_contains(request.path, Secret(secret)):
        _log_refusal(log, f"the URL contains the token of agent {agent.id}")
        message = "a credential must not stand in a URL; send it as a header"
        return refuse(request.path, 400, "credential_in_url", message)

    return Identity(agent, Secret(token), Secret(secret))


def _refuse_key(log: EventLog, request: Request, problem: str, remedy: str) -> RunnerResponse:
    _log_refusal(log, problem)
    return refuse(request.path, 401, "invalid_api_key", f"{problem}; {remedy}")


def _url_contains(path: str, secret: Secret) -> bool:
    """Return whether a URL contains the secret, however often it is percent-encoded.

    Servers and proxies on the way may each decode it once more. What is encoded more often than
    anybody does counts as containing it.
    """
    for _ in range(_MAX_DECODINGS):
        if contains_secret(path, secret):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded

    return True


def _log_refusal(log: EventLog, reason: str) -> None:
    log.limited_event("error", error="not_admitted", reason=reason)


def _bearer_tokens(request: Request) -> list[str]:
    tokens = []
    for value in request.header("authorization"):
        scheme, _, token = value.strip().partition(" ")
        # Any other scheme counts as an unreadable credential, not as none.
        tokens.append(token.strip() if scheme.lower() == "bearer" else "\0")
    return tokens
