"""The runners that read one answer, each from its beginning and in its own time.

A provider is read no further than ``MAX_AHEAD`` ahead of the fastest runner.
"""

import asyncio
from typing import Final

from claw_mediate.core.held_text import UnheldLog
from claw_mediate.core.http import KeepaliveChunk
from claw_mediate.core.shown_log import Cursor, NextReply, ShownLog
from claw_mediate.dialects.streams import Keepalive, StreamWriter
from claw_mediate.turns.shown_answer import ShownAnswer

MAX_AHEAD: Final = 1 << 20
"""Characters, about, that a reply is read ahead of the fastest runner."""
_MAX_CHUNK: Final = 32 * 1024  # Bytes that are written at once


class AnswerReaders:
    """All runners that read the answer of one turn."""

    def __init__(self, shown: ShownAnswer) -> None:
        self.shown = shown
        self._readers: list[AnswerReader] = []
        self._was_read = asyncio.Event()

    def attach(self, held: str = "", writer: StreamWriter | None = None) -> "AnswerReader":
        """Return the stream for one more runner, from its beginning.

        ``held``: what it has of it, and is not shown again. ``writer``: of the runner's stream, if
        that has begun.
        """
        shown = self.shown
        reader = AnswerReader(self, shown.log_for(held), writer or shown.new_writer())
        self._readers.append(reader)
        return reader

    def detach(self, reader: "AnswerReader") -> None:
        self._readers.remove(reader)
        self.note_read()

    def ids(self) -> set[str]:
        """Return the ids that the stream has for its runners: a late one may have another."""
        return {self.shown.id, *(reader.id for reader in self._readers)} - {""}

    @property
    def is_far_behind(self) -> bool:
        """True if every runner is far behind what was shown."""
        readers = self._readers
        size = self.shown.log.size
        return bool(readers) and all(size - reader.cursor.size > MAX_AHEAD for reader in readers)

    async def wait_for_one(self) -> None:
        """Wait until a runner is not far behind, or all have left."""
        while self.is_far_behind:
            self._was_read.clear()
            await self._was_read.wait()

    def note_read(self) -> None:
        self._was_read.set()

    def wake(self) -> None:
        """Let every runner look for more."""
        for reader in self._readers:
            reader.ready.set()


class AnswerReader:
    """The stream of a turn for one runner."""

    def __init__(
        self, readers: AnswerReaders, log: ShownLog | UnheldLog, writer: StreamWriter
    ) -> None:
        self._readers = readers
        self._shown = readers.shown
        self._log = log
        self._writer = writer
        self.cursor = Cursor()
        self.ready = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def id(self) -> str:
        """Return the id that this runner's stream has shown; "" before it has shown one."""
        return self._writer.id

    def read(self) -> bytes:
        """Return what the runner has not got: about ``_MAX_CHUNK`` at most; b"" if nothing."""
        chunks: list[bytes] = []
        size = 0
        if self._shown.has_own_id and not self._writer.id:
            # Another runner was told an id of ours: the stream has the same one for all.
            chunks.append(self._writer.beat("", "native"))

        for event in self._log.read(self.cursor):
            if isinstance(event, NextReply):
                self._writer.begin_reply()
                continue

            chunk = self._writer.write(event)
            chunks.append(chunk)
            size += len(chunk)
            if size >= _MAX_CHUNK:
                break

        self._readers.note_read()
        return b"".join(chunks)

    async def wait(self, seconds: float | None) -> None:
        """Wait for more to read, at most so many seconds. It may return earlier, and without more.

        No call may have an earlier end than the one before: an alarm that is set already stays, for
        to set it anew with each event would cost more than to write the event.
        """
        if self._alarm is None and seconds is not None:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)
        await self.ready.wait()
        self.ready.clear()

    def _ring(self) -> None:
        self._alarm = None
        self.ready.set()

    def beat(self, note: str, kind: Keepalive) -> bytes:
        """Return an event that says that the turn is alive."""
        had_id = bool(self._writer.id)
        beat = write_beat(self._writer, note, kind)
        if not had_id and self._writer.id:
            self._shown.has_own_id = True
        return beat

    def error(self, error: bytes) -> bytes:
        return self._writer.error(error)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._readers.detach(self)


def write_beat(writer: StreamWriter, note: str, kind: Keepalive) -> bytes:
    """Return a keepalive. One that tells the answer's id must arrive, any other may be dropped."""
    had_id = bool(writer.id)
    beat = writer.beat(note, kind)
    return KeepaliveChunk(beat) if had_id or not writer.id else beat
