"""A finished response of the Responses API, told as events (docs/spec/responses.md section 7).

Texts come in parts, as a model writes them. What we do not know is told whole.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects import sse
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.members import (
    Members,
    as_raw,
    split_array,
    split_object,
    string_member,
    without_line_breaks,
)
from claw_mediate.dialects.responses.item_events import tell_item

ID_PREFIX: Final = "resp_"
BEGUN: Final[dict[str, Any]] = {
    "output": [],
    "usage": None,
    "error": None,
    "incomplete_details": None,
}
"""Members of a response that has just begun."""


def begun(response: Members) -> dict[str, Any]:
    """Return the members of a response as they are when its stream begins."""
    return {**as_raw(response), **BEGUN, "status": "in_progress"}


def tell(body: bytes, request: RunnerRequest) -> Iterator[ReplyEvent]:
    """Yield the events of a response. One without an id gets one, by its bytes."""
    del request
    response = split_object(without_line_breaks(body))
    if not string_member(response, "id"):
        response["id"] = msgspec.json.encode(ID_PREFIX + hashlib.sha256(body).hexdigest()[:24])

    yield ReplyEvent("opening", 0, begun(response))

    for piece, item in enumerate(split_array(response["output"])):
        for event in tell_item(piece, item):
            if not event.text:
                yield event
            for text in sse.split_text(event.text):
                yield replace(event, text=text)

    yield ReplyEvent("end", 0, {"status": "completed", **as_raw(response)})
