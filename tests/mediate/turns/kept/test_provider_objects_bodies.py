"""Objects of a provider that a body names: an agent names its own only, however it writes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Request, RunnerResponse
from claw_state.ownership import KeptObject
from tests.mediate.turns.kept.object_pod import (
    CHAT,
    JSON,
    MESSAGES,
    OWN,
    RESPONSES,
    ObjectPod,
    object_pod,
    user,
)
from tests.wires import Body


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[ObjectPod]:
    async with object_pod(tmp_path) as made:
        yield made


BODIES: dict[str, tuple[str, str, Body]] = {
    "a file of a chat": (
        CHAT,
        "file_id",
        {"messages": [user({"type": "file", "file": {"file_id": "file-own"}})]},
    ),
    "an input": (
        RESPONSES,
        "file_id",
        {"input": [user({"type": "input_file", "file_id": "file-own"})]},
    ),
    "a container": (
        RESPONSES,
        "container",
        {"input": "Hi", "tools": [{"type": "code_interpreter", "container": "cntr_own"}]},
    ),
    "its files": (
        RESPONSES,
        "file_ids",
        {
            "input": "Hi",
            "tools": [
                {
                    "type": "code_interpreter",
                    "container": {"type": "auto", "file_ids": ["file-own"]},
                }
            ],
        },
    ),
    "a search": (
        RESPONSES,
        "vector_store_ids",
        {"input": "Hi", "tools": [{"type": "file_search", "vector_store_ids": ["vs_own"]}]},
    ),
    "a compaction": (
        f"{RESPONSES}/compact",
        "file_id",
        {"input": [user({"type": "input_file", "file_id": "file-own"})]},
    ),
    "a count": (
        f"{RESPONSES}/input_tokens",
        "file_id",
        {"input": [user({"type": "input_file", "file_id": "file-own"})]},
    ),
    "a new store": ("/v1/vector_stores", "file_ids", {"name": "x", "file_ids": ["file-own"]}),
    "a file of a store": ("/v1/vector_stores/vs_own/files", "file_id", {"file_id": "file-own"}),
    "files of a store": (
        "/v1/vector_stores/vs_own/file_batches",
        "file_id",
        {"files": [{"file_id": "file-own"}]},
    ),
    "a file of a container": ("/v1/containers/cntr_own/files", "file_id", {"file_id": "file-own"}),
    "files of a container": ("/v1/containers", "file_ids", {"name": "x", "file_ids": ["file-own"]}),
    "a batch": (
        "/v1/batches",
        "input_file_id",
        {"input_file_id": "file-own", "endpoint": "/v1/embeddings"},
    ),
    "a run": (
        "/v1/threads/thread_own/runs",
        "assistant_id",
        {"assistant_id": "asst_own", "model": "gpt-test"},
    ),
    "a thread and a run": (
        "/v1/threads/runs",
        "assistant_id",
        {"assistant_id": "asst_own", "model": "gpt-test"},
    ),
    "an attachment": (
        "/v1/threads/thread_own/messages",
        "file_id",
        {"role": "user", "content": "Hi", "attachments": [{"file_id": "file-own", "tools": []}]},
    ),
    "an assistant": (
        "/v1/assistants",
        "vector_store_ids",
        {"model": "gpt-test", "tool_resources": {"file_search": {"vector_store_ids": ["vs_own"]}}},
    ),
    "an eval's source": (
        "/v1/evals/eval_own/runs",
        "id",
        {"data_source": {"type": "jsonl", "source": {"type": "file_id", "id": "file-own"}}},
    ),
    "a video": (
        "/v1/videos",
        "file_id",
        {"model": "sora", "prompt": "x", "input_reference": {"file_id": "file-own"}},
    ),
    "an image": (
        "/v1/images/edits",
        "file_id",
        {"model": "gpt-image", "images": [{"file_id": "file-own"}]},
    ),
}
ANTHROPIC_BODIES: dict[str, tuple[str, Body]] = {
    "a document": (
        MESSAGES,
        {
            "max_tokens": 9,
            "messages": [
                user({"type": "document", "source": {"type": "file", "file_id": "file-own"}})
            ],
        },
    ),
    "a container of messages": (
        MESSAGES,
        {"max_tokens": 9, "container": "cntr_own", "messages": [user()]},
    ),
    "a container with skills": (
        MESSAGES,
        {"max_tokens": 9, "container": {"id": "cntr_own", "skills": []}, "messages": [user()]},
    ),
    "a batch of messages": (
        "/v1/messages/batches",
        {
            "requests": [
                {
                    "custom_id": "1",
                    "params": {
                        "messages": [user({"type": "container_upload", "file_id": "file-own"})]
                    },
                }
            ]
        },
    ),
}
FIRST_MODEL = {"model": "gpt-test"}


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize("tools", [False, True], ids=["forwarded", "mediated"])
@pytest.mark.parametrize(("path", "member", "body"), BODIES.values(), ids=BODIES)
async def test_a_body_names_the_agents_own_objects_only(
    pod: ObjectPod, path: str, member: str, body: Body, tools: bool
) -> None:
    for agent_id in ("analyst", "clerk") if tools else ():
        pod.agent(agent_id, pod.tool())
    await pod.owns(*((kind, each) for kind, each in OWN.items() if each in path), agent_id="clerk")
    body = (
        {**FIRST_MODEL, **body}
        if path in (CHAT, RESPONSES, f"{RESPONSES}/compact", f"{RESPONSES}/input_tokens")
        else body
    )
    assert await pod.refuses("POST", path, body, agent_id="clerk") == (
        404,
        "object_not_found",
        member,
    )
    assert pod.asked == []

    if path not in (CHAT, RESPONSES) or not tools:
        assert (await pod.passes("POST", path, body)).credential == [
            ("authorization", "Bearer sk-first")
        ]


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize(("path", "body"), ANTHROPIC_BODIES.values(), ids=ANTHROPIC_BODIES)
async def test_the_same_for_anthropics_bodies_in_its_own_shape(
    pod: ObjectPod, path: str, body: Body
) -> None:
    status, answer = await pod.sends("POST", path, {"model": "claude", **body}, agent_id="clerk")  # type: ignore[misc]
    assert (status, answer["type"], answer["error"]["type"]) == (404, "error", "not_found_error")
    assert "CLLAMA_STORED_IDS=any" in answer["error"]["message"]
    assert pod.asked == []


HIDDEN_IDS = {
    "twice, theirs first": b'{"name":"x","file_ids":["file-x"],"file_ids":["file-own"]}',
    "twice, theirs last": b'{"name":"x","file_ids":["file-own"],"file_ids":["file-x"]}',
    "an escaped name": b'{"name":"x","file\\u005fids":["file-x"]}',
    "a text for a list": b'{"name":"x","file_ids":"file-x"}',
    "behind own ones": b'{"name":"x","file_ids":["file-own","file-own","file-x"]}',
    "with a space": b'{"name":"x","file_ids":["file-own "]}',
    "with a line break": b'{"name":"x","file_ids":["file-own\\n"]}',
    "an array": b'[{"file_ids":["file-x"]}]',
}


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize("body", HIDDEN_IDS.values(), ids=HIDDEN_IDS)
async def test_an_id_cant_be_hidden_in_a_body(pod: ObjectPod, body: bytes) -> None:
    assert await pod.refuses("POST", "/v1/vector_stores", body) == (
        404,
        "object_not_found",
        "file_ids",
    )


UNREADABLE = {
    "UTF-16": ('{"file_ids":["file-x"]}'.encode("utf-16"), JSON),
    "a mark of its order": (b'\xef\xbb\xbf{"file_ids":["file-x"]}', JSON),
    "two documents": (b'{} {"file_ids":["file-x"]}', JSON),
    "no JSON": (b"file_ids=file-x", JSON),
    "a plain form": (b"file_ids=file-x", "application/x-www-form-urlencoded"),
    "a form without a boundary": (b"--x", "multipart/form-data"),
}


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize(("body", "content_type"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_body_that_cant_be_read_is_refused_where_it_may_name_objects(
    pod: ObjectPod, body: bytes, content_type: str
) -> None:
    headers = (("content-type", content_type),)
    assert (await pod.refuses("POST", "/v1/vector_stores", body, headers=headers))[:2] == (
        400,
        "invalid_request",
    )
    unread = Request(
        "POST", "/v1/vector_stores", [("authorization", f"Bearer {pod.token('analyst')}")], b""
    )
    admitted = pod.mediator.admit(unread)
    assert isinstance(admitted, Identity)
    decision = await pod.mediator.other_paths.decide_unread(admitted, unread, "it is too large")
    assert isinstance(decision, RunnerResponse)
    assert decision.status == 400


def form(*fields: tuple[str, str]) -> bytes:
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    )
    return f"{parts}--b--\r\n".encode()


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize(
    "name", ["file_id", "file_ids[]", "image[0][file_id]", "input_reference.file_id"]
)
async def test_a_form_names_the_agents_own_objects_only(pod: ObjectPod, name: str) -> None:
    headers = (("content-type", "multipart/form-data; boundary=b"),)
    path = "/v1/containers/cntr_own/files"
    assert await pod.refuses("POST", path, form((name, "file-x")), headers=headers) == (
        404,
        "object_not_found",
        name,
    )
    nested = form(("input_reference", '{"file_id":"file-x"}'))
    assert (await pod.refuses("POST", path, nested, headers=headers))[:2] == (
        404,
        "object_not_found",
    )
    await pod.passes(
        "POST", path, form((name, "file-own"), ("file", "text with file-x")), headers=headers
    )


@pytest.mark.requirement("objects:bodies")
async def test_a_query_names_the_agents_own_objects_only(pod: ObjectPod) -> None:
    path = "/v1/threads/thread_own/messages"
    for query in (
        "file_id=file-x",
        "x=1&thread_id=thread_x",
        "file_ids[]=file-x",
        "%66ile_id=file-x",
    ):
        assert (await pod.refuses("GET", f"{path}?{query}"))[:2] == (404, "object_not_found")
    await pod.passes("GET", f"{path}?after=msg_1&file_id=file-own")


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech", CHAT])
async def test_what_a_runner_says_about_ids_passes(pod: ObjectPod, path: str) -> None:
    text = 'the member "file_id": "file-x" of "container"'
    body = {
        "model": "gpt-test",
        "input": text,
        "messages": [user({"type": "text", "text": text})],
        "metadata": {"file_id": "x"},
    }
    await pod.passes("POST", path, body)


@pytest.mark.requirement("objects:bodies")
async def test_a_packed_body_is_sent_as_it_was_read(pod: ObjectPod) -> None:
    headers = (("content-type", JSON), ("content-encoding", "deflate"))
    body = b'{"name":"x","file_ids":["file-own"]}'
    assert (await pod.passes("POST", "/v1/vector_stores", body, headers=headers)).body == body
    chat = b'{"model":"gpt-test","messages":[]}'
    assert (await pod.passes("POST", CHAT, chat, headers=headers)).body == chat


@pytest.mark.requirement("objects:evals")
@pytest.mark.parametrize("source", ["responses", "stored_completions", "logs"])
async def test_an_eval_reads_no_store_that_all_agents_share(pod: ObjectPod, source: str) -> None:
    body = {"data_source": {"type": "completions", "source": {"type": source, "metadata": {}}}}
    assert (await pod.refuses("POST", "/v1/evals/eval_own/runs", body))[:2] == (
        404,
        "object_not_found",
    )
    body = {"data_source_config": {"type": source}, "testing_criteria": []}
    assert (await pod.refuses("POST", "/v1/evals", body))[:2] == (404, "object_not_found")


@pytest.mark.requirement("objects:bodies")
async def test_an_item_of_a_conversation_names_the_agents_own_file_only(pod: ObjectPod) -> None:
    await pod.keeps(KeptObject("conv_1", "conv_1", "openai"))
    body = {"items": [user({"type": "input_file", "file_id": "file-x"})]}
    assert await pod.refuses("POST", "/v1/conversations/conv_1/items", body) == (
        404,
        "object_not_found",
        "file_id",
    )
    assert await pod.refuses("POST", "/v1/conversations", body) == (
        404,
        "object_not_found",
        "file_id",
    )
    assert pod.asked == []
