"""The objects that a provider keeps for the Responses API, for models that go on from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.wires import Body
from tests.wires.responses_refusals import RefusedError, kind_of
from tests.wires.responses_rules import items_of


@dataclass
class KeptResponses:
    """All kept responses and conversations, each as the items that a model reads to go on from it,
    and the items of responses by their ids.
    """

    responses: dict[str, list[Body]] = field(default_factory=dict)
    conversations: dict[str, list[Body]] = field(default_factory=dict)
    items: dict[str, Body] = field(default_factory=dict)

    def read(self, request: Body) -> list[Body]:
        """Return all that the model reads: what is kept, and the request's items behind it.

        Raises ``RefusedError`` if something that the request names is not kept.
        """
        own = items_of(request.get("input") or [])
        return self.earlier(request) + [self._referenced(item) for item in own]

    def earlier(self, request: Body) -> list[Body]:
        """Return the kept items that a request goes on from, and raise as ``read`` does."""
        if previous := request.get("previous_response_id"):
            if previous not in self.responses:
                message = f"Previous response with id '{previous}' not found."
                raise RefusedError(
                    message, code="previous_response_not_found", param="previous_response_id"
                )
            return self.responses[previous]

        if conversation := id_of(request.get("conversation")):
            if conversation not in self.conversations:
                message = f"Conversation with id '{conversation}' not found."
                raise RefusedError(message, param="conversation", status=404)
            return self.conversations[conversation]

        return []

    def keep(self, request: Body, read: list[Body], response: Body) -> None:
        """Keep a response, and what the model read for it, as the request asks."""
        whole = read + response["output"]
        if request.get("store") is not False:
            self.responses[response["id"]] = whole
            self.items |= {item["id"]: item for item in response["output"]}
        if conversation := id_of(request.get("conversation")):
            self.conversations[conversation] = whole

    def _referenced(self, item: Body) -> Body:
        if kind_of(item) != "item_reference":
            return item
        if item["id"] not in self.items:
            raise RefusedError(f"Item with id '{item['id']}' not found.", param="input", status=404)
        return self.items[item["id"]]


def id_of(named: Any) -> str:
    """Return the id of a conversation, which a request names by its id or as an object."""
    return named["id"] if isinstance(named, dict) else named or ""
