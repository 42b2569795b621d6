"""The matching of hidden rounds with later requests of the same conversation (docs/spec/mediation.md section 7). Pure.

An anchor names the assistant's message that hidden rounds led to. Its key is the message's own content: of a handoff the set
of native call ids, compared by their alphanumerics (runners strip the rest), or, where calls have no ids, the call itself; of
an answer its visible text without white space.
Equal keys are distinguished by evidence, never by requirement:

    the session      that the runner names; two different ones are two conversations
    preceding        digests of the few messages before it; one equal digest is enough, since runners add and drop some.
                     Among matches with as many equal digests, the one with fewer other digests wins. A user's message also
                     matches where a runner dropped some of its parts (see ``_is_same_message``)
    order            of those that are still alike, the latest

Where only one turn has a key that says enough by itself (ids of calls, a longer answer), it needs no evidence: a runner may
have put a summary in the place of all that came before.

A runner may write its calls into the text of the message (smolagents). Such a message is also looked for by the call ids and by
the words in that text. Any text may mention an id, so the message right before must be the same, and no other session named.

A turn may end without an answer: the model says nothing at all, and many runners drop such a message, or the turn fails. Its
hidden rounds are looked for where the answer would stand, between the user's messages that nobody answered; since nothing
distinguishes one such place from another, the message right before must be the same.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Self

from claw_state.continuity import Anchor, StoredRounds

_MAX_PRECEDING = 4  # Messages before an answer that distinguish it from an equal one
_MAX_EQUAL = 256
"""Messages with equal keys that are compared in one request: the latest.

A heartbeat is answered in the same words day and night, and each such answer would be compared with all stored rounds.
"""
_MIN_DISTINCTIVE = 60  # Characters of an answer that hardly any other turn repeats
_DISTINCTIVE_KINDS = ("calls", "words")
_OPENCLAW_NOTE_MARK = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_CLAUDE_CODE_EMPTY = "(nocontent)"  # Claude Code's text for a message without words, white space aside
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_MAX_PARTS = 16  # A user's message with more parts is only compared as a whole
_REMINDER = ("<system-reminder>", "</system-reminder>")
"""The start and the end of a part that a runner adds to the user's words (Claude Code, qwen-code)."""
_USER_MARK, _NOTE_MARK = ":", "~"  # The marks before the digest of a part: the user's words, or a runner's note
_WHOLE_LENGTH, _PART_LENGTH = 16, 9
"""Characters of the digest of a message, and of that of a part with its mark. A message of one part has no part's digest."""
_CALLS_AS_TEXT = "Calling tools:\n["
_CALL_HEAD = r"\{'id': '([^'\\]*+)', 'type': 'function', 'function': \{'name': "
_STRING = r"""'[^'\\]*+(?:\\.?[^'\\]*+)*+'?|"[^"\\]*+(?:\\.?[^"\\]*+)*+"?"""
_CALL_AS_TEXT = re.compile(rf"""{_CALL_HEAD}(?:[^'"{{]++|{_STRING}|(?!{_CALL_HEAD})\{{)*+""", re.DOTALL)
"""A call as smolagents writes it (the ``repr`` of a dictionary), up to the next call.

Strings are skipped whole and nothing is read twice, so the time is in proportion to the text, whatever it is.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The conversation of a request, as digests."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    """Index in ``messages`` → the anchor of the assistant's message there."""
    gaps: Mapping[int, Anchor] = field(default_factory=dict)
    """Index of a user's message → the anchor of a turn without an answer that may stand before it."""
    before: tuple[str, ...] = ()  # Digests of the last visible messages: the evidence that goes with this request's answer
    earlier: str = ""  # The digest of all messages but the user's last one; "" where there is no other


def calls_key(ids: Iterable[str]) -> str:
    """Return the key of an assistant's message with calls, in any order of them."""
    return "calls:" + _digest(sorted(_NOT_ALPHANUMERIC.sub("", call_id) for call_id in ids))


def call_key(name: str, arguments: str) -> str:
    """Return the key of a handoff without an id: a call by its canonical arguments."""
    return "call:" + _digest([name, arguments])


def text_key(text: str) -> str:
    """Return the key of an answer."""
    plain = _without_space(text)
    if plain == _CLAUDE_CODE_EMPTY:
        return EMPTY_TEXT_KEY
    return ("words:" if len(plain) >= _MIN_DISTINCTIVE else "text:") + _digest([plain])


def keys_in_text(text: str) -> tuple[str, ...]:
    """Return the keys of a message whose runner wrote its calls into the text: by their ids, and by the words before them."""
    words, marker, _ = text.rpartition(_CALLS_AS_TEXT)
    ids = [match[1] for match in _CALL_AS_TEXT.finditer(text, len(words) + len(marker))] if marker else []
    if not ids:
        return ()
    key = text_key(words)
    return (calls_key(ids),) if key == EMPTY_TEXT_KEY else (calls_key(ids), key)


def is_resent(text: str) -> bool:
    """Return True if the next request has this user's message too: it has visible text and is no note of OpenClaw's."""
    # OpenClaw ends every request with a note of the moment.
    return bool(_without_space(text)) and not text.lstrip().startswith(_OPENCLAW_NOTE_MARK)


class Transcript:
    """The messages of a conversation so far, as evidence."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._digests = list(before)
        self._steps: list[str] = []
        self._last_user_step: int | None = None

    def add_user(self, *parts: str) -> None:
        """Add a message of the user's by its parts. One without visible text, such as one with results, is left out."""
        text = "".join(parts)
        if is_resent(text):
            self._last_user_step = len(self._steps)
            self._steps.append(text_key(text))
            self._digests.append(_digest_of_parts(parts))

    @property
    def earlier(self) -> str:
        """The digest of all messages but the user's last one: those before it, and the assistant's since."""
        if self._last_user_step is None or len(self._steps) == 1:
            return ""
        return _digest([*self._steps[: self._last_user_step], "", *self._steps[self._last_user_step + 1 :]])

    @property
    def before(self) -> tuple[str, ...]:
        return tuple(self._digests[-_MAX_PRECEDING:])

    def add_text(self, text: str) -> None:
        """Add a message's visible text to what precedes the next one; without any, it is left out."""
        if plain := _without_space(text):
            self._digests.append(_digest([plain])[:_WHOLE_LENGTH])

    def add_assistant(self, key: str, text: str = "") -> Anchor:
        """Return the anchor of the assistant's message that comes now, with its visible text."""
        if key != EMPTY_TEXT_KEY:
            self._steps.append(key)
        return Anchor(key, self.before, keys_in_text(text))


def match_rounds(anchors: Mapping[int, Anchor], stored: Sequence[StoredRounds], session: str) -> dict[int, StoredRounds]:
    """Return the stored rounds before each message with an anchor. One stored turn serves one message."""
    by_key: dict[str, list[tuple[StoredRounds, _EarlierMessages]]] = {}
    for rounds in stored:
        by_key.setdefault(rounds.anchor.key, []).append((rounds, _EarlierMessages.of(rounds.anchor.before)))
    equal: dict[str, list[int]] = {key: [] for key in by_key}
    for index in sorted(anchors):
        for key in anchors[index].keys & equal.keys():
            equal[key].append(index)
    pairs = [
        (similarity, index, rounds)
        for key, indexes in equal.items()
        for index in indexes[-_MAX_EQUAL:]
        for rounds, similarity in _find_similar(by_key[key], anchors[index], session)
    ]
    matches: dict[int, StoredRounds] = {}
    used: set[int] = set()
    for _, index, rounds in sorted(pairs, key=lambda pair: (pair[0], pair[1], pair[2].id), reverse=True):
        if index not in matches and rounds.id not in used:
            matches[index] = rounds
            used.add(rounds.id)
    return matches


type _Similarity = tuple[bool, int, int]
"""The sort key of a match: the session, more equal digests, fewer others (later messages add some)."""


def _find_similar(
    stored: Sequence[tuple[StoredRounds, "_EarlierMessages"]], anchor: Anchor, session: str
) -> Iterator[tuple[StoredRounds, _Similarity]]:
    sent = _EarlierMessages.of(anchor.before)
    for rounds, kept in stored:
        overlap, differs = kept.compare(sent)
        if _may_match(rounds, anchor, session, alone=len(stored) == 1, overlap=overlap):
            yield rounds, (bool(session) and session == rounds.session, overlap, -differs)


def _may_match(rounds: StoredRounds, anchor: Anchor, session: str, *, alone: bool, overlap: int) -> bool:
    """Return True if nothing contradicts the match: another session, or no equal digest of the messages before.

    A runner may have replaced the messages before by a summary: a distinctive key of one stored turn only needs no digest.
    """
    if rounds.anchor.key != anchor.key or anchor.key.endswith(EMPTY_TEXT_KEY):
        is_elsewhere = session and rounds.session and session != rounds.session
        return not is_elsewhere and any(map(_is_same_message, rounds.anchor.before[-1:], anchor.before[-1:]))
    if overlap:
        return True
    if session and rounds.session:
        return session == rounds.session
    is_distinctive = anchor.key.split(":")[-2] in _DISTINCTIVE_KINDS
    return (alone and is_distinctive) or not (rounds.anchor.before and anchor.before)


class _EarlierMessages(NamedTuple):
    """The digests of the messages before another one; as wholes, since runners join and part texts."""

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
        if differs and (self.has_parts or other.has_parts) and not _words(self.digests).isdisjoint(_words(other.digests)):
            unlike, others = ([one for one in each.digests if one[:_WHOLE_LENGTH] in differs] for each in (self, other))
            pairs = [(one, another) for one in unlike for another in others if _is_same_message(one, another)]
            overlap += min(len(set(messages)) for messages in zip(*pairs, strict=True)) if pairs else 0
        return overlap, len(differs)


@lru_cache(maxsize=1024)
def _words(before: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*(_split_digest(message)[0] for message in before))


def _is_same_message(message: str, other: str) -> bool:
    """Return True if two digests are of one message of the user's, of which a runner may have dropped or changed parts.

    Most of the user's words must be there, and none be exchanged; of all parts, with the runner's notes, half must be there.
    (The notes are alike in every conversation of an agent. The user's words are not.)
    """
    if message[:_WHOLE_LENGTH] == other[:_WHOLE_LENGTH] or max(len(message), len(other)) <= _WHOLE_LENGTH:
        return message[:_WHOLE_LENGTH] == other[:_WHOLE_LENGTH]
    (words, parts), (other_words, other_parts) = _split_digest(message), _split_digest(other)
    shared = words & other_words
    if shared not in (words, other_words) or 2 * len(shared) <= max(len(words), len(other_words)):
        return False
    return 2 * len(parts & other_parts) >= min(len(parts), len(other_parts))


@lru_cache(maxsize=1024)
def _split_digest(message: str) -> tuple[frozenset[str], frozenset[str]]:
    parts = [message[at : at + _PART_LENGTH] for at in range(_WHOLE_LENGTH, len(message), _PART_LENGTH)] or [
        _USER_MARK + message[: _PART_LENGTH - 1]
    ]
    return frozenset(part for part in parts if part[0] == _USER_MARK), frozenset(parts)


def _digest_of_parts(parts: Sequence[str]) -> str:
    """Return the digest of a user's message: of the whole, and, where it has several parts, of each behind a mark."""
    plain = [text for part in parts if (text := _without_space(part))]
    whole = _digest(["".join(plain)])[:_WHOLE_LENGTH]
    if not 1 < len(plain) <= _MAX_PARTS:
        return whole
    marks = (_NOTE_MARK if text.startswith(_REMINDER[0]) and text.endswith(_REMINDER[1]) else _USER_MARK for text in plain)
    return whole + "".join(mark + _digest([text])[: _PART_LENGTH - 1] for mark, text in zip(marks, plain, strict=True))


def _without_space(text: str) -> str:
    """Return the text without white space: runners join the parts of a text with and without line breaks."""
    return "".join(text.split())


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


EMPTY_TEXT_KEY = text_key("")  # The key of an answer without visible text, and of none
