"""Replies of Anthropic's as the events of a stream, and several of them written as a live turn does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from claw_mediate.core.reply_events import ReplyEvent
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.anthropic.assemble import MessageAssembler
from claw_mediate.dialects.anthropic.stream import MessageWriter, tell
from claw_mediate.dialects.streams import OwnOpening
from tests.mediate.cut_message import Event, read_events, write_events

ASKED = ANTHROPIC_MESSAGES.read_request(b'{"messages":[],"stream":true}')
OWN = OwnOpening("msg_own", "model-own", 0)


def encoded(said: Event) -> bytes:
    return json.dumps(said).encode()


def told(said: Event) -> list[ReplyEvent]:
    return [*tell(encoded(said), ASKED)]


def fed(events: Sequence[Event]) -> list[ReplyEvent]:
    assembler = MessageAssembler()
    found: list[ReplyEvent] = []
    for event in read_events(write_events(events)):
        found += assembler.feed(event)
    return found


def live(*hidden: Iterable[ReplyEvent], last: Iterable[ReplyEvent]) -> tuple[MessageWriter, bytes]:
    """Return a stream as a live turn writes it.

    Of hidden replies it has what comes before their first call. Blocks are closed right before the
    next block.
    """
    writer = MessageWriter(ASKED, OWN)
    stream = b""
    closings: list[ReplyEvent] = []

    for reply in (*hidden, last):
        is_first_event = True
        for event in reply:
            if reply is not last and event.kind in {"call", "end"}:
                break
            if event.kind == "closing":
                closings.append(event)
                continue

            if event.channel == "start" or event.kind == "end":
                stream += b"".join(map(writer.write, closings))
                closings = []
            if is_first_event:
                if event.kind == "opening" and writer.id:
                    continue
                writer.begin_reply()
                is_first_event = False
            stream += writer.write(event)
    return writer, stream


def shown(*hidden: Sequence[Event], last: Sequence[Event]) -> list[Event]:
    before = [block for blocks in hidden for block in blocks if block["type"] != "tool_use"]
    return [*before, *last]
