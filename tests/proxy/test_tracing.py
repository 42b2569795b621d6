"""Traces, from the real mitmdump to a real receiver of OTLP over HTTP: a turn is
one trace, which holds no words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Peer, calls, text
from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN, Pod, pod_at
from tests.waiting import eventually, free_port

ERROR = 2
"""``STATUS_CODE_ERROR``."""
PLANTED = (
    "What is the balance",
    "Seven dollars",
    "planted-in-a-result",
    PROVIDER_KEY,
    ANTHROPIC_KEY,
    TOOL_TOKEN,
    SECRET,
)


@dataclass
class Collector(Peer):
    """A receiver of traces."""

    async def answer(self, _request: Request) -> Response:
        return Response(b"", media_type="application/x-protobuf")

    def spans(self) -> list[Any]:
        """Return all spans so far."""
        told = [ExportTraceServiceRequest.FromString(each.body) for each in self.received]
        return [
            span
            for request in told
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def trace(self, turn_id: str) -> list[Any]:
        """Return the trace of a turn: its root first, the other spans in the order
        of their start.
        """
        spans = self.spans()
        root = next((span for span in spans if about(span).get("claw.turn_id") == turn_id), None)
        ours = [span for span in spans if root is not None and span.trace_id == root.trace_id]
        return sorted(ours, key=lambda span: (bool(span.parent_span_id), span.start_time_unix_nano))


def about(span: Any) -> dict[str, Any]:
    values = {each.key: each.value for each in span.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


@dataclass
class TracedPod:
    pod: Pod
    collector: Collector

    def turn(self, words: str, **more: Any) -> list[Any]:
        """Ask, and return the trace of the turn."""
        said = len(self.pod.log())
        message = {"role": "user", "content": words}
        create = self.pod.client().chat.completions.with_raw_response.create
        with contextlib.suppress(openai.APIStatusError):  # the outcome is in the trace
            create(model="gpt-test", messages=[message], **more)  # type: ignore[list-item]
        turn_id = next(
            event["turn_id"] for event in self.pod.log()[said:] if event["type"] == "request"
        )
        return eventually(lambda: self.collector.trace(turn_id), "its trace is sent")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracedPod]:
    collector = Collector()
    collector.start()
    with pod_at(tmp_path_factory.mktemp("pod")) as pod:
        balance = {"usd": 7, "note": "planted-in-a-result"}
        pod.service.routes["GET", "/balance"] = JSONResponse(balance)
        pod.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }
        pod.agent("analyst", pod.tool("balance"))
        pod.start()
        yield TracedPod(pod, collector)
    collector.stop()


@pytest.mark.requirement("tracing:turn")
def test_a_turn_is_one_trace_of_its_model_calls_and_its_tools(traced: TracedPod) -> None:
    traced.pod.provider.says(calls(("c1", "desk__balance", {})), text("Seven dollars"))
    turn, *within = traced.turn("What is the balance, please?")
    assert [span.name for span in within] == [
        "chat gpt-test",
        "execute_tool desk.balance",
        "chat gpt-test",
    ]
    assert {span.parent_span_id for span in within} == {turn.span_id}
    assert (turn.name, turn.parent_span_id) == ("turn", b"")
    told = about(turn)
    assert (told["gen_ai.agent.id"], told["claw.rounds"], told["http.response.status_code"]) == (
        "analyst",
        2,
        200,
    )
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (20, 10)
    assert about(within[0])["gen_ai.operation.name"] == "chat"
    assert about(within[0])["gen_ai.provider.name"] == "openai"
    assert about(within[1])["gen_ai.tool.name"] == "desk.balance"
    for span in within:
        assert turn.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= turn.end_time_unix_nano


@pytest.mark.requirement("tracing:turn")
def test_a_failure_is_an_error_of_its_span_and_an_intervention_an_event(
    traced: TracedPod,
) -> None:
    refused = JSONResponse({"error": {"message": "no"}}, 400)
    traced.pod.provider.says(calls(("c1", "desk__made_up", {})), refused)
    turn, *within = traced.turn("What is the balance, made up?")
    assert turn.status.code == ERROR
    assert about(turn)["error.type"] == "provider_http_400"
    assert [(span.name, span.status.code) for span in within] == [
        ("chat gpt-test", 0),
        ("chat gpt-test", ERROR),
    ]
    assert about(within[1])["error.type"] == "400"
    events = {
        (event.name, *(each.value.string_value for each in event.attributes))
        for event in turn.events
    }
    assert ("claw.intervention", "unknown_tool_rejected") in events


@pytest.mark.requirement("tracing:words")
def test_no_trace_tells_words_or_secrets(traced: TracedPod) -> None:
    traced.pod.provider.says(calls(("c1", "desk__balance", {})), text("Seven dollars"))
    traced.turn("What is the balance, and my key?", user=f"{SECRET}-analyst")
    sent = b"".join(each.body for each in traced.collector.received)
    assert b"desk.balance" in sent
    for planted in PLANTED:
        assert planted.encode() not in sent, planted
    assert {each.path for each in traced.collector.received} == {"/v1/traces"}


@pytest.mark.requirement("tracing:gone")
def test_a_collector_that_is_not_there_costs_nothing_but_spans(pod: Pod, nobody: str) -> None:
    pod.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = nobody
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    pod.provider.says(text("Seven dollars"))
    message: Any = {"role": "user", "content": "the balance"}
    answer = pod.client().chat.completions.create(model="gpt-test", messages=[message])
    assert answer.choices[0].message.content == "Seven dollars"
    pod.stop()
    assert pod.process is not None
    assert pod.process.returncode == 0


@pytest.mark.requirement("tracing:end")
def test_what_was_traced_is_sent_before_a_proxy_that_is_scraped_too_has_ended(pod: Pod) -> None:
    collector = Collector()
    collector.start()
    pod.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
    pod.environment["OTEL_BSP_SCHEDULE_DELAY"] = "600000"
    pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{free_port()}"
    pod.agent("analyst", pod.tool("balance"))
    pod.start()
    pod.provider.says(text("Seven dollars"))
    message: Any = {"role": "user", "content": "the balance"}
    pod.client().chat.completions.create(model="gpt-test", messages=[message])
    assert collector.received == []
    pod.stop()
    collector.stop()
    assert sorted(span.name for span in collector.spans()) == ["chat gpt-test", "turn"]


@pytest.mark.requirement("tracing:off")
def test_an_endpoint_without_the_extra_is_one_line_that_says_what_to_install(pod: Pod) -> None:
    missing = Path(pod.home, "without", "requests")
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    pod.environment["PYTHONPATH"] = f"{missing.parent}:{pod.env()['PYTHONPATH']}"
    pod.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    pod.agent("analyst")
    pod.start(wait=False)
    assert pod.process is not None
    assert pod.process.wait(timeout=60) != 0
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set: pip install '.[otel]' in a checkout" in pod.said()
