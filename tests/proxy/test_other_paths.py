"""Requests of no dialect that name a model, through the real proxy: no path avoids
policy, budget and history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from claw_contract.history import HistoryEntry
from tests.contract.test_content_coding import PACKERS
from tests.peers import Provider, Service, text
from tests.proxy.conftest import WiredPod
from tests.proxy.pod import PROVIDER_KEY, Pod, headers
from tests.proxy.wire import Connection, Wire, WireMessage
from tests.waiting import eventually, free_port

ROUTER_KEY = "sk-or-provider-key-planted-0005"
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 2,
    "total_tokens": 9,
}
BLOCK = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def wired_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WiredPod]:
    """Yield a pod whose ``plain`` has no policy; ``bound`` may ask one model of the
    default provider, and one of another.

    ``mediated`` is the same with a tool.
    """
    wire = Wire()
    pod = Pod(tmp_path_factory.mktemp("pod"), Provider(), Service(port=free_port()))
    pod.environment |= {
        "OPENAI_BASE_URL": f"{wire.url}/v1",
        "OPENROUTER_BASE_URL": f"{wire.url}/router/v1",
    }
    pod.environment |= {"ANTHROPIC_BASE_URL": f"{wire.url}/v1", "OPENROUTER_API_KEY": ROUTER_KEY}
    pod.agent("plain")
    pod.agent("bound")
    pod.agent("mediated", pod.tool("balance"))
    allowed = [
        {"slot": "primary", "ref": "openai/small"},
        {"slot": "other", "ref": "openrouter/vendor/m"},
    ]
    for name in ("bound", "mediated"):
        about = {"service": name, "pod": "test", "type": "generic", "token": pod.token(name)}
        pod.put(
            name, "metadata.json", {**about, "model_policy": {"mode": "clamp", "allowed": allowed}}
        )
    pod.start()
    yield WiredPod(pod, wire)
    pod.stop()
    wire.close()


def answer(body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def post(
    wired: WiredPod, path: str, content: Any, agent_id: str = "bound", **more: str
) -> httpx2.Response:
    sent = {
        **headers(wired.pod, agent_id),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return httpx2.post(wired.pod.url + path, content=content, headers=sent, timeout=60)


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.requirement("forward:asks-a-model")
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_clamped_and_recorded_with_its_usage(wired: WiredPod, stream: bool) -> None:
    document = {"id": "resp_1", "object": "response", "output": [], "usage": USAGE}
    created, completed = (
        {
            "type": f"response.{kind}",
            "sequence_number": number,
            "response": {**document, "usage": usage},
        }
        for number, (kind, usage) in enumerate([("created", None), ("completed", USAGE)])
    )
    events = b"".join(
        b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode())
        for e in (created, completed)
    )  # type: ignore[attr-defined]
    wired.wire.answers.put(
        answer(events, "text/event-stream") if stream else answer(json.dumps(document).encode())
    )
    lines = len(wired.pod.history("bound"))
    with wired.pod.client("bound") as client:
        said: Any = client.responses.create(model="gpt-huge", input="Hi", stream=stream)
        assert (
            [event.type for event in said] == [created["type"], completed["type"]]
            if stream
            else said.id == "resp_1"
        )
    (seen,) = wired.wire.seen
    assert (seen.line, json.loads(seen.body)["model"]) == ("POST /v1/responses HTTP/1.1", "small")
    entry = eventually(lambda: wired.pod.history("bound")[lines:], "it is in history")[0]
    HistoryEntry.model_validate_json(json.dumps(entry))
    assert (entry["requested_model"], entry["effective_model"], entry["stream"]) == (
        "gpt-huge",
        "small",
        stream,
    )
    usage = [
        entry["usage"][name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")
    ]
    assert (entry["status"], usage) == ("ok", [7, 2, 3])


@pytest.mark.requirement("routing:other-paths")
@pytest.mark.parametrize("agent_id", ["plain", "bound"])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses"])
def test_a_prefix_leads_to_its_provider_with_its_key(
    wired: WiredPod, path: str, agent_id: str
) -> None:
    wired.wire.answers.put(answer(b"{}"))
    assert (
        post(
            wired, path, b'{ "model":"openrouter/vendor/m", "temperature":1.0}', agent_id
        ).status_code
        == 200
    )
    (seen,) = wired.wire.seen
    assert (seen.line, seen.body) == (
        f"POST /router{path} HTTP/1.1",
        b'{ "model":"vendor/m", "temperature":1.0}',
    )
    assert seen.all("authorization") == [f"Bearer {ROUTER_KEY}"]


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("coding", sorted(PACKERS))
@pytest.mark.parametrize("chunked", [False, True])
def test_a_packed_body_is_no_way_round(wired: WiredPod, coding: str, chunked: bool) -> None:
    wired.wire.answers.put(answer(b"{}"))
    body = PACKERS[coding](b'{"model":"gpt-huge"}')
    assert (
        post(
            wired, "/v1/embeddings", iter([body]) if chunked else body, content_encoding=coding
        ).status_code
        == 200
    )
    (seen,) = wired.wire.seen
    assert (seen.body, seen.all("content-encoding")) == (b'{"model":"small"}', [])


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"no gzip"),
        ("compress", b"{}"),
        ("br", PACKERS["br"](b'{"model":"small"}')[:-3]),
        ("", b'{"model":'),
    ],
)
def test_what_can_t_be_unpacked_or_read_is_refused_under_a_policy_and_passes_without(
    wired: WiredPod, coding: str, body: bytes
) -> None:
    more = {"content_encoding": coding} if coding else {}
    assert refused(post(wired, "/v1/embeddings", body, **more)) == (403, "model_not_allowed")
    assert wired.wire.seen == []
    wired.wire.answers.put(answer(b"{}"))
    assert (
        post(
            wired, "/v1/embeddings", body, "plain", content_type="application/json", **more
        ).status_code
        == 200
    )
    (seen,) = wired.wire.seen
    assert (seen.body, seen.all("content-encoding")) == (body, [coding] * bool(coding))


@pytest.mark.requirement("policy:other-paths")
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/conversations"])
def test_a_body_that_is_too_large_to_read_is_refused_under_a_policy_before_it_comes(
    wired: WiredPod, path: str
) -> None:
    with wired.runner() as runner:
        seen = runner.ask(
            wired.head(f"POST {path}", f"content-length: {400 << 20}", agent_id="bound")
        )
    assert (seen.status, json.loads(seen.body)["error"]["code"]) == (403, "model_not_allowed")
    assert wired.wire.seen == []


@pytest.mark.requirement("large:streams")
@pytest.mark.parametrize(
    ("agent_id", "path", "content_type"),
    [
        ("plain", "/v1/embeddings", "application/json"),
        ("plain", "/v1/audio/transcriptions", "multipart/form-data; boundary=edge"),
        ("bound", "/v1/files", "multipart/form-data; boundary=edge"),
    ],
)
def test_what_need_not_be_read_streams_and_memory_stays_flat(
    wired: WiredPod, agent_id: str, path: str, content_type: str
) -> None:
    def reading(connection: Connection, seen: WireMessage) -> None:
        reached.extend(map(len, connection.parts(seen)))
        connection.send(answer(b"{}"))

    reached: list[int] = []
    wired.wire.early.put(reading)
    before = wired.pod.memory(anew=True)
    with wired.runner() as runner:
        rows = f"content-type: {content_type}", f"content-length: {100 * len(BLOCK)}"
        runner.send(wired.head(f"POST {path}", *rows, agent_id=agent_id))
        for _ in range(100):
            runner.send(BLOCK)
        assert runner.response().status == 200
    assert sum(reached) == 100 * len(BLOCK)
    assert wired.pod.memory() - before < 24 << 20


@pytest.mark.requirement("policy:forms")
@pytest.mark.parametrize("agent_id", ["plain", "bound"])
def test_the_sdks_upload_of_a_sound_is_clamped_and_routed(wired: WiredPod, agent_id: str) -> None:
    wired.wire.answers.put(answer(b'{"text":"Hi."}'))
    sound = bytes(range(256)) * 40
    with wired.pod.client(agent_id) as client:
        model = "gpt-huge" if agent_id == "bound" else "openai/whisper-1"
        assert client.audio.transcriptions.create(model=model, file=("a.wav", sound)).text == "Hi."
    (seen,) = wired.wire.seen
    named = b"small" if agent_id == "bound" else b"whisper-1"
    assert b'name="model"\r\n\r\n' + named + b"\r\n" in seen.body
    assert sound in seen.body
    assert seen.all("content-length") == [str(len(seen.body))]
    assert seen.all("authorization") == [f"Bearer {PROVIDER_KEY}"]


@pytest.mark.requirement("policy:other-paths")
def test_the_sdk_is_told_that_a_batch_is_not_allowed(wired: WiredPod) -> None:
    with (
        wired.pod.client("bound") as client,
        pytest.raises(openai.PermissionDeniedError, match="model policy") as caught,
    ):
        client.batches.create(
            input_file_id="file-1", endpoint="/v1/responses", completion_window="24h"
        )
    assert caught.value.code == "model_not_allowed"


@pytest.mark.requirement("forward:asks-a-model")
def test_embeddings_and_sounds_count_in_the_budget(wired: WiredPod) -> None:
    pod = wired.pod
    pod.agent("thrifty")
    pod.budget("thrifty", max_requests=2, window="1h")
    vectors = {
        "object": "list",
        "data": [{"embedding": [0.5]}],
        "model": "e",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }
    wired.wire.answers.put(answer(json.dumps(vectors).encode()))
    wired.wire.answers.put(answer(b"\x00\x01", "audio/mpeg"))
    with pod.client("thrifty") as client:
        client.embeddings.create(model="e", input="Hi")
        assert (
            client.audio.speech.create(model="tts", voice="alloy", input="Hi").content
            == b"\x00\x01"
        )
        with pytest.raises(openai.RateLimitError) as caught:
            client.responses.create(model="m", input="Hi")
    assert caught.value.code == "budget_exceeded"
    entries = eventually(
        lambda: pod.history("thrifty")[1:] and pod.history("thrifty"), "both are in history"
    )
    assert [entry["path"] for entry in entries] == ["/v1/embeddings", "/v1/audio/speech"]
    assert [entry["usage"]["prompt_tokens"] for entry in entries] == [4, 0]


@pytest.mark.requirement("paths:closed")
@pytest.mark.parametrize(
    "line",
    [
        "POST /v1/interactions",
        "PUT /v1/chat/completions",
        "GET /v1/organization/costs",
        "OPTIONS /v1/models",
    ],
)
def test_a_path_that_is_in_no_table_reaches_nobody_and_is_one_line_of_the_log(
    wired: WiredPod, line: str
) -> None:
    said = len(wired.pod.log())
    with wired.runner() as runner:
        seen = runner.ask(wired.head(line, "content-length: 2", agent_id="plain"), b"{}")
    error = json.loads(seen.body)["error"]
    assert (seen.status, error["code"], error["type"]) == (
        403,
        "path_not_allowed",
        "permission_error",
    )
    assert error["message"].startswith(f"{line} is not allowed here")
    assert wired.wire.seen == []
    (event,) = wired.pod.log()[said:]
    assert (event["intervention"], event["claw_id"], event["reason"]) == (
        "path_not_allowed",
        "plain",
        line,
    )


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize("chunked", [False, True])
def test_no_header_and_no_body_make_a_request_another_one(wired: WiredPod, chunked: bool) -> None:
    wired.wire.answers.put(answer(b"{}"))
    overrides = [
        "X-HTTP-Method-Override: POST",
        "x_http_method_override: POST",
        "X-HTTP-Method: POST",
        "x-method-override: POST",
    ]
    with wired.runner() as runner:
        assert runner.ask(wired.head("GET /v1/models", *overrides, agent_id="plain")).status == 200
        (seen,) = wired.wire.seen
        assert [
            name
            for name, _ in seen.headers
            if "override" in name.lower() or "method" in name.lower()
        ] == []
        framing, body = (
            ("transfer-encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n")
            if chunked
            else ("content-length: 2", b"{}")
        )
        refusal = runner.ask(wired.head("GET /v1/models", framing, agent_id="plain"), body)
    assert (refusal.status, json.loads(refusal.body)["error"]["code"]) == (400, "invalid_request")
    assert len(wired.wire.seen) == 1


@pytest.mark.requirement("policy:other-names")
@pytest.mark.requirement("packed:requests")
def test_a_packed_body_that_names_another_model_is_refused_and_an_allowed_one_goes_unpacked(
    wired: WiredPod,
) -> None:
    def packed(**more: Any) -> bytes:
        return PACKERS["deflate"](json.dumps({"model": "small", "messages": [], **more}).encode())

    sent = {"content_encoding": "deflate"}
    named = post(
        wired, "/v1/chat/completions", packed(models=["gpt-huge"], route="fallback"), **sent
    )
    assert refused(named) == (403, "model_not_allowed")
    assert wired.wire.seen == []
    wired.wire.answers.put(answer(b"{}"))
    assert post(wired, "/v1/chat/completions", packed(models=["small"]), **sent).status_code == 200
    (seen,) = wired.wire.seen
    assert (json.loads(seen.body)["models"], seen.all("content-encoding")) == (["small"], [])


@pytest.mark.requirement("paths:override")
@pytest.mark.parametrize("agent_id", ["analyst", "plain"])
@pytest.mark.parametrize(
    "name",
    [
        "x_api_key",
        "openai_organization",
        "x-original-url",
        "x_rewrite_url",
        "x-forwarded-host",
        "method_override",
    ],
)
def test_no_spelling_of_a_header_names_another_key_path_or_method(
    running: Pod, agent_id: str, name: str
) -> None:
    running.agent("plain")
    running.provider.says(text("Hi."))
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hi"}]}
    sent = headers(running, agent_id) | {name: "planted"}
    assert (
        httpx2.post(
            f"{running.url}/v1/chat/completions", json=asked, headers=sent, timeout=30
        ).status_code
        == 200
    )
    assert "planted" not in running.provider.received[0].headers.values()


@pytest.mark.requirement("policy:own-objects")
@pytest.mark.parametrize("agent_id", ["bound", "mediated"])
def test_a_request_that_names_no_model_but_an_object_is_under_the_policy(
    wired: WiredPod, agent_id: str
) -> None:
    own = f"resp_{agent_id}"
    said = {"id": own, "object": "response", "status": "completed", "output": [], "usage": USAGE}
    for _ in range(2):
        wired.wire.answers.put(answer(json.dumps(said).encode()))
    first = json.dumps({"model": "small", "input": "Hi"}).encode()
    assert post(wired, "/v1/responses", first, agent_id).status_code == 200

    named = {"previous_response_id": own, "input": "Go on"}
    assert post(wired, "/v1/responses", json.dumps(named).encode(), agent_id).status_code == 200
    assert [json.loads(seen.body)["model"] for seen in wired.wire.seen] == ["small", "small"]
    for more in (
        {"models": ["gpt-huge"]},
        {"Model": "gpt-huge"},
        {"extra_body": {"model": "gpt-huge"}},
    ):
        body = json.dumps({**named, **more}).encode()
        assert refused(post(wired, "/v1/responses", body, agent_id)) == (403, "model_not_allowed")
    assert len(wired.wire.seen) == 2


@pytest.mark.requirement("policy:own-objects")
def test_a_conversation_is_changed_by_no_request_for_another_model(wired: WiredPod) -> None:
    wired.wire.answers.put(answer(b'{"id": "conv_bound", "object": "conversation"}'))
    assert post(wired, "/v1/conversations", b'{"items": []}').status_code == 200
    for path in ("", "/items", "?model=gpt-huge"):
        body = b'{"items": [], "models": ["gpt-huge"]}' if "?" not in path else b'{"metadata": {}}'
        assert refused(post(wired, f"/v1/conversations/conv_bound{path}", body)) == (
            403,
            "model_not_allowed",
        )
    wired.wire.answers.put(answer(b'{"id": "conv_bound"}'))
    assert post(wired, "/v1/conversations/conv_bound", b'{"metadata": {}}').status_code == 200
    assert len(wired.wire.seen) == 2


@pytest.mark.requirement("wire:read-as-json")
@pytest.mark.parametrize("agent_id", ["plain", "bound", "mediated"])
@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-7",
        "text/plain",
        "multipart/form-data; boundary=x",
    ],
)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_what_was_read_as_json_is_sent_as_json(
    wired: WiredPod, agent_id: str, content_type: str, path: str
) -> None:
    wired.wire.answers.put(answer(b"{}"))
    inner = "&model=gpt-huge&file_id=file-x&"
    asked: dict[str, Any] = {
        "model": "small",
        "input": inner,
        "messages": [{"role": "user", "content": inner}],
    }
    post(wired, path, json.dumps(asked).encode(), agent_id, content_type=content_type)
    (seen,) = wired.wire.seen
    assert seen.all("content-type") == ["application/json"]


@pytest.mark.requirement("wire:read-as-json")
def test_a_sound_content_type_and_a_form_stay_as_they_are(wired: WiredPod) -> None:
    for content_type in (
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
    ):
        wired.wire.answers.put(answer(b"{}"))
        body = b'{"model":"small","messages":[]}'
        post(wired, "/v1/chat/completions", body, content_type=content_type)
        assert wired.wire.seen[-1].all("content-type") == [content_type]

    wired.wire.answers.put(answer(b"{}"))
    form_type = "multipart/form-data; boundary=x"
    field = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nsmall\r\n--x--\r\n'
    post(wired, "/v1/audio/transcriptions", field, content_type=form_type)
    assert wired.wire.seen[-1].all("content-type") == [form_type]
