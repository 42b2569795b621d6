"""The dialect of OpenAI chat completions, ``POST …/chat/completions``."""

from typing import Final

from claw_mediate.dialects.base import Dialect, ReplayRules
from claw_mediate.dialects.openai import request, response, split, stream
from claw_mediate.dialects.openai.assemble import ChatAssembler
from claw_mediate.dialects.openai.writer import ChatWriter

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
    read_response=response.read_response,
    keep_calls=response.keep_calls,
    write_response=response.write_response,
    write_hidden_rounds=response.write_hidden_rounds,
    write_answers=response.write_answers,
    summarize=response.summarize,
    response_anchor=response.response_anchor,
    error_body=response.error_body,
    tell=stream.tell,
    writer=ChatWriter,
    assembler=ChatAssembler,
    without_stream_usage=request.without_stream_usage,
    refuses_stream_usage=request.refuses_stream_usage,
)
