"""Files, batches and the like: each agent reads, lists, names and deletes its own only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_mediate.core.object_ids import GivenObject
from claw_state.health import StateUnavailableError
from claw_state.ownership import OwnedObject, ProviderObject
from claw_state.url import StoreError
from tests.mediate.stored_pod import StoredApi, StoredPod
from tests.wires import Body

JSON = "application/json"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


@dataclass
class AccountApi(StoredApi):
    """A provider whose account has objects, each in a list by its path: newest first, in pages of three."""

    objects: dict[str, list[Body]] = field(default_factory=dict)
    queries: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: HttpRequest) -> Response:
        listed = self.objects.get(request.url.path)
        if self.instead is not None or request.method != "GET" or listed is None:
            return await super().answer(request)

        query = dict(request.query_params)
        self.queries.append(query)
        cursor = query.get("after") or query.get("after_id")
        ids = [each["id"] for each in listed]
        start = ids.index(cursor) + 1 if cursor else 0
        page = listed[start : start + 3]
        has_more = start + 3 < len(listed)
        return JSONResponse({"object": "list", "data": page, "has_more": has_more, "last_id": page[-1]["id"] if page else None})


class ObjectPod(StoredPod):
    """A pod whose agent ``analyst`` owns an object of each kind, with ``own`` in its id."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.api = self.account = AccountApi()

    def providers(self) -> Body:
        anthropic = {"base_url": f"{self.second.url}/v1", "api_key": "sk-first", "api_format": "anthropic"}
        return {**super().providers(), "anthropic": anthropic}

    async def owns(
        self, *names: tuple[str, str], agent_id: str = "analyst", provider: str = "openai", key: str = "first"
    ) -> None:
        objects = [ProviderObject(kind, each, provider, key) for kind, each in names]
        await self.mediator.state.ownership.save_objects(agent_id, objects)

    async def sends(
        self,
        method: str,
        path: str,
        body: Any = b"",
        agent_id: str = "analyst",
        host: str | None = None,
        headers: tuple[tuple[str, str], ...] = (("content-type", JSON),),
    ) -> Forward | tuple[int, Any]:
        """Return how a request is forwarded; or status and document of the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = [("authorization", f"Bearer {self.token(agent_id)}"), *headers]
        head = Request(method, path, fields, b"", host)
        admitted = self.mediator.admit(head)
        if isinstance(admitted, Identity):
            if self.mediator.must_read(admitted, head):
                decision = await self.mediator.exchange(admitted, Request(method, path, fields, raw, host))
            else:
                decision = await self.mediator.other_paths.decide_unread(admitted, head)
        else:
            decision = admitted
        if isinstance(decision, Forward):
            return decision
        text = b"".join([chunk async for chunk in decision.chunks])
        return decision.status, json.loads(text) if text else None

    async def passes(self, *args: Any, **more: Any) -> Forward:
        decision = await self.sends(*args, **more)
        assert isinstance(decision, Forward), decision
        return decision

    async def refuses(self, *args: Any, **more: Any) -> tuple[int, str, str | None]:
        """Return status, code (of Anthropic's errors: the type) and member of a refusal."""
        decision = await self.sends(*args, **more)
        assert not isinstance(decision, Forward), decision
        status, answer = decision
        error = answer["error"]
        return status, error.get("code") or error["type"], error.get("param")


OWN = {
    "file": "file-own",
    "upload": "upload_own",
    "batch": "batch_own",
    "message_batch": "msgbatch_own",
    "vector_store": "vs_own",
    "container": "cntr_own",
    "assistant": "asst_own",
    "thread": "thread_own",
    "eval": "eval_own",
    "video": "video_own",
}


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[ObjectPod]:
    made = ObjectPod(tmp_path)
    made.open()
    for agent_id in ("analyst", "clerk"):
        made.agent(agent_id)  # without tools, so that requests of dialects are forwarded
    await made.owns(*((kind, each) for kind, each in OWN.items() if kind != "message_batch"))
    await made.owns(("message_batch", OWN["message_batch"]), provider="anthropic", key="")
    yield made
    await made.close()


PATHS = (
    ("GET", "/v1/files/file-own"),
    ("DELETE", "/v1/files/file-own"),
    ("GET", "/v1/files/file-own/content"),
    ("POST", "/v1/uploads/upload_own/parts"),
    ("POST", "/v1/uploads/upload_own/complete"),
    ("POST", "/v1/uploads/upload_own/cancel"),
    ("GET", "/v1/batches/batch_own"),
    ("POST", "/v1/batches/batch_own/cancel"),
    ("GET", "/v1/messages/batches/msgbatch_own"),
    ("DELETE", "/v1/messages/batches/msgbatch_own"),
    ("GET", "/v1/messages/batches/msgbatch_own/results"),
    ("GET", "/v1/vector_stores/vs_own"),
    ("POST", "/v1/vector_stores/vs_own/search"),
    ("GET", "/v1/vector_stores/vs_own/files/file-x/content"),
    ("GET", "/v1/containers/cntr_own/files"),
    ("GET", "/v1/containers/cntr_own/files/cfile_x/content"),
    ("DELETE", "/v1/assistants/asst_own"),
    ("GET", "/v1/threads/thread_own/messages"),
    ("GET", "/v1/threads/thread_own/runs/run_x/steps"),
    ("DELETE", "/v1/threads/thread_own"),
    ("GET", "/v1/evals/eval_own/runs/run_x/output_items"),
    ("POST", "/v1/evals/eval_own/runs/run_x/cancel"),
    ("GET", "/v1/videos/video_own/content"),
)


@pytest.mark.requirement("objects:paths")
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_an_object_and_its_parts_are_its_owners(pod: ObjectPod, method: str, path: str) -> None:
    is_anthropic = "/messages/batches" in path
    hosts = [None] if is_anthropic else [None, "api.openai.com"]
    for host in hosts:
        decision = await pod.passes(method, path, host=host)
        assert decision.target == path.removeprefix("/v1")
        assert "sk-first" in decision.credential[0][1]
        status, code, _ = await pod.refuses(method, path, agent_id="clerk", host=host)
        assert (status, code) == (404, "not_found_error" if is_anthropic else "object_not_found")
    assert pod.asked == []


@pytest.mark.requirement("objects:paths")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/files/file-own/",
        "/V1/Files/file-own",
        "/v1//files///file-own",
        "/v1/%66iles/%66ile-own",
        "/v1/files/file-x/../file-own",
        "/v1/files/file-x%2F..%2Ffile-own",
        "/v1/files;x/file-own;y",
        "/v1\\files\\file-own",
        "/v1/files/file-own%3Fx",
        "/files/file-own",
        "/v1/files/file-own?after=x",
    ],
)
async def test_no_spelling_reaches_another_agents_object(pod: ObjectPod, path: str) -> None:
    assert (await pod.sends("GET", path, agent_id="clerk"))[0] == 404  # type: ignore[index]
    decision = await pod.passes("GET", path)
    assert decision.target.partition("?")[0] == "/files/file-own"


@pytest.mark.requirement("objects:paths")
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "QUERY", "get"])
async def test_no_other_method_reaches_another_agents_object(pod: ObjectPod, method: str) -> None:
    for path in ("/v1/files/file-own", "/v1/files", "/v1/threads/thread_own/messages"):
        decision = await pod.sends(method, path, agent_id="clerk")
        assert not isinstance(decision, Forward)
        assert decision[0] in {200, 403, 404}
        assert decision[0] != 200 or decision[1]["data"] == []
    assert pod.asked == []


@pytest.mark.requirement("objects:paths")
@pytest.mark.parametrize("path", ["/v1/files/FILE-OWN", "/v1/files/batch_own", "/v1/batches/file-own", "/v1/files/resp_1"])
async def test_an_id_of_another_case_or_kind_is_nobodys(pod: ObjectPod, path: str) -> None:
    await pod.keeps(OwnedObject("resp_1", "resp_1", "openai"))
    assert (await pod.refuses("GET", path))[:2] == (404, "object_not_found")


COMPLETIONS = ("", "/", "/chatcmpl-1", "/chatcmpl-1/messages", "/chatcmpl-1/messages?limit=1", "?model=gpt-test&limit=1")


@pytest.mark.requirement("objects:stored-completions")
@pytest.mark.parametrize("setting", ["own", "any"])
@pytest.mark.parametrize("path", COMPLETIONS)
async def test_stored_completions_cant_be_read_through_the_proxy(tmp_path: Path, path: str, setting: str) -> None:
    made = ObjectPod(tmp_path)
    made.open(stored_ids=setting)
    for host in (None, "api.openai.com"):
        for method in ("GET", "DELETE"):
            status, code, _ = await made.refuses(method, CHAT + path, host=host)
            assert (status, code) in {(404, "object_not_found"), (403, "path_not_allowed")}
    assert (await made.refuses("GET", CHAT + path))[:2] == (404, "object_not_found")
    assert (await made.refuses("POST", CHAT + "/chatcmpl-1", {"metadata": {}}))[:2] == (404, "object_not_found")
    assert made.asked == []
    await made.close()


@pytest.mark.requirement("objects:stored-completions")
async def test_a_runners_store_stays_as_it_wrote_it(pod: ObjectPod) -> None:
    body = b'{"model": "gpt-test", "store" : true, "messages":[{"role":"user","content":"Hi"}]}'
    decision = await pod.passes("POST", CHAT, body)
    assert decision.body in (None, body)


def user(*content: Body) -> Body:
    return {"role": "user", "content": list(content)}


BODIES: dict[str, tuple[str, str, Body]] = {
    "a file of a chat": (CHAT, "file_id", {"messages": [user({"type": "file", "file": {"file_id": "file-own"}})]}),
    "an input": (RESPONSES, "file_id", {"input": [user({"type": "input_file", "file_id": "file-own"})]}),
    "a container": (RESPONSES, "container", {"input": "Hi", "tools": [{"type": "code_interpreter", "container": "cntr_own"}]}),
    "its files": (
        RESPONSES,
        "file_ids",
        {"input": "Hi", "tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-own"]}}]},
    ),
    "a search": (
        RESPONSES,
        "vector_store_ids",
        {"input": "Hi", "tools": [{"type": "file_search", "vector_store_ids": ["vs_own"]}]},
    ),
    "a compaction": (f"{RESPONSES}/compact", "file_id", {"input": [user({"type": "input_file", "file_id": "file-own"})]}),
    "a count": (f"{RESPONSES}/input_tokens", "file_id", {"input": [user({"type": "input_file", "file_id": "file-own"})]}),
    "a new store": ("/v1/vector_stores", "file_ids", {"name": "x", "file_ids": ["file-own"]}),
    "a file of a store": ("/v1/vector_stores/vs_own/files", "file_id", {"file_id": "file-own"}),
    "files of a store": ("/v1/vector_stores/vs_own/file_batches", "file_id", {"files": [{"file_id": "file-own"}]}),
    "a file of a container": ("/v1/containers/cntr_own/files", "file_id", {"file_id": "file-own"}),
    "files of a container": ("/v1/containers", "file_ids", {"name": "x", "file_ids": ["file-own"]}),
    "a batch": ("/v1/batches", "input_file_id", {"input_file_id": "file-own", "endpoint": "/v1/embeddings"}),
    "a run": ("/v1/threads/thread_own/runs", "assistant_id", {"assistant_id": "asst_own", "model": "gpt-test"}),
    "a thread and a run": ("/v1/threads/runs", "assistant_id", {"assistant_id": "asst_own", "model": "gpt-test"}),
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
    "a video": ("/v1/videos", "file_id", {"model": "sora", "prompt": "x", "input_reference": {"file_id": "file-own"}}),
    "an image": ("/v1/images/edits", "file_id", {"model": "gpt-image", "images": [{"file_id": "file-own"}]}),
}
ANTHROPIC_BODIES: dict[str, tuple[str, Body]] = {
    "a document": (
        MESSAGES,
        {"max_tokens": 9, "messages": [user({"type": "document", "source": {"type": "file", "file_id": "file-own"}})]},
    ),
    "a container of messages": (MESSAGES, {"max_tokens": 9, "container": "cntr_own", "messages": [user()]}),
    "a container with skills": (
        MESSAGES,
        {"max_tokens": 9, "container": {"id": "cntr_own", "skills": []}, "messages": [user()]},
    ),
    "a batch of messages": (
        "/v1/messages/batches",
        {"requests": [{"custom_id": "1", "params": {"messages": [user({"type": "container_upload", "file_id": "file-own"})]}}]},
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
    body = {**FIRST_MODEL, **body} if path in (CHAT, RESPONSES, f"{RESPONSES}/compact", f"{RESPONSES}/input_tokens") else body
    assert await pod.refuses("POST", path, body, agent_id="clerk") == (404, "object_not_found", member)
    assert pod.asked == []

    if path not in (CHAT, RESPONSES) or not tools:
        assert (await pod.passes("POST", path, body)).credential == [("authorization", "Bearer sk-first")]


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize(("path", "body"), ANTHROPIC_BODIES.values(), ids=ANTHROPIC_BODIES)
async def test_the_same_for_anthropics_bodies_in_its_own_shape(pod: ObjectPod, path: str, body: Body) -> None:
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
    assert await pod.refuses("POST", "/v1/vector_stores", body) == (404, "object_not_found", "file_ids")


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
    assert (await pod.refuses("POST", "/v1/vector_stores", body, headers=headers))[:2] == (400, "invalid_request")
    unread = Request("POST", "/v1/vector_stores", [("authorization", f"Bearer {pod.token('analyst')}")], b"")
    admitted = pod.mediator.admit(unread)
    assert isinstance(admitted, Identity)
    decision = await pod.mediator.other_paths.decide_unread(admitted, unread, "it is too large")
    assert isinstance(decision, RunnerResponse)
    assert decision.status == 400


def form(*fields: tuple[str, str]) -> bytes:
    parts = "".join(f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields)
    return f"{parts}--b--\r\n".encode()


@pytest.mark.requirement("objects:bodies")
@pytest.mark.parametrize("name", ["file_id", "file_ids[]", "image[0][file_id]", "input_reference.file_id"])
async def test_a_form_names_the_agents_own_objects_only(pod: ObjectPod, name: str) -> None:
    headers = (("content-type", "multipart/form-data; boundary=b"),)
    path = "/v1/containers/cntr_own/files"
    assert await pod.refuses("POST", path, form((name, "file-x")), headers=headers) == (404, "object_not_found", name)
    nested = form(("input_reference", '{"file_id":"file-x"}'))
    assert (await pod.refuses("POST", path, nested, headers=headers))[:2] == (404, "object_not_found")
    await pod.passes("POST", path, form((name, "file-own"), ("file", "text with file-x")), headers=headers)


@pytest.mark.requirement("objects:bodies")
async def test_a_query_names_the_agents_own_objects_only(pod: ObjectPod) -> None:
    path = "/v1/threads/thread_own/messages"
    for query in ("file_id=file-x", "x=1&thread_id=thread_x", "file_ids[]=file-x", "%66ile_id=file-x"):
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
    assert (await pod.refuses("POST", "/v1/evals/eval_own/runs", body))[:2] == (404, "object_not_found")
    body = {"data_source_config": {"type": source}, "testing_criteria": []}
    assert (await pod.refuses("POST", "/v1/evals", body))[:2] == (404, "object_not_found")


@pytest.mark.requirement("objects:bodies")
async def test_an_item_of_a_conversation_names_the_agents_own_file_only(pod: ObjectPod) -> None:
    await pod.keeps(OwnedObject("conv_1", "conv_1", "openai"))
    body = {"items": [user({"type": "input_file", "file_id": "file-x"})]}
    assert await pod.refuses("POST", "/v1/conversations/conv_1/items", body) == (404, "object_not_found", "file_id")
    assert await pod.refuses("POST", "/v1/conversations", body) == (404, "object_not_found", "file_id")
    assert pod.asked == []


@pytest.mark.requirement("objects:routing")
async def test_a_request_goes_to_the_provider_and_key_that_keep_what_it_names(pod: ObjectPod) -> None:
    await pod.owns(("file", "file-2"), provider="second", key="")
    await pod.owns(("file", "file-3"), key="other")
    assert (await pod.passes("GET", "/v1/files/file-2")).base_url == f"{pod.second.url}/v1"
    assert (await pod.passes("GET", "/v1/files/file-3")).credential == [("authorization", "Bearer sk-other")]
    chat = {"model": "gpt-test", "messages": [user({"type": "file", "file": {"file_id": "file-3"}})]}
    assert (await pod.passes("POST", CHAT, chat)).credential == [("authorization", "Bearer sk-other")]
    chat = {"model": "gpt-test", "messages": [user({"type": "file", "file": {"file_id": "file-2"}})]}
    assert (await pod.refuses("POST", CHAT, chat))[:2] == (404, "object_not_found")
    assert (await pod.passes("POST", CHAT, {**chat, "model": "second/gpt-test"})).base_url == f"{pod.second.url}/v1"
    assert (await pod.refuses("GET", "/v1/files/file-2", host="api.openai.com"))[:2] == (404, "object_not_found")


@pytest.mark.requirement("objects:routing")
async def test_objects_of_two_providers_are_never_named_together(pod: ObjectPod) -> None:
    await pod.owns(("file", "file-2"), provider="second", key="")
    status, answer = await pod.sends("POST", "/v1/vector_stores", {"file_ids": ["file-own", "file-2"]})  # type: ignore[misc]
    assert status == 404
    assert "at another provider" in answer["error"]["message"]
    assert (await pod.refuses("POST", "/v1/vector_stores/vs_own/files", {"file_id": "file-2"}))[0] == 404
    await pod.keeps(OwnedObject("resp_1", "resp_1", "openai", "first"))
    body = {"model": "second/x", "previous_response_id": "resp_1", "input": [user({"type": "input_file", "file_id": "file-2"})]}
    assert (await pod.refuses("POST", RESPONSES, body))[:2] == (404, "object_not_found")


@pytest.mark.requirement("objects:setting")
async def test_with_the_setting_an_id_that_nobody_is_known_to_own_passes(tmp_path: Path) -> None:
    pod = ObjectPod(tmp_path)
    pod.open(stored_ids="any")
    pod.agent("clerk")
    await pod.owns(("file", "file-2"), agent_id="clerk", provider="second", key="")
    await pod.passes("GET", "/v1/files/file-x", agent_id="clerk")
    await pod.passes("GET", "/v1/files", agent_id="clerk")
    await pod.passes("POST", "/v1/vector_stores", {"file_ids": ["file-x"]}, agent_id="clerk")
    assert (await pod.passes("GET", "/v1/files/file-2", agent_id="clerk")).base_url == f"{pod.second.url}/v1"
    await pod.close()


@pytest.mark.requirement("objects:state-down")
@pytest.mark.parametrize("setting", ["own", "any"])
@pytest.mark.parametrize("error", [StateUnavailableError("it is down"), StoreError("it is damaged")])
async def test_while_the_state_cant_be_read_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, error: StoreError
) -> None:
    pod = ObjectPod(tmp_path)
    pod.open(stored_ids=setting)
    pod.agent("clerk")

    async def fail(*_: Any) -> Any:
        raise error

    for method in ("find_objects", "list_objects"):
        monkeypatch.setattr(pod.mediator.state.ownership, method, fail)
    chat = {"model": "gpt-test", "messages": [user({"type": "file", "file": {"file_id": "file-own"}})]}
    for agent_id in ("analyst", "clerk"):
        assert (await pod.refuses("GET", "/v1/files/file-own", agent_id=agent_id))[:2] == (503, "state_unavailable")
        assert (await pod.refuses("POST", CHAT, chat, agent_id=agent_id))[:2] == (503, "state_unavailable")
    if setting == "own":
        assert (await pod.refuses("GET", "/v1/files"))[:2] == (503, "state_unavailable")
    assert pod.asked == []
    await pod.passes("POST", CHAT, {"model": "gpt-test", "messages": []}, agent_id="clerk")
    await pod.close()


@pytest.mark.requirement("objects:lists")
async def test_a_list_has_the_agents_own_objects_and_pages_of_these(pod: ObjectPod) -> None:
    mine = [f"batch_{number}" for number in range(5)]
    pod.account.objects["/v1/batches"] = [
        {"id": each, "output_file_id": f"out-{each}"} for number in range(5) for each in (f"theirs_{number}", f"batch_{number}")
    ]
    await pod.owns(*(("batch", each) for each in mine))
    status, page = await pod.sends("GET", "/v1/batches?limit=2&x=y")  # type: ignore[misc]
    assert status == 200
    assert [each["id"] for each in page["data"]] == mine[:2]
    assert (page["first_id"], page["last_id"], page["has_more"], page["object"]) == ("batch_0", "batch_1", True, "list")
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
async def test_an_agent_without_objects_gets_an_empty_list_and_the_provider_is_not_asked(pod: ObjectPod) -> None:
    pod.account.objects["/v1/files"] = [{"id": "file-own"}]
    status, page = await pod.sends("GET", "/v1/files", agent_id="clerk")  # type: ignore[misc]
    assert (status, page) == (200, {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False})
    assert pod.asked == []
    _, page = await pod.sends("GET", "/v1/files")  # type: ignore[misc]
    assert page["data"] == [{"id": "file-own"}]


@pytest.mark.requirement("objects:lists")
@pytest.mark.parametrize(
    "query", ["after=theirs", "before=theirs", "limit=0", "limit=x", "limit=10001", "after=file-x&limit=1"]
)
async def test_a_cursor_is_an_object_of_the_agents(pod: ObjectPod, query: str) -> None:
    assert (await pod.refuses("GET", f"/v1/files?{query}"))[:2] == (400, "invalid_request")
    assert pod.asked == []


@pytest.mark.requirement("objects:lists")
@pytest.mark.parametrize(
    "answer",
    [Response(b"no JSON"), JSONResponse({"data": 7}), JSONResponse([]), JSONResponse({"data": [[]]}), Response(b"", 206)],
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


@pytest.mark.requirement("objects:given")
async def test_what_an_answer_gives_is_the_agents_at_once_and_at_other_mediators(pod: ObjectPod) -> None:
    decision = await pod.passes("POST", "/v1/vector_stores", {"name": "x"}, agent_id="clerk")
    pod.mediator.passthrough.note_objects(decision.handle, [GivenObject("vector_store", "vs_new")])  # type: ignore[arg-type]
    await pod.passes("GET", "/v1/vector_stores/vs_new", agent_id="clerk")
    assert (await pod.refuses("GET", "/v1/vector_stores/vs_new"))[0] == 404
    await pod.mediator.passthrough.finish_noting()
    (saved,) = await pod.mediator.state.ownership.list_objects("clerk", "vector_store")
    assert saved == ProviderObject("vector_store", "vs_new", "openai", "first")


@pytest.mark.requirement("objects:given")
async def test_what_a_mediated_turn_opened_is_the_agents(pod: ObjectPod) -> None:
    pod.agent("clerk", pod.tool())
    call = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "container_id": "cntr_new",
        "code": "",
        "outputs": [],
        "status": "completed",
    }
    pod.api.script = [[call]]
    body = {"model": "gpt-test", "input": "Compute"}
    decision = await pod.sends("POST", RESPONSES, body, agent_id="clerk")
    assert not isinstance(decision, Forward)
    assert decision[0] == 200, decision
    await pod.passes("GET", "/v1/containers/cntr_new/files", agent_id="clerk")
    assert (await pod.refuses("GET", "/v1/containers/cntr_new/files"))[0] == 404


@pytest.mark.requirement("objects:given")
async def test_a_response_that_ran_in_the_background_gives_its_container_when_it_is_read(pod: ObjectPod) -> None:
    await pod.keeps(OwnedObject("resp_1", "resp_1", "openai", "first", is_plain=True), "clerk")
    pod.api.instead = JSONResponse({"id": "resp_1", "object": "response", "output": [{"container_id": "cntr_bg"}]})
    status, _ = await pod.sends("GET", "/v1/responses/resp_1", agent_id="clerk")  # type: ignore[misc]
    assert status == 200
    await pod.passes("GET", "/v1/containers/cntr_bg", agent_id="clerk")


@pytest.mark.requirement("objects:paths")
async def test_two_agents_that_race_for_an_id_never_meet(pod: ObjectPod) -> None:
    agents = ["analyst", "clerk"] * 20
    decisions = await asyncio.gather(*(pod.sends("GET", "/v1/files/file-own", agent_id=each) for each in agents))
    assert [isinstance(each, Forward) for each in decisions] == [each == "analyst" for each in agents]


@pytest.mark.requirement("objects:paths")
async def test_a_refusal_is_logged_with_the_member_and_the_id(pod: ObjectPod) -> None:
    await pod.refuses("POST", "/v1/vector_stores", {"file_ids": ["file-" + "x" * 500]})
    (event,) = [each for each in pod.events if each.get("intervention") == "stored_id_refused"]
    assert event["reason"] == "file_ids file-" + "x" * 75
