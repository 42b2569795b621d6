"""feeds.json, memory.json and service-auth/*.json (spec/contract.md "feeds.json, memory.json, service-auth")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, RootModel

from claw_contract.base import Contract
from claw_contract.manifest import BaseUrl, BearerAuth, UrlPath
from claw_contract.secret import Secret


class Feed(Contract):
    """Live data for the system prompt; ``ttl`` in seconds; ``auth`` a bare bearer token."""

    name: str
    source: str
    path: str
    ttl: Annotated[int, Field(ge=0)] = 60
    url: str
    auth: Secret | None = None


class Feeds(RootModel[tuple[Feed, ...]]):
    """feeds.json is a bare array."""


class MemoryRecall(Contract):
    path: UrlPath
    timeout_ms: Annotated[int, Field(gt=0)] = 300


class MemoryPath(Contract):
    path: UrlPath


class Memory(Contract):
    """The service that recalls and retains memories for the agent."""

    version: Literal[1]
    service: str
    base_url: BaseUrl
    recall: MemoryRecall | None = None
    retain: MemoryPath | None = None
    forget: MemoryPath | None = None
    auth: BearerAuth | None = None


class ServiceAuth(Contract):
    """A projected principal: the credential with which calls for this agent reach a service."""

    service: str
    auth_type: Literal["bearer"]
    token: Secret
    principal: str = ""
