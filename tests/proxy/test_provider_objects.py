"""Files, batches and the like belong to the agent that made them: real proxy, real SDKs, and two
proxies on one state.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from starlette.responses import JSONResponse, Response

from tests.peers import Provider, Service, text
from tests.proxy.pod import ANTHROPIC_KEY, Pod, pod_at
from tests.state.server import shared_state
from tests.wires.responses import message, response


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod of two agents without tools, ``one`` and ``two``."""
    with pod_at(tmp_path_factory.mktemp("pod")) as made:
        made.agent("one")
        made.agent("two")
        made.start()
        yield made


def file(file_id: str) -> dict[str, Any]:
    about = {
        "bytes": 1,
        "created_at": 1,
        "filename": "x",
        "purpose": "user_data",
        "status": "processed",
    }
    return {"id": file_id, "object": "file", **about}


def page(*ids: str, has_more: bool = False) -> Response:
    data = [file(each) for each in ids]
    return JSONResponse(
        {
            "object": "list",
            "data": data,
            "has_more": has_more,
            "first_id": ids[0],
            "last_id": ids[-1],
        }
    )


@pytest.mark.requirement("objects:given")
@pytest.mark.requirement("objects:paths")
def test_a_file_is_its_makers(pod: Pod) -> None:
    one, two = pod.client("one"), pod.client("two")
    pod.provider.says(
        JSONResponse(file("file-1")), JSONResponse(file("file-1")), Response(b"the words")
    )
    made = one.files.create(file=("x.txt", b"the words"), purpose="user_data")
    assert one.files.retrieve(made.id).id == "file-1"
    assert one.files.content(made.id).read() == b"the words"

    sent = len(pod.provider.received)
    with pytest.raises(openai.NotFoundError, match="CLLAMA_STORED_IDS") as refused:
        two.files.retrieve(made.id)
    assert (refused.value.code, refused.value.param) == ("object_not_found", "file_id")
    for reads in (two.files.content, two.files.delete):
        with pytest.raises(openai.NotFoundError):
            reads(made.id)
    with pytest.raises(openai.NotFoundError):
        two.vector_stores.create(file_ids=[made.id])
    for member in ("File_ID", "fileId", "FILE_IDS"):
        odd: Any = {
            "model": "gpt-test",
            "input": [{"role": "user", "content": [{"type": "input_file", member: made.id}]}],
        }
        with pytest.raises(openai.NotFoundError):
            two.post("/responses", body=odd, cast_to=object)
        with pytest.raises(openai.NotFoundError):
            two.get(f"/models?{member}={made.id}", cast_to=object)
    part: Any = [{"role": "user", "content": [{"type": "input_file", "file_id": made.id}]}]
    with pytest.raises(openai.NotFoundError):
        two.responses.create(model="gpt-test", input=part)
    assert len(pod.provider.received) == sent

    pod.provider.says(
        text("Read.", tools=[]),
        JSONResponse({"id": made.id, "deleted": True}),
    )
    assert one.responses.create(model="gpt-test", input=part).output_text == "Read."
    assert one.files.delete(made.id).deleted
    assert pod.provider.received[-1].method == "DELETE"


@pytest.mark.requirement("objects:lists")
def test_an_agent_pages_through_its_own_files(pod: Pod) -> None:
    one, two = pod.client("one"), pod.client("two")
    for number in range(3):
        pod.provider.says(JSONResponse(file(f"file-of-one-{number}")))
        one.files.create(file=b"x", purpose="user_data")
    pod.provider.says(JSONResponse(file("file-of-two")))
    two.files.create(file=b"x", purpose="user_data")

    first = page("file-of-two", "file-of-one-0", "file-z", has_more=True)
    second = page("file-of-one-1", "file-of-one-2")
    pod.provider.says(first, second, page("file-of-one-2"))
    listed = list(one.files.list(limit=2))
    assert [each.id for each in listed] == [f"file-of-one-{number}" for number in range(3)]
    pod.provider.says(first, second)
    assert [each.id for each in two.files.list()] == ["file-of-two"]


@pytest.mark.requirement("objects:stored-completions")
def test_a_stored_completion_is_nobodys(pod: Pod) -> None:
    one, sent = pod.client("one"), len(pod.provider.received)
    for read in (
        one.chat.completions.list,
        lambda: one.chat.completions.retrieve("chatcmpl-1"),
        lambda: one.chat.completions.messages.list("chatcmpl-1"),
        lambda: one.chat.completions.update("chatcmpl-1", metadata={}),
        lambda: one.chat.completions.delete("chatcmpl-1"),
    ):
        with pytest.raises(openai.NotFoundError, match="stored chat completions"):
            read()
    assert len(pod.provider.received) == sent


@pytest.mark.requirement("objects:given")
def test_an_uploads_file_and_a_batchs_output_are_their_owners(pod: Pod) -> None:
    one, two = pod.client("one"), pod.client("two")
    upload = {
        "id": "upload_1",
        "object": "upload",
        "bytes": 1,
        "created_at": 1,
        "expires_at": 2,
        "filename": "x",
    }
    upload |= {"purpose": "batch", "status": "pending"}
    part = {"id": "part_1", "object": "upload.part", "upload_id": "upload_1", "created_at": 1}
    whole = {**upload, "status": "completed", "file": file("file-up")}
    pod.provider.says(JSONResponse(upload), JSONResponse(part), JSONResponse(whole))
    made = one.uploads.create(bytes=1, filename="x", mime_type="text/plain", purpose="batch")
    with pytest.raises(openai.NotFoundError):
        two.uploads.parts.create(made.id, data=b"x")
    one.uploads.parts.create(made.id, data=b"x")
    assert one.uploads.complete(made.id, part_ids=["part_1"]).file is not None

    batch = {
        "id": "batch_1",
        "object": "batch",
        "completion_window": "24h",
        "created_at": 1,
        "endpoint": "/v1/embeddings",
    }
    batch |= {"input_file_id": "file-up", "status": "validating"}
    done = {
        **batch,
        "status": "completed",
        "output_file_id": "file-out",
        "error_file_id": "file-err",
    }
    with pytest.raises(openai.NotFoundError):
        two.batches.create(
            input_file_id="file-up", endpoint="/v1/embeddings", completion_window="24h"
        )
    pod.provider.says(JSONResponse(batch), JSONResponse(done), Response(b"{}"), Response(b"{}"))
    begun = one.batches.create(
        input_file_id="file-up", endpoint="/v1/embeddings", completion_window="24h"
    )
    with pytest.raises(openai.NotFoundError):
        one.files.content("file-out")
    finished = one.batches.retrieve(begun.id)
    for output in (finished.output_file_id, finished.error_file_id):
        assert output is not None
        assert one.files.content(output).read() == b"{}"
        with pytest.raises(openai.NotFoundError):
            two.files.content(output)


CODE = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "status": "completed",
    "code": "1",
    "container_id": "cntr_1",
    "outputs": [],
}
CITED = {
    "type": "container_file_citation",
    "container_id": "cntr_1",
    "file_id": "cfile_1",
    "filename": "x",
}
CITED |= {"start_index": 0, "end_index": 1}


def streamed(*events: dict[str, Any]) -> bytes:
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events
    ).encode()


@pytest.mark.requirement("objects:given")
@pytest.mark.parametrize("form", ["whole", "streamed", "packed"])
def test_a_container_that_the_model_opened_is_the_agents(pod: Pod, form: str) -> None:
    one, two = pod.client("one"), pod.client("two")
    item = json.loads(json.dumps(CODE).replace("cntr_1", f"cntr_{form}"))
    document = response(item, message("Done."), tools=[])
    created = {
        "type": "response.created",
        "sequence_number": 0,
        "response": {**document, "output": []},
    }
    added = {
        "type": "response.output_item.added",
        "sequence_number": 1,
        "output_index": 0,
        "item": item,
    }
    finished = {"type": "response.completed", "sequence_number": 2, "response": document}
    events = streamed(created, added, finished)
    answers = {
        "whole": JSONResponse(document),
        "streamed": Response(events, media_type="text/event-stream"),
        "packed": Response(
            gzip.compress(events),
            media_type="text/event-stream",
            headers={"content-encoding": "gzip"},
        ),
    }
    pod.provider.says(answers[form])
    asked: Any = {"model": "gpt-test", "input": "Compute"}
    if form == "whole":
        one.responses.create(**asked)
    else:
        assert len(list(one.responses.create(**asked, stream=True))) == 3

    pod.provider.says(JSONResponse({"object": "list", "data": [], "has_more": False}))
    assert list(one.containers.files.list(f"cntr_{form}")) == []
    with pytest.raises(openai.NotFoundError):
        two.containers.files.list(f"cntr_{form}")


def claude_answer() -> dict[str, Any]:
    output = {"type": "bash_code_execution_output", "file_id": "file_made"}
    result = {
        "type": "bash_code_execution_result",
        "content": [output],
        "return_code": 0,
        "stderr": "",
        "stdout": "",
    }
    block = {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": result,
    }
    about = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "stop_reason": "end_turn",
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        **about,
        "stop_sequence": None,
        "usage": usage,
        "content": [block],
        "container": {"id": "container_1", "expires_at": "x"},
    }


@pytest.mark.requirement("objects:given")
@pytest.mark.requirement("objects:bodies")
def test_anthropics_container_files_and_batches_are_their_owners(pod: Pod) -> None:
    one, two = pod.claude("one"), pod.claude("two")
    asked: Any = {
        "model": "claude",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Compute"}],
    }
    pod.provider.says(JSONResponse(claude_answer()), JSONResponse(claude_answer()))
    one.messages.create(**asked)
    uploaded = [{"role": "user", "content": [{"type": "container_upload", "file_id": "file_made"}]}]
    again: Any = {**asked, "messages": uploaded, "extra_body": {"container": "container_1"}}
    one.messages.create(**again)
    with pytest.raises(anthropic.NotFoundError, match=r"container_1|file_made"):
        two.messages.create(**again)

    batch = {
        "id": "msgbatch_1",
        "type": "message_batch",
        "processing_status": "ended",
        "results_url": None,
    }
    results = {
        "custom_id": "a",
        "result": {
            "type": "succeeded",
            "message": {"container": {"id": "container_2"}, "content": []},
        },
    }
    requests: Any = [{"custom_id": "a", "params": asked}]
    pod.provider.says(
        JSONResponse(batch), Response(json.dumps(results) + "\n", media_type="application/x-jsonl")
    )
    made = one.messages.batches.create(requests=requests)
    headers = {"authorization": f"Bearer {pod.token('one')}", "anthropic-version": "2023-06-01"}
    path = f"{pod.url}/v1/messages/batches/{made.id}"
    with httpx2.Client() as client:
        assert client.get(f"{path}/results", headers=headers).status_code == 200
        theirs = {**headers, "authorization": f"Bearer {pod.token('two')}"}
        for url in (path, f"{path}/results"):
            refused = client.get(url, headers=theirs)
            assert (refused.status_code, refused.json()["error"]["type"]) == (
                404,
                "not_found_error",
            )
    pod.provider.says(JSONResponse(claude_answer()))
    one.messages.create(**asked, extra_body={"container": "container_2"})


@pytest.mark.requirement("objects:given")
def test_an_answer_that_fails_or_names_others_objects_gives_nothing(pod: Pod) -> None:
    one = pod.client("one")
    pod.provider.says(JSONResponse({"id": "file-e", "error": {"message": "no"}}, 400))
    with pytest.raises(openai.BadRequestError):
        one.files.create(file=b"x", purpose="user_data")
    echo = response(
        message("file-e"),
        tools=[{"type": "function", "name": "f", "parameters": {"file_id": "file-e"}}],
    )
    pod.provider.says(
        JSONResponse({**echo, "metadata": {"file_id": "file-e", "container_id": "file-e"}})
    )
    one.responses.create(model="gpt-test", input="Hi", metadata={"file_id": "file-e"})
    with pytest.raises(openai.NotFoundError):
        one.files.retrieve("file-e")


@pytest.mark.requirement("objects:given")
@pytest.mark.requirement("objects:rows")
def test_what_one_proxy_made_another_one_knows(tmp_path: Path) -> None:
    provider = Provider()
    provider.start()
    with shared_state(tmp_path / "server") as state:
        pods = [Pod(tmp_path / name, provider, Service()) for name in ("here", "there")]
        for each in pods:
            each.home.mkdir()
            each.environment["CLAW_STATE"] = state.place.url.reveal()
            each.agent("one")
            each.agent("two")
            each.start()
        here, there = pods
        for number in range(5):
            maker, other = (here, there) if number % 2 else (there, here)
            provider.says(
                JSONResponse(file(f"file-{number}")), JSONResponse(file(f"file-{number}"))
            )
            made = maker.client("one").files.create(file=b"x", purpose="user_data")
            assert other.client("one").files.retrieve(made.id).id == made.id
            with pytest.raises(openai.NotFoundError):
                other.client("two").files.retrieve(made.id)
        for each in pods:
            each.stop()
    provider.stop()


@pytest.mark.requirement("objects:routing")
def test_a_file_that_is_sent_by_anthropics_sdk_is_kept_by_anthropic(pod: Pod) -> None:
    one, sent = pod.claude("one"), len(pod.provider.received)
    about = {
        "type": "file",
        "filename": "x",
        "mime_type": "text/plain",
        "size_bytes": 1,
        "created_at": "2026-01-01T00:00:00Z",
    }
    made = {"id": "file_of_claude", **about}
    pod.provider.says(JSONResponse(made), JSONResponse(claude_answer()))
    uploaded = one.beta.files.upload(file=("x.txt", b"x", "text/plain"))
    source: Any = {"type": "file", "file_id": uploaded.id}
    asked: Any = [{"role": "user", "content": [{"type": "document", "source": source}]}]
    one.beta.messages.create(
        model="claude", max_tokens=9, messages=asked, betas=["files-api-2025-04-14"]
    )
    keys = [each.headers.get("x-api-key") for each in pod.provider.received[sent:]]
    assert keys == [ANTHROPIC_KEY, ANTHROPIC_KEY]


@pytest.mark.requirement("objects:first-owner")
@pytest.mark.parametrize("form", ["upload", "whole", "streamed", "compacted", "read again"])
def test_an_id_that_a_provider_repeats_stays_its_first_owners(pod: Pod, form: str) -> None:
    one, two = pod.client("one"), pod.client("two")
    container, file_id, own_id = (
        f"{kind}_{form.replace(' ', '_')}" for kind in ("cntr", "file", "resp")
    )
    item = json.loads(json.dumps(CODE).replace("cntr_1", container))
    cited = {**CITED, "container_id": container, "file_id": file_id}
    said = message("Done.")
    said["content"][0]["annotations"] = [cited]
    document = {**response(item, said, tools=[]), "id": own_id}
    about = {
        "id": container,
        "object": "container",
        "created_at": 1,
        "name": "x",
        "status": "running",
    }
    pod.provider.says(JSONResponse(about), JSONResponse(file(file_id)))
    one.containers.create(name="x")
    one.files.create(file=b"x", purpose="user_data")

    asked: Any = {"model": "gpt-test", "input": "Repeat it"}
    if form == "upload":
        pod.provider.says(JSONResponse(file(file_id)), JSONResponse(about))
        two.files.create(file=file_id.encode(), purpose="user_data")
        two.containers.create(name=container)
    elif form == "streamed":
        created = {
            "type": "response.created",
            "sequence_number": 0,
            "response": {**document, "output": []},
        }
        finished = {"type": "response.completed", "sequence_number": 1, "response": document}
        pod.provider.says(Response(streamed(created, finished), media_type="text/event-stream"))
        with two.responses.create(**asked, stream=True) as events:
            for _ in events:  # While it comes, too
                assert_refused(two, file_id, container)
    elif form == "compacted":
        pod.provider.says(JSONResponse({**document, "object": "response.compaction"}))
        two.responses.compact(**asked)
    else:
        pod.provider.says(JSONResponse(document))
        two.responses.create(**asked)
        if form == "read again":
            pod.provider.says(JSONResponse(document))
            two.responses.retrieve(own_id)

    assert_refused(two, file_id, container)
    pod.provider.says(JSONResponse(file(file_id)), JSONResponse(about))
    assert one.files.retrieve(file_id).id == file_id
    assert one.containers.retrieve(container).id == container
    lines = [line for line in pod.log() if line.get("error") == "id_of_another_agent"]
    assert {line["claw_id"] for line in lines} == {"two"}
    assert "openai gave two an id that is another agent's: a file" in {
        line["reason"] for line in lines
    }


def assert_refused(client: openai.OpenAI, file_id: str, container: str) -> None:
    for read in (
        lambda: client.files.content(file_id),
        lambda: client.containers.retrieve(container),
    ):
        with pytest.raises(openai.NotFoundError):
            read()


@pytest.mark.requirement("objects:first-owner")
def test_a_response_id_that_a_provider_repeats_stays_its_first_owners(pod: Pod) -> None:
    one, two = pod.client("one"), pod.client("two")
    document = {**response(message("Private."), tools=[]), "id": "resp_of_one"}
    pod.provider.says(JSONResponse(document), JSONResponse({**document, "output": []}))
    one.responses.create(model="gpt-test", input="Hi")
    two.responses.create(model="gpt-test", input="Hi", extra_body={"request_id": "resp_of_one"})
    sent = len(pod.provider.received)
    with pytest.raises(openai.NotFoundError):
        two.responses.retrieve("resp_of_one")
    with pytest.raises(openai.BadRequestError):
        two.responses.create(model="gpt-test", input="Hi", previous_response_id="resp_of_one")
    assert len(pod.provider.received) == sent
    pod.provider.says(JSONResponse(document))
    assert one.responses.retrieve("resp_of_one").output_text == "Private."
