"""The interface to what a provider keeps: responses and conversations that later requests may name.

A protocol in which providers keep nothing has no part of this: ``RunnerRequest.kept`` is None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

PAGE_SIZE = 100
"""The most items that a provider gives at once."""


@dataclass(frozen=True, slots=True)
class Concealment:
    """Ids of items and calls, and names of tools, that a runner may not read."""

    ids: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShownEcho:
    """The members of a kept response that differ for the runner."""

    id: str
    previous: str = ""  # "" where it goes on from none
    tool_choice: bytes = b""  # The runner's, where the provider got another one
    instructions: int = -1  # Characters of ``instructions`` that are the runner's; -1: all


class KeptForm(Protocol):
    """The wire's form of what a provider keeps. A module satisfies it."""

    def ids_in(self, items: bytes) -> frozenset[str]:
        """Return the ids of items (JSON, comma separated).

        The ids of calls that they make or answer are among them.
        """

    def ids_of_output(self, body: bytes) -> frozenset[str]:
        """Return the ids of a response's items."""

    def show_response(self, body: bytes, echo: ShownEcho, concealment: Concealment) -> bytes:
        """Return a kept response as its runner may read it.

        Raise ``UnreadableResponseError`` for anything else.
        """

    def show_items(self, raw: Sequence[bytes], concealment: Concealment) -> list[bytes]:
        """Return the items, oldest first, without the hidden ones.

        Reasoning is hidden, too, if everything it led to is.
        """

    def read_page(self, body: bytes) -> tuple[list[bytes], str]:
        """Return the items of a provider's page, and the id after which the next page begins.

        The id of the last page is "". Raise ``UnreadableResponseError``.
        """

    def write_page(self, items: Sequence[bytes], asked: Mapping[str, str]) -> bytes:
        """Return the page of items (oldest first) that a query asks for.

        Raise ``UnreadableRequestError``.
        """

    def find_item(self, items: Sequence[bytes], item_id: str) -> bytes | None:
        """Return the item with that id; None if there is none."""


class KeptReferences(msgspec.Struct, frozen=True):
    """The kept objects that a request names, and what its provider is to keep of it."""

    form: KeptForm
    go_on_from: Callable[[str, bytes], bytes]
    """Returns the body with the provider's own id of the previous response, and with more items.

    An id "" leaves the runner's. The items (JSON, comma separated) go before the runner's own.
    """
    previous_response: str = ""  # The id of the kept response that the request goes on from
    conversation: str = ""
    """The id of the kept conversation into which the provider puts the request and its response."""
    keeps_response: bool = True
    """True if the provider keeps the response, so that a later request may name it."""
    instructions_length: int = 0  # Characters of the system prompt that a kept response repeats
    is_bound: bool = False
    """True if the request relies on what only one provider keeps: no other one can answer it."""

    @property
    def named_ids(self) -> list[str]:
        """Return the ids that the request goes on from."""
        return [each for each in (self.previous_response, self.conversation) if each]
