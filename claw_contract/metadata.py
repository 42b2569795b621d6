"""metadata.json: the identity of an agent (docs/spec/contract.md "metadata.json")."""

import hashlib
import hmac
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from claw_contract.base import Contract
from claw_contract.durations import Duration, parse_duration
from claw_contract.names import is_agent_id
from claw_contract.secret import Secret

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class AllowedModel(Contract):
    """One model that the agent may use. ``ref``: ``provider/model``."""

    slot: str
    ref: str


class ModelPolicy(Contract):
    """The models that the agent may use. ``clamp`` replaces any other by the primary one."""

    mode: Literal["clamp"] = "clamp"
    allowed: tuple[AllowedModel, ...] = ()


class Budget(Contract):
    """The agent's limits in a window (a Go duration such as ``24h``)."""

    limit_usd: Annotated[float, Field(gt=0, strict=False)] | None = None
    max_requests: Annotated[int, Field(gt=0)] | None = None
    window: Duration
    behavior: Literal["hard_stop", "rate_limit", "soft_alert"] = "hard_stop"

    @property
    def seconds(self) -> float:
        """The length of the window in seconds."""
        return parse_duration(self.window)


class Metadata(Contract):
    """An agent's identity.

    It has either ``token`` (``<agent-id>:<secret>``, as on the wire) or ``token_sha256``.
    """

    service: str
    ordinal: int | None = None
    pod: str
    type: str = "generic"
    token: Secret | None = None
    token_sha256: Sha256 | None = None
    timezone: str = "UTC"
    model_policy: ModelPolicy | None = None
    budget: Budget | None = None
    digest: Sha256 | None = None

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("exactly one of token and token_sha256 is required")
        return self

    def admits(self, agent_id: str, secret: str) -> bool:
        """Return True if the secret is this agent's, in constant time."""
        # A header may hold any bytes. mitmproxy decodes them to surrogates, which must not raise
        # here.
        presented = f"{agent_id}:{secret}".encode(errors="surrogatepass")
        if self.token_sha256 is not None:
            return hmac.compare_digest(hashlib.sha256(presented).hexdigest(), self.token_sha256)

        own = self.token.reveal() if self.token else ""
        if ":" not in own:  # the original system may store the bare secret
            own = f"{agent_id}:{own}"
        return is_agent_id(agent_id) and hmac.compare_digest(presented, own.encode())
