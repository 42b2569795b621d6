"""The dialect of Anthropic messages, ``POST …/messages`` and ``…/messages/count_tokens``."""

from typing import Final

from claw_mediate.core.object_ids import MESSAGE_SHAPE
from claw_mediate.dialects.anthropic import request, response, split, stream
from claw_mediate.dialects.anthropic.assemble import MessageAssembler
from claw_mediate.dialects.base import Dialect

DIALECT: Final = Dialect(
    name="anthropic-messages",
    max_tools=10_000,  # Anthropic names no limit; no manifest has more
    id_prefix="msg_",
    transcript="messages",
    answer_shape=MESSAGE_SHAPE,
    replay_rules=split.ThinkingRules(),
    split_rules=split.SPLIT_RULES,
    keepalive_setting="anthropic",
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
    writer=stream.MessageWriter,
    assembler=MessageAssembler,
)
