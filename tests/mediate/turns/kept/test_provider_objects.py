"""Files, batches and the like: each agent reads and deletes its own only, and what
an answer gives is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from claw_mediate.core.http import Forward
from claw_mediate.core.object_ids import GivenObject
from claw_state.health import StateUnavailableError
from claw_state.ownership import KeptObject, ProviderObject
from claw_state.url import StoreError
from tests.mediate.turns.kept.object_pod import CHAT, RESPONSES, ObjectPod, object_pod, user


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[ObjectPod]:
    async with object_pod(tmp_path) as made:
        yield made


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
async def test_an_object_and_its_parts_are_its_owners(
    pod: ObjectPod, method: str, path: str
) -> None:
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
@pytest.mark.parametrize(
    "path",
    ["/v1/files/FILE-OWN", "/v1/files/batch_own", "/v1/batches/file-own", "/v1/files/resp_1"],
)
async def test_an_id_of_another_case_or_kind_is_nobodys(pod: ObjectPod, path: str) -> None:
    await pod.keeps(KeptObject("resp_1", "resp_1", "openai"))
    assert (await pod.refuses("GET", path))[:2] == (404, "object_not_found")


COMPLETIONS = (
    "",
    "/",
    "/chatcmpl-1",
    "/chatcmpl-1/messages",
    "/chatcmpl-1/messages?limit=1",
    "?model=gpt-test&limit=1",
)


@pytest.mark.requirement("objects:stored-completions")
@pytest.mark.parametrize("setting", ["own", "any"])
@pytest.mark.parametrize("path", COMPLETIONS)
async def test_stored_completions_cant_be_read_through_the_proxy(
    tmp_path: Path, path: str, setting: str
) -> None:
    made = ObjectPod(tmp_path)
    made.open(stored_ids=setting)
    for host in (None, "api.openai.com"):
        for method in ("GET", "DELETE"):
            status, code, _ = await made.refuses(method, CHAT + path, host=host)
            assert (status, code) in {(404, "object_not_found"), (403, "path_not_allowed")}
    assert (await made.refuses("GET", CHAT + path))[:2] == (404, "object_not_found")
    assert (await made.refuses("POST", CHAT + "/chatcmpl-1", {"metadata": {}}))[:2] == (
        404,
        "object_not_found",
    )
    assert made.asked == []
    await made.close()


@pytest.mark.requirement("objects:stored-completions")
async def test_a_runners_store_stays_as_it_wrote_it(pod: ObjectPod) -> None:
    body = b'{"model": "gpt-test", "store" : true, "messages":[{"role":"user","content":"Hi"}]}'
    decision = await pod.passes("POST", CHAT, body)
    assert decision.body in (None, body)


@pytest.mark.requirement("objects:routing")
async def test_a_request_goes_to_the_provider_and_key_that_keep_what_it_names(
    pod: ObjectPod,
) -> None:
    await pod.owns(("file", "file-2"), provider="second", key="")
    await pod.owns(("file", "file-3"), key="other")
    assert (await pod.passes("GET", "/v1/files/file-2")).base_url == f"{pod.second.url}/v1"
    assert (await pod.passes("GET", "/v1/files/file-3")).credential == [
        ("authorization", "Bearer sk-other")
    ]
    chat = {
        "model": "gpt-test",
        "messages": [user({"type": "file", "file": {"file_id": "file-3"}})],
    }
    assert (await pod.passes("POST", CHAT, chat)).credential == [
        ("authorization", "Bearer sk-other")
    ]
    chat = {
        "model": "gpt-test",
        "messages": [user({"type": "file", "file": {"file_id": "file-2"}})],
    }
    assert (await pod.refuses("POST", CHAT, chat))[:2] == (404, "object_not_found")
    assert (
        await pod.passes("POST", CHAT, {**chat, "model": "second/gpt-test"})
    ).base_url == f"{pod.second.url}/v1"
    assert (await pod.refuses("GET", "/v1/files/file-2", host="api.openai.com"))[:2] == (
        404,
        "object_not_found",
    )


@pytest.mark.requirement("objects:routing")
async def test_objects_of_two_providers_are_never_named_together(pod: ObjectPod) -> None:
    await pod.owns(("file", "file-2"), provider="second", key="")
    status, answer = await pod.sends(
        "POST", "/v1/vector_stores", {"file_ids": ["file-own", "file-2"]}
    )  # type: ignore[misc]
    assert status == 404
    assert "at another provider" in answer["error"]["message"]
    assert (await pod.refuses("POST", "/v1/vector_stores/vs_own/files", {"file_id": "file-2"}))[
        0
    ] == 404
    await pod.keeps(KeptObject("resp_1", "resp_1", "openai", "first"))
    body = {
        "model": "second/x",
        "previous_response_id": "resp_1",
        "input": [user({"type": "input_file", "file_id": "file-2"})],
    }
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
    assert (
        await pod.passes("GET", "/v1/files/file-2", agent_id="clerk")
    ).base_url == f"{pod.second.url}/v1"
    await pod.close()


@pytest.mark.requirement("objects:state-down")
@pytest.mark.parametrize("setting", ["own", "any"])
@pytest.mark.parametrize(
    "error", [StateUnavailableError("it is down"), StoreError("it is damaged")]
)
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
    chat = {
        "model": "gpt-test",
        "messages": [user({"type": "file", "file": {"file_id": "file-own"}})],
    }
    for agent_id in ("analyst", "clerk"):
        assert (await pod.refuses("GET", "/v1/files/file-own", agent_id=agent_id))[:2] == (
            503,
            "state_unavailable",
        )
        assert (await pod.refuses("POST", CHAT, chat, agent_id=agent_id))[:2] == (
            503,
            "state_unavailable",
        )
    if setting == "own":
        assert (await pod.refuses("GET", "/v1/files"))[:2] == (503, "state_unavailable")
    assert pod.asked == []
    await pod.passes("POST", CHAT, {"model": "gpt-test", "messages": []}, agent_id="clerk")
    await pod.close()


@pytest.mark.requirement("objects:given")
async def test_what_an_answer_gives_is_the_agents_at_once_and_at_other_mediators(
    pod: ObjectPod,
) -> None:
    decision = await pod.passes("POST", "/v1/vector_stores", {"name": "x"}, agent_id="clerk")
    pod.mediator.passthrough.note_objects(decision.handle, [GivenObject("vector_store", "vs_new")])  # type: ignore[arg-type]
    await pod.passes("GET", "/v1/vector_stores/vs_new", agent_id="clerk")
    assert (await pod.refuses("GET", "/v1/vector_stores/vs_new"))[0] == 404
    await pod.mediator.passthrough.finish_noting()
    (saved,) = await pod.mediator.state.ownership.list_objects("clerk", "vector_store")
    assert saved == ProviderObject("vector_store", "vs_new", "openai", "first")


@pytest.mark.requirement("objects:first-owner")
async def test_an_id_that_is_given_again_is_not_found_even_before_it_is_looked_up(
    pod: ObjectPod,
) -> None:
    decision = await pod.passes("POST", "/v1/vector_stores", {"name": "x"}, agent_id="clerk")
    pod.mediator.passthrough.note_objects(decision.handle, [GivenObject("file", "file-own")])  # type: ignore[arg-type]
    assert (await pod.refuses("GET", "/v1/files/file-own", agent_id="clerk"))[0] == 404
    await pod.passes("GET", "/v1/files/file-own")
    (event,) = [each for each in pod.events if each.get("error") == "id_of_another_agent"]
    assert (event["claw_id"], event["reason"]) == (
        "clerk",
        "openai gave clerk an id that is another agent's: a file",
    )
    assert "file-own" not in str(event)
    assert "analyst" not in str(event)


@pytest.mark.requirement("objects:first-owner")
@pytest.mark.requirement("objects:setting")
async def test_where_any_id_may_pass_agents_share_one(tmp_path: Path) -> None:
    pod = ObjectPod(tmp_path)
    pod.open(stored_ids="any")
    pod.agent("clerk")
    await pod.owns(("file", "file-own"))
    decision = await pod.passes("POST", "/v1/vector_stores", {"name": "x"}, agent_id="clerk")
    pod.mediator.passthrough.note_objects(decision.handle, [GivenObject("file", "file-own")])  # type: ignore[arg-type]
    await pod.mediator.passthrough.finish_noting()
    (saved,) = await pod.mediator.state.ownership.list_objects("clerk", "file")
    assert saved.id == "file-own"
    assert [each for each in pod.events if each.get("error") == "id_of_another_agent"] == []
    await pod.close()


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
async def test_a_response_that_ran_in_the_background_gives_its_container_when_it_is_read(
    pod: ObjectPod,
) -> None:
    await pod.keeps(KeptObject("resp_1", "resp_1", "openai", "first", is_plain=True), "clerk")
    pod.api.instead = JSONResponse(
        {"id": "resp_1", "object": "response", "output": [{"container_id": "cntr_bg"}]}
    )
    status, _ = await pod.sends("GET", "/v1/responses/resp_1", agent_id="clerk")  # type: ignore[misc]
    assert status == 200
    await pod.passes("GET", "/v1/containers/cntr_bg", agent_id="clerk")


@pytest.mark.requirement("objects:paths")
async def test_two_agents_that_race_for_an_id_never_meet(pod: ObjectPod) -> None:
    agents = ["analyst", "clerk"] * 20
    decisions = await asyncio.gather(
        *(pod.sends("GET", "/v1/files/file-own", agent_id=each) for each in agents)
    )
    assert [isinstance(each, Forward) for each in decisions] == [
        each == "analyst" for each in agents
    ]


@pytest.mark.requirement("objects:paths")
async def test_a_refusal_is_logged_with_the_member_and_the_id(pod: ObjectPod) -> None:
    await pod.refuses("POST", "/v1/vector_stores", {"file_ids": ["file-" + "x" * 500]})
    (event,) = [each for each in pod.events if each.get("intervention") == "stored_id_refused"]
    assert event["reason"] == "file_ids file-" + "x" * 75
