"""feeds.json, memory.json, context-blocks.json and service-auth/*.json.

Specification: docs/spec/contract.md "feeds.json, memory.json, …".
"""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, RootModel, StringConstraints

from claw_contract.base import Contract
from claw_contract.manifest import BaseUrl, BearerAuth, UrlPath
from claw_contract.secret import Secret, SecretRef

MAX_BLOCK_CHARS = 800  # The default length of a context block, as in the original system
_PLAIN = re.compile(r"[\x21-\x7e]+")


def _check_feed_url(url: str) -> str:
    parts = urlsplit(url)
    names_host = (
        parts.scheme in {"http", "https"}
        and parts.hostname
        and "@" not in parts.netloc
        and parts.port != 0
    )
    is_plain = _PLAIN.fullmatch(url) is not None and "\\" not in url
    if not names_host or parts.fragment or not is_plain:
        raise ValueError(
            "a feed's URL is http(s)://host[:port][/path][?query], without user or fragment"
        )
    return url


def _default_if_blank(default: str) -> AfterValidator:
    return AfterValidator(lambda text: text.strip() or default)


Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A name that the model sees."""


class Feed(Contract):
    """Live data for the system prompt.

    ``ttl``: seconds; ``auth``: a bearer token, or a reference to one.
    """

    name: Label
    source: Label
    path: str
    ttl: Annotated[int, Field(ge=0)] = 60
    url: Annotated[str, AfterValidator(_check_feed_url)]
    auth: Secret | SecretRef | None = None


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


class ContextBlock(Contract):
    """A text of the operator for the system prompt.

    A block with an unsupported placement or cadence is left out.
    """

    id: Label
    kind: str = ""
    text: str
    enabled: bool | None = None  # None means enabled, as in the original system
    placement: Annotated[str, _default_if_blank("after_feeds")] = "after_feeds"
    max_chars: Annotated[
        int, AfterValidator(lambda chars: chars if chars > 0 else MAX_BLOCK_CHARS)
    ] = MAX_BLOCK_CHARS
    cadence: Annotated[str, _default_if_blank("every_turn")] = "every_turn"


class ContextBlocks(Contract):
    """context-blocks.json, in the order of the prompt."""

    version: Literal[1]
    blocks: tuple[ContextBlock, ...] = ()


class ServiceAuth(Contract):
    """The credential with which calls for this agent reach a service (a projected principal)."""

    service: str
    auth_type: Literal["bearer"]
    token: Secret | SecretRef
    principal: str = ""
