"""The dialect of OpenAI Responses, ``POST …/responses`` (docs/spec/responses.md)."""

from typing import Final

from claw_mediate.core.object_ids import RESPONSE_SHAPE
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.openai.response import error_body
from claw_mediate.dialects.responses import request, response, split, stream
from claw_mediate.dialects.responses.assemble import ResponseAssembler
from claw_mediate.dialects.responses.reasoning import ReasoningRules
from claw_mediate.dialects.responses.writer import ResponseWriter

DIALECT: Final = Dialect(
    name="openai-responses",
    max_tools=128,  # The limit of chat completions; OpenAI names none for this protocol
    id_prefix=stream.ID_PREFIX,
    transcript="input",
    answer_shape=RESPONSE_SHAPE,
    replay_rules=ReasoningRules(),
    split_rules=split.SPLIT_RULES,
    keepalive_setting="responses",
    answers_in_items=True,
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
    error_body=error_body,
    tell=stream.tell,
    writer=ResponseWriter,
    assembler=ResponseAssembler,
)
