"""Which protocol a path speaks, however it is spelled; the examples of its docstrings are in
``tests/test_examples.py``.
"""

from __future__ import annotations

import pytest

from claw_mediate.core.api_paths import (
    MAX_CACHED_LENGTH,
    creates_object,
    find_endpoint,
    find_kept,
    is_anthropic,
    normalize_path,
)

SPELLINGS = (
    "/v1/responses",
    "/v1//Responses/",
    "/v1/x/../responses?stream=true",
    "/v1/%72esponses",
    "/v1;x=1/responses;y",
    "\\v1\\responses",
    "/openai/v1/responses#x",
)


@pytest.mark.requirement("proxy:no-way-round")
@pytest.mark.parametrize("path", SPELLINGS)
def test_every_spelling_of_a_path_has_the_endpoint_that_a_lenient_server_finds(path: str) -> None:
    assert find_endpoint(path) == "/responses"


@pytest.mark.requirement("proxy:no-way-round")
def test_a_path_that_is_too_long_for_the_cache_has_the_same_endpoint() -> None:
    long = "/v1" + "/." * MAX_CACHED_LENGTH
    assert find_endpoint(f"{long}/messages") == "/messages"
    assert find_endpoint(f"{long}/files") is None


@pytest.mark.requirement("proxy:no-way-round")
@pytest.mark.parametrize(
    "path",
    ["/v1/threads/thread_1/messages", "/v1/chat/completions/c_1/messages", "/v1/models", "/", ""],
)
def test_a_path_that_asks_no_model_has_no_endpoint(path: str) -> None:
    assert find_endpoint(path) is None


@pytest.mark.requirement("proxy:no-way-round")
def test_a_path_that_was_normalized_stays_as_it_is() -> None:
    normalized = [normalize_path(path) for path in SPELLINGS]
    assert [normalize_path(path) for path in normalized] == normalized


@pytest.mark.requirement("responses:paths-owner")
@pytest.mark.parametrize(
    ("path", "kind", "object_id", "part"),
    [
        ("/v1/responses/resp_A", "responses", "resp_A", ""),
        ("/v1/RESPONSES/resp_A/cancel", "responses", "resp_A", "/cancel"),
        ("/v1/conversations/conv_A/items/msg_1", "conversations", "conv_A", "/items/msg_1"),
        ("/v1/re\u017fponses/resp_A", "responses", "resp_A", ""),
        ("/v1/conversations", "conversations", "", ""),
    ],
)
def test_a_kept_object_is_found_in_its_path_with_its_id_as_written(
    path: str, kind: str, object_id: str, part: str
) -> None:
    found = find_kept(path)
    assert found is not None
    assert (found.kind, found.id, found.part) == (kind, object_id, part)


@pytest.mark.requirement("responses:paths-owner")
def test_what_is_sent_for_a_kept_object_has_the_providers_id_and_no_other_path() -> None:
    found = find_kept("/v1/responses/resp_A/input_items?limit=1")
    assert found is not None
    assert found.target("resp_1") == "/v1/responses/resp_1/input_items?limit=1"
    assert found.target("resp/../x?y", "", "") == "/v1/responses/resp/../x%3Fy"


@pytest.mark.requirement("responses:paths-owner")
def test_only_a_post_to_the_list_of_conversations_makes_one() -> None:
    assert creates_object("post", "/v1/Conversations/")
    assert not creates_object("GET", "/v1/conversations")
    assert not creates_object("POST", "/v1/conversations/conv_A")
    assert not creates_object("POST", "/v1/responses")


@pytest.mark.requirement("identity:shapes")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/messages", True),
        ("/v1/messages/count_tokens?beta=true", True),
        ("/v1/messages/batches/b_1", True),
        ("/v1/chat/completions", False),
        ("/v1/threads/t_1/messages", False),
    ],
)
def test_errors_have_anthropics_shape_on_its_paths_only(path: str, *, expected: bool) -> None:
    assert is_anthropic(path) is expected
