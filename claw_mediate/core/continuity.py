"""The matching of hidden rounds with later requests of the same conversation.

docs/spec/mediation.md section 7. Pure.

An anchor names the assistant's message that hidden rounds led to. Its key is the content of that
message:

    a handoff      the set of its native call ids, compared by their letters and digits, because
                     runners strip the rest. If calls have no ids, the call itself
    an answer      its visible text without white space

Evidence distinguishes messages with equal keys; none of it is required:

    the session    that the runner names. Two different ones are two conversations
    preceding      digests of the few messages before. One equal digest is enough, since runners
                     add and drop some. Among matches with as many equal digests, the one with
                     fewer other digests wins. A user's message also matches if a runner dropped
                     some of its parts (``_is_same_message``)
    order          the latest of those that are still alike

A key that says enough by itself (ids of calls, a longer answer) needs no evidence if only one turn
has it: a runner may have replaced all messages before it by a summary.

An answer may be several items of a transcript, of which a runner sends back some. Its anchor then
has further names: the ids of the items, and the texts and calls of single ones. Models, servers and
runners make these ids, and some only count. So an id is believed only if one stored turn has it, no
other session is named, and either the message right before is the same, or the session and any
message before.

A runner may write its calls into the text of the message (smolagents). Such a message is also
looked for by the call ids and by the words in that text. Any text may mention an id, so the message
right before must be the same, and no other session named.

A turn may end without an answer: it fails, or the model says nothing at all, and many runners drop
such a message. Its hidden rounds are looked for where the answer would stand, between the user's
messages that nobody answered. Since nothing distinguishes one such place from another, the message
right before must be the same.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

import msgspec

from claw_state.continuity import ID_KIND, Anchor, StoredRounds

_MAX_PRECEDING = 4  # Messages before an answer that distinguish it from an equal one
_MAX_EQUAL = 256
"""Messages with equal keys that are compared in one request: the latest.

A heartbeat is answered in the same words day and night. Without a limit, each such answer would be
compared with all stored rounds.
"""
_MIN_DISTINCTIVE = 60  # Characters of an answer that hardly any other turn repeats
_DISTINCTIVE_KINDS = ("calls", "words")
_OPENCLAW_NOTE_MARK = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
# What Claude Code writes for an empty message, without its white space
_CLAUDE_CODE_EMPTY = "(nocontent)"
_ASCII_SPACE = bytes(code for code in range(128) if chr(code).isspace())
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_SLICE = 1 << 20  # Characters of a text that are read at once
_MAX_PARTS = 16  # A user's message with more parts is only compared as a whole
_REMINDER_START = "<system-reminder>"
_REMINDER_END = "</system-reminder>"
"""Claude Code and qwen-code put a note of theirs, next to the user's words, between these."""

# A digest of a user's message of several parts is that of the whole, and then that of each part:
# a mark, which says whether the part is the user's words or a runner's note, and the digest itself.
_USER_MARK = ":"
_NOTE_MARK = "~"
_WHOLE_LENGTH = 16  # Characters of the digest of a message
_PART_LENGTH = 9  # Characters of the digest of a part, with its mark
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
    if plain == _CLAUDE_CODE_EMPTY:
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
        text = "".join(parts)
        if not is_resent(text):
            return None

        gap = Anchor(EMPTY_TEXT_KEY, self.before)  # Without this message itself

        plain, digest = _digest_of_text(text)
        self._last_user_step = len(self._steps)
        self._steps.append(_key_of_digest(plain, digest))

        has_parts = len(parts) > 1
        self._digests.append(_digest_of_parts(parts) if has_parts else digest[:_WHOLE_LENGTH])
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
            self._digests.append(digest[:_WHOLE_LENGTH])

    def add_assistant(self, key: str, text: str = "") -> Anchor:
        """Return the anchor of the assistant's message that comes now, with its visible text."""
        if key != EMPTY_TEXT_KEY:
            self._steps.append(key)
        return Anchor(key, self.before, keys_in_text(text))


def match_rounds(
    anchors: Mapping[int, Anchor],
    stored: Sequence[StoredRounds],
    session: str,
    blocks: Mapping[int, MessageBlock] | None = None,
) -> dict[int, StoredRounds]:
    """Return the stored rounds of each message with an anchor.

    One stored turn serves one message.
    """
    return _choose(_find_pairs(anchors, stored, session, blocks or {}))


def place_rounds(
    evidence: Evidence, stored: Sequence[StoredRounds], session: str
) -> dict[int, StoredRounds]:
    """Return the stored rounds, each by the index of the message that they go before.

    That is the first message of their answer. A block may hold the answers of several turns: the
    first answer begins with the block, each other one right after the last message that the turn
    before it may have produced.
    """
    pairs = _find_pairs({**evidence.gaps, **evidence.anchors}, stored, session, evidence.blocks)
    matches = _choose(pairs)
    if not evidence.blocks or not matches:
        return matches

    places_of: dict[int, list[int]] = {}  # Id of rounds → all messages that they may have led to
    for pair in pairs:
        places_of.setdefault(pair.rounds.id, []).append(pair.place)

    placed: dict[int, StoredRounds] = {}
    last_block = -1
    after_last_turn = 0  # The index after the messages of the turn that was placed last
    indexes = sorted(matches)
    next_indexes = [*indexes[1:], math.inf]
    for index, next_index in zip(indexes, next_indexes, strict=True):
        rounds = matches[index]
        block = evidence.block(index).start
        is_first_of_block = block != last_block
        placed[block if is_first_of_block else after_last_turn] = rounds

        # What this turn may have produced ends before the answer of the next one.
        own_places = [
            place
            for place in places_of[rounds.id]
            if place < next_index and evidence.block(place).start == block
        ]
        last_block = block
        after_last_turn = max(own_places) + 1

    return placed


def _choose(pairs: Sequence["_Pair"]) -> dict[int, StoredRounds]:
    """Return the best pair of each message; none of them share a message or a turn."""
    matches: dict[int, StoredRounds] = {}
    used: set[int] = set()

    for pair in pairs:
        if pair.place not in matches and pair.rounds.id not in used:
            matches[pair.place] = pair.rounds
            used.add(pair.rounds.id)

    return matches


type _Similarity = tuple[bool, bool, int, int]
"""The sort key of a match; the greatest is the best.

Its members: True if the session is equal, True if an id is equal, the number of equal digests, and
the negative number of other digests (later messages add some).
"""


class _Pair(NamedTuple):
    """A message that may be the one that stored rounds led to. The greatest pair is the best.

    Of messages that are alike, the latest stretch is the best, and in a stretch its first message.
    """

    similarity: _Similarity
    stretch: int
    earliness: int  # The negative index of the message
    number: int  # The id of the rounds, which grows with each turn
    place: int  # The index of the message
    rounds: StoredRounds


def _find_pairs(
    anchors: Mapping[int, Anchor],
    stored: Sequence[StoredRounds],
    session: str,
    blocks: Mapping[int, MessageBlock],
) -> list[_Pair]:
    """Return the pairs of messages and stored rounds that nothing contradicts, best first."""
    rounds_of: dict[str, list[tuple[StoredRounds, _EarlierMessages]]] = {}
    for rounds in stored:
        with_earlier = (rounds, _EarlierMessages.of(rounds.anchor.before))
        for key in rounds.anchor.keys:
            rounds_of.setdefault(key, []).append(with_earlier)

    messages_of: dict[str, list[int]] = {key: [] for key in rounds_of}
    for index in sorted(anchors):
        for key in {*anchors[index].keys} & messages_of.keys():
            messages_of[key].append(index)

    pairs: list[_Pair] = []
    for key, indexes in messages_of.items():
        for index in indexes[-_MAX_EQUAL:]:
            stretch = blocks[index].stretch if index in blocks else index
            similar = _find_similar(rounds_of[key], anchors[index], key, session)
            pairs += [
                _Pair(similarity, stretch, -index, rounds.id, index, rounds)
                for rounds, similarity in similar
            ]

    return sorted(pairs, key=lambda pair: pair[:4], reverse=True)


def _find_similar(
    stored: Sequence[tuple[StoredRounds, "_EarlierMessages"]],
    anchor: Anchor,
    key: str,
    session: str,
) -> Iterator[tuple[StoredRounds, _Similarity]]:
    """Yield those of the rounds with this key that the message may belong to."""
    sent = _EarlierMessages.of(anchor.before)
    is_id = _kind(key) == ID_KIND
    is_alone = len(stored) == 1

    for rounds, earlier in stored:
        overlap, differs = earlier.compare(sent)

        # A text that mentions a part of an answer is no evidence of the whole.
        if key in anchor.alternatives and key != rounds.anchor.key:
            continue

        if is_id:
            may_match = is_alone and _is_id_supported(rounds, anchor, session, overlap)
        else:
            may_match = _may_match(rounds, anchor, key, session, alone=is_alone, overlap=overlap)

        if may_match:
            is_same_session = bool(session) and session == rounds.session
            yield rounds, (is_same_session, is_id, overlap, -differs)


def _is_id_supported(rounds: StoredRounds, anchor: Anchor, session: str, overlap: int) -> bool:
    """Return True if more than an equal id speaks for the match, and nothing against it."""
    if session and rounds.session:
        if session != rounds.session:
            return False
        if overlap:
            return True

    return _follow_same_message(rounds.anchor, anchor)


def _follow_same_message(stored: Anchor, sent: Anchor) -> bool:
    """Return True if the message right before both is the same. False if there is none."""
    if not stored.before or not sent.before:
        return False
    return _is_same_message(stored.before[-1], sent.before[-1])


def _may_match(
    rounds: StoredRounds, anchor: Anchor, key: str, session: str, *, alone: bool, overlap: int
) -> bool:
    """Return True if nothing contradicts the match.

    Two things contradict it: another session, and messages before of which none has an equal
    digest. The second does not count for a distinctive key that only one stored turn has
    (``alone``): the runner may have replaced the messages before by a summary.
    """
    names_sessions = bool(session and rounds.session)
    is_same_session = session == rounds.session

    # Such a key says little, so the message right before must be the same.
    if key in anchor.alternatives or key.endswith(EMPTY_TEXT_KEY):
        is_elsewhere = names_sessions and not is_same_session
        return not is_elsewhere and _follow_same_message(rounds.anchor, anchor)

    if overlap:
        return True

    if names_sessions:
        return is_same_session

    if alone and _kind(key) in _DISTINCTIVE_KINDS:
        return True

    has_evidence = bool(rounds.anchor.before and anchor.before)
    return not has_evidence


def _kind(key: str) -> str:
    """Return the kind of a key, which comes before its digest: "calls", "words", …"""
    return key.split(":")[-2]


class _EarlierMessages(NamedTuple):
    """The digests of the messages before another one, in full and as wholes.

    Wholes are compared first, because runners join and split the parts of a message.
    """

    digests: tuple[str, ...]
    wholes: frozenset[str]
    has_parts: bool

    @classmethod
    def of(cls, before: tuple[str, ...]) -> Self:
        wholes = frozenset(message[:_WHOLE_LENGTH] for message in before)
        return cls(before, wholes, has_parts=max(map(len, before), default=0) > _WHOLE_LENGTH)

    def compare(self, other: "_EarlierMessages") -> tuple[int, int]:
        """Return how many messages are in both, and how many are in one only."""
        differs = self.wholes ^ other.wholes
        overlap = (len(self.wholes) + len(other.wholes) - len(differs)) // 2

        # Only messages of several parts can be alike without being equal, if they share words.
        if not differs or not (self.has_parts or other.has_parts):
            return overlap, len(differs)
        if _words(self.digests).isdisjoint(_words(other.digests)):
            return overlap, len(differs)

        alike_here: set[str] = set()
        alike_there: set[str] = set()
        unlike_there = [digest for digest in other.digests if digest[:_WHOLE_LENGTH] in differs]
        for digest in self.digests:
            if digest[:_WHOLE_LENGTH] not in differs:
                continue
            for other_digest in unlike_there:
                if _is_same_message(digest, other_digest):
                    alike_here.add(digest)
                    alike_there.add(other_digest)

        overlap += min(len(alike_here), len(alike_there))
        return overlap, len(differs)


@lru_cache(maxsize=1024)
def _words(before: tuple[str, ...]) -> frozenset[str]:
    """Return the digests of the user's words in all of these messages."""
    return frozenset().union(*(_split_digest(message)[0] for message in before))


def _is_same_message(message: str, other: str) -> bool:
    """Return True if two digests are of one message of the user's.

    A runner may have dropped or changed parts of it. Most of the user's words must be in both, and
    none may be exchanged. Of all parts, with the runner's notes, half must be in both. (The notes
    are alike in every conversation of an agent. The user's words are not.)
    """
    if message[:_WHOLE_LENGTH] == other[:_WHOLE_LENGTH]:
        return True

    has_parts = max(len(message), len(other)) > _WHOLE_LENGTH
    if not has_parts:
        return False

    words, parts = _split_digest(message)
    other_words, other_parts = _split_digest(other)
    shared = words & other_words

    is_subset = shared in (words, other_words)
    is_most = 2 * len(shared) > max(len(words), len(other_words))
    if not is_subset or not is_most:
        return False

    return 2 * len(parts & other_parts) >= min(len(parts), len(other_parts))


@lru_cache(maxsize=1024)
def _split_digest(message: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the digests of the user's words, and those of all parts.

    A message of one part has only the digest of the whole, which begins like that of its part.
    """
    starts = range(_WHOLE_LENGTH, len(message), _PART_LENGTH)
    parts = [message[start : start + _PART_LENGTH] for start in starts]
    if not parts:
        parts = [_USER_MARK + message[: _PART_LENGTH - 1]]

    words = frozenset(part for part in parts if part[0] == _USER_MARK)
    return words, frozenset(parts)


def _digest_of_parts(parts: Sequence[str]) -> str:
    """Return the digest of a user's message: of the whole, then of each part with its mark.

    A message of a single part, or of more than ``_MAX_PARTS``, has the digest of the whole only.
    """
    texts = [text for text in map(_without_space, parts) if text]
    whole = _digest(["".join(texts)])[:_WHOLE_LENGTH]
    if not 1 < len(texts) <= _MAX_PARTS:
        return whole

    digests = [whole]
    for text in texts:
        is_note = text.startswith(_REMINDER_START) and text.endswith(_REMINDER_END)
        mark = _NOTE_MARK if is_note else _USER_MARK
        digests.append(mark + _digest([text])[: _PART_LENGTH - 1])
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


EMPTY_TEXT_KEY = text_key("")
"""The key of an answer without visible text, and of an answer that never came."""
