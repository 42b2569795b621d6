"""Which row of the known paths a request is in, at its provider or at the proxy's own listener."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from claw_contract.metadata import Metadata
from claw_contract.opened_paths import parse_opened_paths
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core.http import Request
from claw_mediate.core.known_paths import PathMatch
from claw_mediate.providers.paths import PathTables, provider_target
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.mediate.made import limits
from tests.mediate.providers.auth import Auth

OPENAI = "api.openai.com"
ANTHROPIC = "api.anthropic.com"


@dataclass
class Paths:
    """The tables, and the registry that they ask for providers."""

    tables: PathTables
    registry: ProviderRegistry
    events: list[dict[str, object]]

    def row(self, request: Request) -> str | None:
        """Return the family and the path of the row that a request is in."""
        match = self.tables.find(request)
        return None if match is None else f"{match.family} {match.path}"

    def found(self, request: Request) -> PathMatch:
        match = self.tables.find(request)
        assert match is not None
        return match


type Open = Callable[..., Paths]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Return a function that opens paths, where both usual providers have a key."""

    def tables(entries: str = "", **env: str) -> Paths:
        events: list[dict[str, object]] = []
        log = EventLog(lambda line: events.append(known(line)))
        keys = {"OPENAI_API_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-2"}
        registry = Auth(tmp_path).registry(keys | env)
        return Paths(PathTables(registry, parse_opened_paths(entries), log), registry, events)

    return tables


def get(path: str, host: str | None = None, **headers: str) -> Request:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("GET", path, named, b"", host)


def post(path: str, host: str | None = None) -> Request:
    return Request("POST", path, [], b"{}", host)


@pytest.mark.requirement("paths:families")
def test_a_host_decides_whose_table_is_read(opened: Open) -> None:
    paths = opened()
    assert paths.row(post("/v1/embeddings", OPENAI)) == "openai /embeddings"
    assert paths.row(post("/v1/embeddings", ANTHROPIC)) is None
    assert paths.row(post("/v1/messages", ANTHROPIC)) == "anthropic /messages"
    assert paths.row(post("/v1/messages", OPENAI)) is None


@pytest.mark.requirement("paths:families")
def test_at_the_own_listener_a_header_tells_whose_a_path_of_both_is(opened: Open) -> None:
    paths = opened()
    of_anthropic = get("/v1/models", anthropic_version="2023-06-01")
    assert paths.row(get("/v1/models")) == "openai /models"
    assert paths.row(of_anthropic) == "anthropic /models"
    assert paths.row(post("/v1/messages")) == "anthropic /messages", "only one has it"
    assert opened(ANTHROPIC_API_KEY="").row(of_anthropic) == "openai /models", "without a key"


@pytest.mark.requirement("paths:families")
def test_a_kept_object_is_known_though_only_its_own_answer_finds_it(opened: Open) -> None:
    paths = opened()
    kept = get("/v1/responses/resp_1/input_items")
    assert paths.tables.knows(kept)
    assert not paths.tables.knows(get("/v2/responses/resp_1"))


@pytest.mark.requirement("paths:spelling")
def test_a_request_is_sent_in_the_spelling_that_was_decided_about(opened: Open) -> None:
    tables = opened().tables
    request = post("/V1//Embeddings/?x=%2F", OPENAI)
    match = tables.find(request)
    assert tables.canonical(request, match).path == "/v1/embeddings?x=%2F"

    plain = post("/v1/embeddings", OPENAI)
    assert tables.canonical(plain, tables.find(plain)) is plain
    assert tables.canonical(request, None) is request


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize("query", ["_method=DELETE", "%24httpMethod=PUT", "X-HTTP-Method=PATCH"])
def test_a_query_that_names_another_method_is_in_no_row(opened: Open, query: str) -> None:
    paths = opened("POST /v1/extra")
    assert paths.row(post(f"/v1/embeddings?{query}", OPENAI)) is None
    assert paths.row(post(f"/v1/extra?{query}", OPENAI)) is None


@pytest.mark.requirement("paths:opened")
def test_an_opened_path_has_a_row_of_its_own_for_its_method_only(opened: Open) -> None:
    paths = opened("POST /v1/extra/*")
    match = paths.found(post("/v1/Extra/Part", OPENAI))
    assert (match.path, match.row.is_counted) == ("/v1/Extra/Part", True)
    assert paths.row(get("/v1/extra/part", OPENAI)) is None
    assert paths.row(post("/v1/extra%2520/part", OPENAI)) is None, "some decode it twice"


@pytest.mark.requirement("paths:credentials")
def test_what_mints_credentials_is_in_no_row_whatever_is_opened(opened: Open) -> None:
    paths = opened("POST /v1/*")
    assert paths.row(post("/v1/organization/admin_api_keys", OPENAI)) is None
    assert paths.row(post("/v1/extra", OPENAI)) is not None


@pytest.mark.requirement("paths:spelling")
def test_a_row_is_sent_below_its_providers_base_path(opened: Open) -> None:
    paths = opened(OPENAI_BASE_URL="http://gateway:4000/openai")
    provider = paths.registry.all()["openai"]
    request = post("/v1/embeddings?a=1")
    assert provider_target(provider, paths.found(request), request.path) == (
        "http://gateway:4000/openai",
        "/embeddings?a=1",
    )


@pytest.mark.requirement("paths:closed")
async def test_a_refusal_names_the_path_and_its_remedy_once_in_the_log(opened: Open) -> None:
    paths = opened()
    metadata = Metadata(service="a", pod="p", token=Secret("analyst:x"))
    agent = Agent("analyst", metadata, (), limits(), "digest")
    refusal = paths.tables.refuse(agent, post("/v1/Extra", OPENAI))
    text = b"".join([chunk async for chunk in refusal.chunks]).decode()
    assert refusal.status == 403
    assert "CLLAMA_PATHS='POST /v1/extra'" in text
    (event,) = paths.events
    assert (event["intervention"], event["reason"]) == ("path_not_allowed", "POST /v1/Extra")
