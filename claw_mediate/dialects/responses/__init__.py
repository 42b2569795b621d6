"""The dialect of OpenAI Responses, ``POST …/responses`` (docs/spec/responses.md)."""

from collections.abc import Iterator
from typing import Final

from claw_mediate.core.object_ids import RESPONSE_SHAPE
from claw_mediate.dialects.base import Dialect, Keepalive, RunnerRequest, StreamOpening
from claw_mediate.dialects.openai.response import error_body
from claw_mediate.dialects.responses import request, response, split, stream
from claw_mediate.dialects.responses.reasoning import ReasoningRules
from claw_mediate.dialects.responses.writer import ResponseWriter
from claw_mediate.dialects.streams import OwnOpening


def _writer(request: RunnerRequest, opening: StreamOpening | None) -> ResponseWriter:
    """Return a writer that has written the beats of an opening."""
    own = OwnOpening("", "", 0)
    if opening is not None:
        own = OwnOpening(opening.id, opening.model, opening.created)
    writer = ResponseWriter(request, own)
    for _ in range(opening.beats if opening is not None else 0):
        writer.beat("", "native")
    return writer


def _stream(
    body: bytes, request: RunnerRequest, opening: StreamOpening | None = None
) -> Iterator[bytes]:
    writer = _writer(request, opening)
    return filter(None, map(writer.write, stream.tell(body, request)))


def _keepalive(note: str, kind: Keepalive, opening: StreamOpening) -> bytes:
    return _writer(RunnerRequest(b"{}", ""), opening).beat(note, kind)


def _stream_error(error: bytes, opening: StreamOpening) -> bytes:
    return _writer(RunnerRequest(b"{}", ""), opening).error(error)


DIALECT: Final = Dialect(
    name="openai-responses",
    max_tools=128,  # The limit of chat completions; OpenAI names none for this protocol
    id_prefix=stream.ID_PREFIX,
    transcript="input",
    answer_shape=RESPONSE_SHAPE,
    replay_rules=ReasoningRules(),
    split_rules=split.SPLIT_RULES,
    keepalive_setting="responses",
    read_request=request.read_request,
    build_request=request.build_request,
    add_context=request.add_context,
    write_request=response.write_request,
    read_response=response.read_response,
    write_response=response.write_response,
    write_hidden_rounds=response.write_hidden_rounds,
    write_answers=response.write_answers,
    summarize=response.summarize,
    response_anchor=response.response_anchor,
    error_body=error_body,
    stream=_stream,
    keepalive=_keepalive,
    stream_error=_stream_error,
)
