"""A batch that could go on from another agent's response, and bodies that came packed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from claw_contract.content_coding import DecodingError
from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_state.ownership import ProviderObject
from tests.mediate.turns.kept.kept_pod import KeptPod, filled_pod


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[KeptPod]:
    async with filled_pod(tmp_path) as made:
        yield made


def posted(
    pod: KeptPod, path: str, content_type: str = "application/json"
) -> tuple[Identity, Request]:
    headers = [("authorization", f"Bearer {pod.token('clerk')}"), ("content-type", content_type)]
    request = Request("POST", path, headers, b"")
    admitted = pod.mediator.admit(request)
    assert isinstance(admitted, Identity)
    return admitted, request


@pytest.mark.requirement("responses:batches")
@pytest.mark.parametrize("path", ["/v1/batches", "/v1//Batches/", "/v1/%62atches?api-version=1"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"endpoint":"/v1/responses","input_file_id":"file-1","completion_window":"24h"}',
        b'{"endpoint":"\\/v1\\/respons\\u0065s","input_file_id":"file-1"}',
        b'{"endpoint":"responses","input_file_id":"file-1"}',
        b'{"endpoint":"https://api.openai.com/v1/responses?x","input_file_id":"file-1"}',
        b'{"endpoint":"/v1/embeddings","endpoint":"/v1/responses"}',
        b'{"endpoint":"/v1/responses","endp\\u006fint":"/v1/embeddings"}',
        b'{"endpoint":["/v1/responses"]}',
        b"endpoint=/v1/responses",
        b"",
    ],
)
async def test_a_batch_that_could_go_on_from_anybodys_response_is_refused(
    pod: KeptPod, body: bytes, path: str
) -> None:
    for content_type in ("application/json", "text/plain"):
        admitted, head = posted(pod, path, content_type)
        assert pod.mediator.must_read(admitted, head)
        decision = await pod.mediator.exchange(admitted, replace(head, body=body))
        assert isinstance(decision, RunnerResponse)
        assert decision.status in {400, 403}
    packed = await pod.mediator.exchange_packed(
        admitted, replace(head, body=body[:1]), DecodingError("no such coding")
    )
    assert isinstance(packed, RunnerResponse)


@pytest.mark.requirement("responses:batches")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/batches", b'{"endpoint":"/v1/chat/completions","input_file_id":"file-1"}'),
        ("/v1/batches", b'{"endpoint":"/v1/embeddings","input_file_id":"file-1"}'),
        ("/v1/batches/batch_1/cancel", b""),
    ],
)
async def test_a_batch_of_another_protocol_is_forwarded(
    pod: KeptPod, path: str, body: bytes
) -> None:
    admitted, head = posted(pod, path)
    own = [ProviderObject("file", "file-1", "openai"), ProviderObject("batch", "batch_1", "openai")]
    await pod.mediator.state.ownership.save_objects(admitted.agent.id, own)
    assert isinstance(await pod.mediator.exchange(admitted, replace(head, body=body)), Forward)


@pytest.mark.requirement("responses:batches")
async def test_a_batch_that_came_packed_is_refused(pod: KeptPod) -> None:
    admitted, head = posted(pod, "/v1/batches")
    packed = replace(
        head,
        headers=[*head.headers, ("content-encoding", "deflate")],
        body=b'{"endpoint":"/v1/embeddings"}',
    )
    assert isinstance(await pod.mediator.exchange(admitted, packed), RunnerResponse)


@pytest.mark.requirement("responses:owner-only")
async def test_a_body_that_came_packed_is_sent_as_it_was_read(pod: KeptPod) -> None:
    """Bytes can be made that two readers of deflate unpack to two bodies."""
    pod.agent("clerk")
    admitted, head = posted(pod, "/v1/responses")
    packed = replace(
        head,
        headers=[*head.headers, ("content-encoding", "deflate")],
        body=b'{"model":"gpt-test","input":"Hi"}',
    )
    decision = await pod.mediator.exchange(admitted, packed)
    assert isinstance(decision, Forward)
    assert decision.body == packed.body
    plain = await pod.mediator.exchange(admitted, replace(packed, headers=head.headers))
    assert isinstance(plain, Forward)
    assert plain.body is None
