"""The times of a turn's stream: until there was content, until it was shown, and of what waited."""

from collections.abc import Callable, Iterable

from claw_mediate.core.reply_events import ReplyEvent


class StreamTimes:
    """Measures one stream. ``elapsed`` returns the seconds since the request was there."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._asked_at: float | None = None
        self._held_since: float | None = None
        self.to_first_shown: float | None = None
        """Seconds until the runner had content; None before that."""
        self.of_provider: float | None = None
        """Seconds from the first model call to the provider's first content."""
        self.held = 0.0
        """Seconds from the first call of each reply to its verdict."""

    def note_asked(self) -> None:
        """Note that a model call is about to be sent."""
        if self._asked_at is None:
            self._asked_at = self._elapsed()

    def note_events(self, events: Iterable[ReplyEvent]) -> None:
        """Note that these events of a reply have come, whether they are shown or not."""
        # What an earlier attempt has recorded says nothing of how fast the provider is.
        if self._asked_at is None or self.of_provider is not None:
            return
        if any(event.kind != "opening" for event in events):
            self.of_provider = self._elapsed() - self._asked_at

    def note_first_shown(self) -> None:
        """Note that the first content was shown."""
        self.to_first_shown = self._elapsed()

    def note_call(self) -> bool:
        """Note that a reply has a call; return whether that is new."""
        if self._held_since is not None:
            return False

        self._held_since = self._elapsed()
        return True

    def note_verdict(self) -> None:
        """Note that it is known what becomes of the calls of a reply, which waited for that."""
        if self._held_since is not None:
            self.held += self._elapsed() - self._held_since
            self._held_since = None
