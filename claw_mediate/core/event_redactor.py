"""Events of a reply without secrets: in their members, and in texts that come in parts. Pure.

The end of a text may be the beginning of a secret. It waits for the text's next part, or for
``flush``.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.window import TextWindow
from claw_mediate.core.reply_events import ReplyEvent, with_data


class _OpenText(NamedTuple):
    """A text under way: the window over it, and the event that began it."""

    window: TextWindow
    head: ReplyEvent


class EventRedactor:
    """Takes the secrets out of the events of one reply after the other."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._texts: dict[tuple[int, str], _OpenText] = {}
        self._early = 0

    def clear(self) -> None:
        """Forget what waits: another attempt at the reply begins."""
        self._texts.clear()

    def redact_text(self, event: ReplyEvent) -> ReplyEvent | None:
        """Return an event with a text, as far as its text is safe; None if all of it waits."""
        place = event.piece, event.channel
        open_text = self._texts.get(place)
        if open_text is None:
            open_text = self._texts[place] = _OpenText(TextWindow(self._redactor), event)

        before = open_text.window.early
        text = open_text.window.feed(event.text)
        self._early += open_text.window.early - before
        return replace(event, text=text) if text else None

    def take_early(self) -> int:
        """Return the characters that were returned since the last call, and that no body has.

        They are beginnings of secrets (``TextWindow.early``).
        """
        early, self._early = self._early, 0
        return early

    def redact_members(self, event: ReplyEvent) -> ReplyEvent:
        """Return an event without text, without secrets in its members."""
        data = msgspec.json.encode(event.data)
        redacted = self._redactor.document(data)
        return event if redacted == data else with_data(event, redacted)

    def flush(self, piece: int | None = None) -> Iterator[ReplyEvent]:
        """Yield the ends of texts that waited: of one piece, or of all. They are complete."""
        for place, open_text in [*self._texts.items()]:
            if piece is not None and place[0] != piece:
                continue

            del self._texts[place]
            before = open_text.window.early
            text = open_text.window.flush()
            self._early += open_text.window.early - before
            if text:
                yield replace(open_text.head, text=text)
