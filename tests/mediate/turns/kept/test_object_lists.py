"""Lists of a provider's objects: an agent sees its own only, in pages of these."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, Response

from tests.mediate.turns.kept.object_pod import ObjectPod, object_pod


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[ObjectPod]:
    async with object_pod(tmp_path) as made:
        yield made


@pytest.mark.requirement("objects:lists")
async def test_a_list_has_the_agents_own_objects_and_pages_of_these(pod: ObjectPod) -> None:
    mine = [f"batch_{number}" for number in range(5)]
    pod.account.objects["/v1/batches"] = [
        {"id": each, "output_file_id": f"out-{each}"}
        for number in range(5)
        for each in (f"theirs_{number}", f"batch_{number}")
    ]
    await pod.owns(*(("batch", each) for each in mine))
    status, page = await pod.sends("GET", "/v1/batches?limit=2&x=y")  # type: ignore[misc]
    assert status == 200
    assert [each["id"] for each in page["data"]] == mine[:2]
    assert (page["first_id"], page["last_id"], page["has_more"], page["object"]) == (
        "batch_0",
        "batch_1",
        True,
        "list",
    )
    assert pod.account.queries[0] == {"limit": "100", "x": "y"}

    _, page = await pod.sends("GET", "/v1/batches?limit=2&after=batch_1")  # type: ignore[misc]
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (mine[2:4], True)
    _, page = await pod.sends("GET", "/v1/batches?limit=2&after=batch_3")  # type: ignore[misc]
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (mine[4:], False)
    _, page = await pod.sends("GET", "/v1/batches?limit=2&before=batch_3")  # type: ignore[misc]
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (mine[1:3], True)
    assert "theirs" not in json.dumps(page)
    await pod.passes("GET", "/v1/files/out-batch_1/content")


@pytest.mark.requirement("objects:lists")
async def test_an_agent_without_objects_gets_an_empty_list_and_the_provider_is_not_asked(
    pod: ObjectPod,
) -> None:
    pod.account.objects["/v1/files"] = [{"id": "file-own"}]
    status, page = await pod.sends("GET", "/v1/files", agent_id="clerk")  # type: ignore[misc]
    assert (status, page) == (
        200,
        {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False},
    )
    assert pod.asked == []
    _, page = await pod.sends("GET", "/v1/files")  # type: ignore[misc]
    assert page["data"] == [{"id": "file-own"}]


@pytest.mark.requirement("objects:lists")
@pytest.mark.parametrize(
    "query",
    [
        "after=theirs",
        "before=theirs",
        "limit=0",
        "limit=x",
        "limit=10001",
        f"limit={10**30}",
        f"limit={'0' * 5000}1",
        "after=file-x&limit=1",
    ],
)
async def test_a_cursor_is_an_object_of_the_agents(pod: ObjectPod, query: str) -> None:
    assert (await pod.refuses("GET", f"/v1/files?{query}"))[:2] == (400, "invalid_request")
    assert pod.asked == []


@pytest.mark.requirement("objects:lists")
@pytest.mark.parametrize(
    "answer",
    [
        Response(b"no JSON"),
        JSONResponse({"data": 7}),
        JSONResponse([]),
        JSONResponse({"data": [[]]}),
        Response(b"", 206),
    ],
)
async def test_an_answer_that_is_no_list_is_not_shown(pod: ObjectPod, answer: Response) -> None:
    pod.account.instead = answer
    assert (await pod.refuses("GET", "/v1/files"))[:2] == (502, "provider_bad_response")


@pytest.mark.requirement("objects:lists")
async def test_the_providers_own_error_is_shown_and_an_endless_list_ends(pod: ObjectPod) -> None:
    pod.account.instead = JSONResponse({"error": {"message": "no", "code": "nope"}}, 401)
    assert (await pod.refuses("GET", "/v1/files"))[:2] == (401, "nope")
    pod.account.instead = JSONResponse({"data": [{"id": "theirs"}], "has_more": True})
    _, page = await pod.sends("GET", "/v1/files")  # type: ignore[misc]
    assert page["data"] == []
    assert len(pod.asked) == 3
