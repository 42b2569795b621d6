"""The dialect of OpenAI chat completions, ``POST …/chat/completions``."""

from collections.abc import Iterator
from typing import Final

from claw_mediate.dialects.base import (
    Dialect,
    Keepalive,
    ReplayRules,
    RunnerRequest,
    StreamOpening,
)
from claw_mediate.dialects.openai import request, response, split, stream
from claw_mediate.dialects.openai.writer import ChatWriter
from claw_mediate.dialects.streams import OwnOpening


def _writer(request: RunnerRequest, opening: StreamOpening | None) -> ChatWriter:
    """Return a writer that has written the beats of an opening."""
    if opening is None:
        return ChatWriter(request, OwnOpening("", "", 0))

    writer = ChatWriter(request, OwnOpening(opening.id, opening.model, opening.created))
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
    name="openai-chat",
    max_tools=128,  # OpenAI's limit of tools in one request
    id_prefix="chatcmpl",
    transcript="messages",
    answer_shape=None,
    replay_rules=ReplayRules(),
    split_rules=split.SPLIT_RULES,
    keepalive_setting="openai",
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
    error_body=response.error_body,
    stream=_stream,
    keepalive=_keepalive,
    stream_error=_stream_error,
    without_stream_usage=request.without_stream_usage,
    refuses_stream_usage=request.refuses_stream_usage,
)
