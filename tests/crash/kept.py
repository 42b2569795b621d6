"""A provider's store for the Responses API: chains of responses, and conversations to which each
exchange is appended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.wires import Body, responses


class Exchange(NamedTuple):
    """A request's own items and those of its response; ``port``: of the proxy's connection."""

    sent: list[Body]
    made: list[Body]
    port: int


@dataclass
class Kept:
    """All responses, each with the items that it goes on from, and all conversations."""

    responses: dict[str, list[Body]] = field(default_factory=dict)
    conversations: dict[str, list[Exchange]] = field(default_factory=dict)

    def read(self, body: Body) -> list[Body]:
        """Return everything that the model reads for a request."""
        earlier = (
            self.responses[body["previous_response_id"]] if body.get("previous_response_id") else []
        )
        exchanges = self.conversations.get(body.get("conversation") or "", [])
        return [
            *earlier,
            *(item for past in exchanges for item in (*past.sent, *past.made)),
            *body["input"],
        ]

    def transcript(self, body: Body, port: int) -> list[Body]:
        """Return the same for a request that is answered.

        A provider appends nothing for a client that is gone. So an exchange is taken back if the
        same items come over another connection: the proxy that sent them has died. One that lives
        uses its connection again.
        """
        exchanges = self.conversations.get(body.get("conversation") or "", [])
        if exchanges and exchanges[-1].sent == body["input"] and exchanges[-1].port != port:
            exchanges.pop()
        return self.read(body)

    def keep(self, body: Body, transcript: list[Body], reply: bytes, port: int) -> None:
        made = json.loads(reply)
        self.responses[made["id"]] = [*transcript, *made["output"]]
        if body.get("conversation"):
            self.conversations.setdefault(body["conversation"], []).append(
                Exchange(body["input"], made["output"], port)
            )


def reply(text: str, calls: list[responses.Made], number: int, *, store: bool) -> bytes:
    """Return a response with ids of its own."""
    output = [responses.message(text, f"msg_{number}")] if text else []
    output += [responses.function_call(call.id, call.name, call.arguments) for call in calls]
    return json.dumps(responses.response(*output, id=f"resp_{number}", store=store)).encode()
