"""The keys of messages, and the evidence of a conversation: how hidden rounds are found again.

docs/spec/mediation.md section 7. Pure. Which stored rounds belong to which message is decided in
``round_matching``.

An anchor names the assistant's message that hidden rounds led to. Its key is the content of that
message:

    a handoff      the set of its native call ids, compared by their letters and digits, because
                     runners strip the rest. If calls have no ids, the call itself
    an answer      its visible text without white space

Beside the key it has digests of the few messages before, of which a runner may add and drop some.

An answer may be several items of a transcript, of which a runner sends back some. Its anchor then
has further names: the ids of the items, and the texts and calls of single ones.

A runner may write its calls into the text of the message (smolagents). Such a message is also
looked for by the call ids and by the words in that text.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from claw_mediate.core.user_words import (
    REMINDER_END,
    REMINDER_START,
    own_words,
    without_reminders,
)
from claw_state.continuity import ID_KIND, Anchor

_MAX_PRECEDING = 4  # Messages before an answer that distinguish it from an equal one
_MIN_DISTINCTIVE = 60  # Characters of an answer that hardly any other turn repeats
_OPENCLAW_NOTE_MARK = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_PLACEHOLDERS = (
    "(no content)",  # Claude Code's
    "[assistant turn failed before producing content]",  # OpenClaw's, like the next one
    (
        "[This turn failed before it completed. "
        "Do not redo its work without confirming with the user first.]"
    ),
)
"""Texts that runners write in the place of an answer that was empty, or that they have dropped."""
_ASCII_SPACE = bytes(code for code in range(128) if chr(code).isspace())
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_SLICE = 1 << 20  # Characters of a text that are read at once
_MAX_PARTS = 16  # A user's message with more parts is only compared as a whole

# A digest of a user's message of several parts is that of the whole, and then that of each part:
# a mark, which says whether the part is the user's words or a runner's note, and the digest itself.
USER_MARK = ":"
_NOTE_MARK = "~"
WHOLE_LENGTH = 16  # Characters of the digest of a message
PART_LENGTH = 9  # Characters of the digest of a part, with its mark
_CALLS_AS_TEXT = "Calling tools:\n["
_CALL_HEAD = r"\{'id': '([^'\\]*+)', 'type': 'function', 'function': \{'name': "
_STRING = r"""'[^'\\]*+(?:\\.?[^'\\]*+)*+'?|"[^"\\]*+(?:\\.?[^"\\]*+)*+"?"""
_CALL_AS_TEXT = re.compile(
    rf"""{_CALL_HEAD}(?:[^'"{{]++|{_STRING}|(?!{_CALL_HEAD})\{{)*+""", re.DOTALL
)
"""A call as smolagents writes it (the ``repr`` of a dictionary), up to the next call.

Strings are skipped whole and nothing is read twice, so the time is proportional to the length of
the text, whatever it is.
"""


class Evidence(msgspec.Struct, frozen=True):
    """The conversation of a request, as digests."""

    anchors: Mapping[int, Anchor] = msgspec.field(default_factory=dict)
    """Index in ``messages`` → the anchor of the assistant's message there."""
    gaps: Mapping[int, Anchor] = msgspec.field(default_factory=dict)
    """Index of a user's message → the anchor of a turn that may have ended without answer there."""
    before: tuple[str, ...] = ()
    """Digests of the last visible messages: the evidence that is stored with this request's answer.
    """
    earlier: str = ""
    """The digest of all messages except the user's last one; "" if there is no other."""
    blocks: Mapping[int, "MessageBlock"] = msgspec.field(default_factory=dict)
    """Index of a message with an anchor → its block.

    Without an entry the message is a block of its own.
    """
    signed: Mapping[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Index of a message or item of the model's → the digests of its signed reasoning."""

    def block(self, index: int) -> "MessageBlock":
        return self.blocks.get(index) or MessageBlock(index, index)


class MessageBlock(NamedTuple):
    """Messages in a row that the model made. Both members are indexes in ``messages``."""

    start: int  # The first message
    stretch: int  # The start of the first block since a user's message, which ends every answer


def item_key(item_id: str) -> str:
    """Return the name of an item with this id; "" for an id without letters and digits."""
    plain = _NOT_ALPHANUMERIC.sub("", item_id)
    return f"{ID_KIND}:{_digest([plain])}" if plain else ""


def calls_key(ids: Iterable[str]) -> str:
    """Return the key of an assistant's message with calls. Their order does not matter."""
    plain = sorted(_NOT_ALPHANUMERIC.sub("", call_id) for call_id in ids)
    return "calls:" + _digest(plain)


def call_key(name: str, arguments: str) -> str:
    """Return the key of a handoff whose call has no id. ``arguments`` are canonical."""
    return "call:" + _digest([name, arguments])


def text_key(text: str) -> str:
    """Return the key of an answer."""
    return _key_of_digest(*_digest_of_text(text))


def _key_of_digest(plain: str, digest: str) -> str:
    """Return the key of an answer, given what ``_digest_of_text`` returned."""
    if digest in _PLACEHOLDER_DIGESTS:
        return EMPTY_TEXT_KEY
    return ("words:" if len(plain) >= _MIN_DISTINCTIVE else "text:") + digest


def keys_in_text(text: str) -> tuple[str, ...]:
    """Return the keys of a message whose runner wrote its calls into the text.

    One is made of the ids of the calls, one of the words before them. () for any other text.
    """
    words, marker, _ = text.rpartition(_CALLS_AS_TEXT)
    if not marker:
        return ()

    ids = [call[1] for call in _CALL_AS_TEXT.finditer(text, len(words) + len(marker))]
    if not ids:
        return ()

    key = text_key(words)
    return (calls_key(ids),) if key == EMPTY_TEXT_KEY else (calls_key(ids), key)


def is_resent(text: str) -> bool:
    """Return True if the next request will have this user's message, too."""
    if not text or text.isspace():
        return False

    # OpenClaw ends every request with a note about the moment, and drops it later.
    return not text.lstrip().startswith(_OPENCLAW_NOTE_MARK)


class Transcript:
    """The messages of a conversation so far, as evidence."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._digests = list(before)
        self._steps: list[str] = []
        self._last_user_step: int | None = None

    def add_user(self, *parts: str) -> Anchor | None:
        """Add a user's message, which has these parts.

        Return the anchor of a turn that may have ended without an answer right before it.

        A message without visible text, such as one with results only, is not added: None.
        """
        parts = tuple(map(own_words, parts))
        text = "".join(parts)
        if not is_resent(text):
            return None

        gap = Anchor(EMPTY_TEXT_KEY, self.before)  # Without this message itself

        plain, digest = _digest_of_text(text)
        words = without_reminders(text)
        step = text_key(words) if words is not text else _key_of_digest(plain, digest)
        self._last_user_step = len(self._steps)
        self._steps.append(step)

        has_parts = len(parts) > 1
        self._digests.append(_digest_of_parts(parts) if has_parts else digest[:WHOLE_LENGTH])
        return gap

    @property
    def earlier(self) -> str:
        """The digest of all messages except the user's last one; "" if there is no other.

        The assistant's messages after that one count, too.
        """
        last = self._last_user_step
        if last is None or len(self._steps) == 1:
            return ""

        return _digest([*self._steps[:last], "", *self._steps[last + 1 :]])

    @property
    def before(self) -> tuple[str, ...]:
        """The digests of the last messages, as evidence of an answer that comes now."""
        return tuple(self._digests[-_MAX_PRECEDING:])

    def add_text(self, text: str) -> None:
        """Add a message's text to the evidence of later answers, unless it is all white space."""
        plain, digest = _digest_of_text(text)
        if plain:
            self._digests.append(digest[:WHOLE_LENGTH])

    def add_assistant(self, key: str, text: str = "") -> Anchor:
        """Return the anchor of the assistant's message that comes now, with its visible text."""
        if key != EMPTY_TEXT_KEY:
            self._steps.append(key)
        return Anchor(key, self.before, keys_in_text(text))


def _digest_of_parts(parts: Sequence[str]) -> str:
    """Return the digest of a user's message: of the whole, then of each part with its mark.

    A message of a single part, or of more than ``_MAX_PARTS``, has the digest of the whole only.
    """
    texts = [text for text in map(_without_space, parts) if text]
    whole = _digest(["".join(texts)])[:WHOLE_LENGTH]
    if not 1 < len(texts) <= _MAX_PARTS:
        return whole

    digests = [whole]
    for text in texts:
        is_note = text.startswith(REMINDER_START) and text.endswith(REMINDER_END)
        mark = _NOTE_MARK if is_note else USER_MARK
        digests.append(mark + _digest([text])[: PART_LENGTH - 1])
    return "".join(digests)


def _without_space(text: str) -> str:
    """Return the text without white space.

    Runners join the parts of a text with line breaks, or without.
    """
    if text.isascii():
        return text.encode().translate(None, _ASCII_SPACE).decode()
    return "".join(text.split())


def _digest_of_text(text: str) -> tuple[str, str]:
    """Return the beginning of the text without white space, and the digest of all of it."""
    return _digest_of_short_text(text) if len(text) <= _SLICE else _digest_of_long_text(text)


# The key and the digest of one message are asked for one after the other, so one entry is enough.
@lru_cache(maxsize=1)
def _digest_of_short_text(text: str) -> tuple[str, str]:
    if not text.isascii():
        plain = _without_space(text)
        return plain[:_MIN_DISTINCTIVE], _digest([plain])

    # The same of most texts, without a way back from their bytes.
    data = text.encode().translate(None, _ASCII_SPACE)
    digest = hashlib.sha256(len(data).to_bytes(8) + data).hexdigest()
    return data[:_MIN_DISTINCTIVE].decode(), digest


def _digest_of_long_text(text: str) -> tuple[str, str]:
    """Return the same, read in slices: one call on 60 MB would hold up every other thread."""
    beginning = ""
    pieces: list[bytes] = []
    for start in range(0, len(text), _SLICE):
        plain = _without_space(text[start : start + _SLICE])
        if len(beginning) < _MIN_DISTINCTIVE:
            beginning += plain[:_MIN_DISTINCTIVE]
        pieces.append(plain.encode(errors="surrogatepass"))

    digest = hashlib.sha256(sum(map(len, pieces)).to_bytes(8))
    for piece in pieces:
        digest.update(piece)
    return beginning[:_MIN_DISTINCTIVE], digest.hexdigest()


def _digest(parts: Iterable[str]) -> str:
    """Return the digest of a list of texts, each with its length."""
    encoded = [part.encode(errors="surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([len(data).to_bytes(8) + data for data in encoded])).hexdigest()


_PLACEHOLDER_DIGESTS = frozenset(_digest_of_text(text)[1] for text in _PLACEHOLDERS)
EMPTY_TEXT_KEY = text_key("")
"""The key of an answer without visible text, and of an answer that never came."""
