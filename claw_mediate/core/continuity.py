"""The matching of hidden rounds with later requests of the same conversation
(docs/spec/mediation.md section 7). Pure.

An anchor names the assistant's message that hidden rounds led to. Its key is the message's own
content: of a handoff the set of native call ids, compared by their alphanumerics (runners strip the
rest), or, where calls have no ids, the call itself; of an answer its visible text without white
space. Equal keys are distinguished by evidence, never by requirement:

    the session      that the runner names; two different ones are two conversations
    preceding        digests of the few messages before it; one equal digest is enough, since runners add and drop some.
                     Among matches with as many equal digests, the one with fewer other digests wins. A user's message also
                     matches where a runner dropped some of its parts (see ``_is_same_message``)
    order            of those that are still alike, the latest

Where only one turn has a key that says enough by itself (ids of calls, a longer answer), it needs
no evidence: a runner may have put a summary in the place of all that came before.

An answer may be several items of a transcript, of which a runner sends back some. Its anchor has
further names then: the ids of the items, and the texts and calls of single ones. Models, servers
and runners make these ids, and some only count. So an id is believed only where one stored turn has
it, no other session is named, and the message right before is the same, or the session and any
message before.

A runner may write its calls into the text of the message (smolagents). Such a message is also
looked for by the call ids and by the words in that text. Any text may mention an id, so the message
right before must be the same, and no other session named.

A turn may end without an answer: the model says nothing at all, and many runners drop such a
message, or the turn fails. Its hidden rounds are looked for where the answer would stand, between
the user's messages that nobody answered; since nothing distinguishes one such place from another,
the message right before must be the same.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Self

import msgspec

from claw_state.continuity import ID_KIND, Anchor, StoredRounds

_MAX_PRECEDING = 4  # Messages before an answer that distinguish it from an equal one
_MAX_EQUAL = 256
"""Messages with equal keys that are compared in one request: the latest.

A heartbeat is answered in the same words day and night, and each such answer would be compared with
all stored rounds.
"""
_MIN_DISTINCTIVE = 60  # Characters of an answer that hardly any other turn repeats
_DISTINCTIVE_KINDS = ("calls", "words")
_OPENCLAW_NOTE_MARK = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_CLAUDE_CODE_EMPTY = (
    "(nocontent)"  # Claude Code's text for a message without words, white space aside
)
_ASCII_SPACE = bytes(code for code in range(128) if chr(code).isspace())
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_SLICE = 1 << 20  # Characters of a text that are read at once
_MAX_PARTS = 16  # A user's message with more parts is only compared as a whole
_REMINDER = ("<system-reminder>", "</system-reminder>")
"""The start and the end of a part that a runner adds to the user's words (Claude
Code, qwen-code).
"""
_USER_MARK, _NOTE_MARK = (
    ":",
    "~",
)  # The marks before the digest of a part: the user's words, or a runner's note
_WHOLE_LENGTH, _PART_LENGTH = 16, 9
"""Characters of the digest of a message, and of that of a part with its mark.

A message of one part has no part's digest.
"""
_CALLS_AS_TEXT = "Calling tools:\n["
_CALL_HEAD = r"\{'id': '([^'\\]*+)', 'type': 'function', 'function': \{'name': "
_STRING = r"""'[^'\\]*+(?:\\.?[^'\\]*+)*+'?|"[^"\\]*+(?:\\.?[^"\\]*+)*+"?"""
_CALL_AS_TEXT = re.compile(
    rf"""{_CALL_HEAD}(?:[^'"{{]++|{_STRING}|(?!{_CALL_HEAD})\{{)*+""", re.DOTALL
)
"""A call as smolagents writes it (the ``repr`` of a dictionary), up to the next call.

Strings are skipped whole and nothing is read twice, so the time is in proportion to the text,
whatever it is.
"""


class Evidence(msgspec.Struct, frozen=True):
    """The conversation of a request, as digests."""

    anchors: Mapping[int, Anchor] = msgspec.field(default_factory=dict)
    """Index in ``messages`` → the anchor of the assistant's message there."""
    gaps: Mapping[int, Anchor] = msgspec.field(default_factory=dict)
    """Index of a user's message → the anchor of a turn without an answer that may
    stand before it.
    """
    before: tuple[
        str, ...
        # Digests of the last visible messages: the evidence that goes with this request's answer
    ] = ()
    earlier: str = (
        ""  # The digest of all messages but the user's last one; "" where there is no other
    )
    blocks: Mapping[int, "Block"] = msgspec.field(default_factory=dict)
    """Index of a message with an anchor → its block.

    Without an entry the message is a block of its own.
    """

    def block(self, index: int) -> "Block":
        return self.blocks.get(index) or Block(index, index)


class Block(NamedTuple):
    """Neighbouring messages that the model made, as indexes in ``messages``."""

    start: int  # Of its first message
    stretch: int  # Of the first block since a user's message: an answer does not go on behind one


def item_key(item_id: str) -> str:
    """Return the name of an item by its id; "" for an id without letters and digits."""
    plain = _NOT_ALPHANUMERIC.sub("", item_id)
    return f"{ID_KIND}:{_digest([plain])}" if plain else ""


def calls_key(ids: Iterable[str]) -> str:
    """Return the key of an assistant's message with calls, in any order of them."""
    return "calls:" + _digest(sorted(_NOT_ALPHANUMERIC.sub("", call_id) for call_id in ids))


def call_key(name: str, arguments: str) -> str:
    """Return the key of a handoff without an id: a call by its canonical arguments."""
    return "call:" + _digest([name, arguments])


def text_key(text: str) -> str:
    """Return the key of an answer."""
    return _key_of_digest(*_digest_of_text(text))


def _key_of_digest(plain: str, digest: str) -> str:
    if plain == _CLAUDE_CODE_EMPTY:
        return EMPTY_TEXT_KEY
    return ("words:" if len(plain) >= _MIN_DISTINCTIVE else "text:") + digest


def keys_in_text(text: str) -> tuple[str, ...]:
    """Return the keys of a message whose runner wrote its calls into the text: by their ids, and by
    the words before them.
    """
    words, marker, _ = text.rpartition(_CALLS_AS_TEXT)
    ids = (
        [match[1] for match in _CALL_AS_TEXT.finditer(text, len(words) + len(marker))]
        if marker
        else []
    )
    if not ids:
        return ()
    key = text_key(words)
    return (calls_key(ids),) if key == EMPTY_TEXT_KEY else (calls_key(ids), key)


def is_resent(text: str) -> bool:
    """Return True if the next request has this user's message too: it has visible
    text and is no note of OpenClaw's.
    """
    # OpenClaw ends every request with a note of the moment.
    return text != "" and not text.isspace() and not text.lstrip().startswith(_OPENCLAW_NOTE_MARK)


class Transcript:
    """The messages of a conversation so far, as evidence."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._digests = list(before)
        self._steps: list[str] = []
        self._last_user_step: int | None = None

    def add_user(self, *parts: str) -> Anchor | None:
        """Add a message of the user's by its parts.

        One without visible text, such as one with results, is left out.

        Return the anchor of a turn without an answer that may stand before it; None for a message
        that is left out.
        """
        text = "".join(parts)
        if not is_resent(text):
            return None
        gap = Anchor(EMPTY_TEXT_KEY, self.before)
        self._last_user_step = len(self._steps)
        plain, digest = _digest_of_text(text)
        self._steps.append(_key_of_digest(plain, digest))
        self._digests.append(digest[:_WHOLE_LENGTH] if len(parts) == 1 else _digest_of_parts(parts))
        return gap

    @property
    def earlier(self) -> str:
        """The digest of all messages but the user's last one: those before it, and
        the assistant's since.
        """
        if self._last_user_step is None or len(self._steps) == 1:
            return ""
        return _digest(
            [*self._steps[: self._last_user_step], "", *self._steps[self._last_user_step + 1 :]]
        )

    @property
    def before(self) -> tuple[str, ...]:
        return tuple(self._digests[-_MAX_PRECEDING:])

    def add_text(self, text: str) -> None:
        """Add a message's visible text to what precedes the next one; without any,
        it is left out.
        """
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
    blocks: Mapping[int, Block] | None = None,
) -> dict[int, StoredRounds]:
    """Return the stored rounds of each message with an anchor.

    One stored turn serves one message.
    """
    return _choose(_find_pairs(anchors, stored, session, blocks or {}))


def place_rounds(
    evidence: Evidence, stored: Sequence[StoredRounds], session: str
) -> dict[int, StoredRounds]:
    """Return the stored rounds by the index of the message that they go before: the
    first one of their answer.

    That is the first message of the block, or the one behind the last that another turn of the
    block may have led to.
    """
    pairs = _find_pairs({**evidence.gaps, **evidence.anchors}, stored, session, evidence.blocks)
    matches = _choose(pairs)
    if not evidence.blocks:
        return matches
    alike: dict[int, list[int]] = {}
    for pair in pairs:
        alike.setdefault(pair.rounds.id, []).append(pair.place)
    placed: dict[int, StoredRounds] = {}
    start, end = -1, 0  # The block, and what is behind the last message of its turns so far
    for index, following in pairwise([*sorted(matches), None]):
        assert index is not None
        block = evidence.block(index).start
        placed[end if block == start else block] = matches[index]
        own = (each for each in alike[matches[index].id] if following is None or each < following)
        start, end = block, 1 + max(each for each in own if evidence.block(each).start == block)
    return placed


def _choose(pairs: Sequence["_Pair"]) -> dict[int, StoredRounds]:
    matches: dict[int, StoredRounds] = {}
    used: set[int] = set()
    for pair in pairs:
        if pair.place not in matches and pair.rounds.id not in used:
            matches[pair.place] = pair.rounds
            used.add(pair.rounds.id)
    return matches


type _Similarity = tuple[bool, bool, int, int]
"""The sort key of a match: the session, the id, more equal digests, fewer others
(later messages add some).
"""


class _Pair(NamedTuple):
    """A message that may be the one that stored rounds led to. The greatest is the best."""

    similarity: _Similarity
    stretch: int  # The latest of those that are alike; within a stretch, the first message
    earliness: int
    number: int
    place: int
    rounds: StoredRounds


def _find_pairs(
    anchors: Mapping[int, Anchor],
    stored: Sequence[StoredRounds],
    session: str,
    blocks: Mapping[int, Block],
) -> list[_Pair]:
    """Return the pairs of messages and stored rounds that nothing contradicts, best first."""
    by_key: dict[str, list[tuple[StoredRounds, _EarlierMessages]]] = {}
    for rounds in stored:
        kept = (rounds, _EarlierMessages.of(rounds.anchor.before))
        for key in rounds.anchor.keys:
            by_key.setdefault(key, []).append(kept)
    equal: dict[str, list[int]] = {key: [] for key in by_key}
    for index in sorted(anchors):
        for key in {*anchors[index].keys} & equal.keys():
            equal[key].append(index)
    pairs = [
        _Pair(
            similarity,
            blocks[index].stretch if index in blocks else index,
            -index,
            rounds.id,
            index,
            rounds,
        )
        for key, indexes in equal.items()
        for index in indexes[-_MAX_EQUAL:]
        for rounds, similarity in _find_similar(by_key[key], anchors[index], key, session)
    ]
    return sorted(pairs, key=lambda pair: pair[:4], reverse=True)


def _find_similar(
    stored: Sequence[tuple[StoredRounds, "_EarlierMessages"]],
    anchor: Anchor,
    key: str,
    session: str,
) -> Iterator[tuple[StoredRounds, _Similarity]]:
    sent, is_id = _EarlierMessages.of(anchor.before), _kind(key) == ID_KIND
    for rounds, kept in stored:
        overlap, differs = kept.compare(sent)
        if key in anchor.alternatives and key != rounds.anchor.key:
            continue  # A text that mentions a part says nothing of the whole
        if is_id:
            may_match = len(stored) == 1 and _is_id_supported(rounds, anchor, session, overlap)
        else:
            may_match = _may_match(
                rounds, anchor, key, session, alone=len(stored) == 1, overlap=overlap
            )
        if may_match:
            yield rounds, (bool(session) and session == rounds.session, is_id, overlap, -differs)


def _is_id_supported(rounds: StoredRounds, anchor: Anchor, session: str, overlap: int) -> bool:
    """Return True if more than an equal id speaks for the match, and no other
    session against it.
    """
    if session and rounds.session and (session != rounds.session or overlap):
        return session == rounds.session
    return any(map(_is_same_message, rounds.anchor.before[-1:], anchor.before[-1:]))


def _may_match(
    rounds: StoredRounds, anchor: Anchor, key: str, session: str, *, alone: bool, overlap: int
) -> bool:
    """Return True if nothing contradicts the match: another session, or no equal
    digest of the messages before.

    A runner may have replaced the messages before by a summary: a distinctive key of one stored
    turn only needs no digest.
    """
    if key in anchor.alternatives or key.endswith(EMPTY_TEXT_KEY):
        is_elsewhere = session and rounds.session and session != rounds.session
        return not is_elsewhere and any(
            map(_is_same_message, rounds.anchor.before[-1:], anchor.before[-1:])
        )
    if overlap:
        return True
    if session and rounds.session:
        return session == rounds.session
    return (alone and _kind(key) in _DISTINCTIVE_KINDS) or not (
        rounds.anchor.before and anchor.before
    )


def _kind(key: str) -> str:
    return key.split(":")[-2]


class _EarlierMessages(NamedTuple):
    """The digests of the messages before another one; as wholes, since runners join
    and part texts.
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
        if (
            differs
            and (self.has_parts or other.has_parts)
            and not _words(self.digests).isdisjoint(_words(other.digests))
        ):
            unlike, others = (
                [one for one in each.digests if one[:_WHOLE_LENGTH] in differs]
                for each in (self, other)
            )
            pairs = [
                (one, another)
                for one in unlike
                for another in others
                if _is_same_message(one, another)
            ]
            overlap += (
                min(len(set(messages)) for messages in zip(*pairs, strict=True)) if pairs else 0
            )
        return overlap, len(differs)


@lru_cache(maxsize=1024)
def _words(before: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*(_split_digest(message)[0] for message in before))


def _is_same_message(message: str, other: str) -> bool:
    """Return True if two digests are of one message of the user's, of which a
    runner may have dropped or changed parts.

    Most of the user's words must be there, and none be exchanged; of all parts, with the runner's
    notes, half must be there. (The notes are alike in every conversation of an agent. The user's
    words are not.)
    """
    if (
        message[:_WHOLE_LENGTH] == other[:_WHOLE_LENGTH]
        or max(len(message), len(other)) <= _WHOLE_LENGTH
    ):
        return message[:_WHOLE_LENGTH] == other[:_WHOLE_LENGTH]
    (words, parts), (other_words, other_parts) = _split_digest(message), _split_digest(other)
    shared = words & other_words
    if shared not in (words, other_words) or 2 * len(shared) <= max(len(words), len(other_words)):
        return False
    return 2 * len(parts & other_parts) >= min(len(parts), len(other_parts))


@lru_cache(maxsize=1024)
def _split_digest(message: str) -> tuple[frozenset[str], frozenset[str]]:
    parts = [
        message[at : at + _PART_LENGTH] for at in range(_WHOLE_LENGTH, len(message), _PART_LENGTH)
    ] or [_USER_MARK + message[: _PART_LENGTH - 1]]
    return frozenset(part for part in parts if part[0] == _USER_MARK), frozenset(parts)


def _digest_of_parts(parts: Sequence[str]) -> str:
    """Return the digest of a user's message: of the whole, and, where it has
    several parts, of each behind a mark.
    """
    plain = [text for part in parts if (text := _without_space(part))]
    whole = _digest(["".join(plain)])[:_WHOLE_LENGTH]
    if not 1 < len(plain) <= _MAX_PARTS:
        return whole
    marks = (
        _NOTE_MARK if text.startswith(_REMINDER[0]) and text.endswith(_REMINDER[1]) else _USER_MARK
        for text in plain
    )
    return whole + "".join(
        mark + _digest([text])[: _PART_LENGTH - 1] for mark, text in zip(marks, plain, strict=True)
    )


def _without_space(text: str) -> str:
    """Return the text without white space: runners join the parts of a text with
    and without line breaks.
    """
    if text.isascii():
        return text.encode().translate(None, _ASCII_SPACE).decode()
    return "".join(text.split())


def _digest_of_text(text: str) -> tuple[str, str]:
    """Return the beginning of the text without white space, and the digest of all of it."""
    return _digest_of_short_text(text) if len(text) <= _SLICE else _digest_of_long_text(text)


@lru_cache(maxsize=1)  # the key and the digest of a message are asked for one after the other
def _digest_of_short_text(text: str) -> tuple[str, str]:
    plain = _without_space(text)
    return plain[:_MIN_DISTINCTIVE], _digest([plain])


def _digest_of_long_text(text: str) -> tuple[str, str]:
    """Read the text in slices: one call on 60 MB would hold up every other thread."""
    beginning, pieces = "", []
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
    encoded = [part.encode(errors="surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([len(data).to_bytes(8) + data for data in encoded])).hexdigest()


EMPTY_TEXT_KEY = text_key("")  # The key of an answer without visible text, and of none
