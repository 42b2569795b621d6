"""Hidden rounds belong to the conversation: where they are found again (spec/mediation.md section 7). Pure.

An anchor names the assistant's message that hidden rounds led to. Its key is what the message is: of a handoff the set of
native call ids, compared by their alphanumerics (runners strip the rest), or, where calls have no ids, the call itself; of an
answer its visible text, white space aside.
Equal keys are told apart by evidence, never by requirement:

    the session      that the runner names; two that differ are two conversations
    what was before  digests of the few messages before it; one that is the same is enough, since runners add and drop some;
                     of those that are alike in as many, the one that differs in fewer. A user's message is the same too
                     where a runner dropped some of its parts (see ``_is_same_message``)
    order            of those that are still alike, the latest

Where one turn alone has a key that says enough by itself (ids of calls, a longer answer), it needs no evidence: a runner may
have put a summary in the place of all that was before.

A runner may write its calls into the text of the message (smolagents). Such a message is also looked for by the call ids and by
the words in that text. Any text may mention an id, so the message right before must be the same, and no other session named.

A turn may end without an answer: the model says nothing at all, and many runners drop such a message, or the turn fails. What
was hidden is looked for where the answer would stand, between the user's messages that nobody answered; since nothing tells one
such place from another, what was said right before must be the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from claw_state.continuity import Anchor, StoredRounds

_MAX_PRECEDING = 4
"""How many messages before an answer tell it from an equal one."""
_MAX_EQUAL = 256
"""Of a request's messages with equal keys, those that are looked at: the latest. A heartbeat is answered in the same words day
and night, and each of these would be held against all that are kept.
"""
_MIN_DISTINCTIVE = 60
"""Characters of an answer that hardly anybody gives twice."""
_DISTINCTIVE_KINDS = ("calls", "words")
_OPENCLAW_NOTE = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
_CLAUDE_CODE_EMPTY = "(nocontent)"
"""What Claude Code keeps of a message without words, white space aside."""
_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")
_MAX_PARTS = 16
"""Of a user's message with more parts, only the whole is compared."""
_REMINDER = ("<system-reminder>", "</system-reminder>")
"""The start and the end of a part that a runner adds to the user's words (Claude Code, qwen-code)."""
_WORDS, _NOTE = ":", "~"
"""The marks before the digest of a part: the user's words, or a runner's note."""
_WHOLE, _PART = 16, 9
"""Characters of the digest of a message, and of that of a part with its mark. A message of one part has no part's digest."""
_CALLS_AS_TEXT = "Calling tools:\n["
_CALL_HEAD = r"\{'id': '([^'\\]*+)', 'type': 'function', 'function': \{'name': "
_STRING = r"""'[^'\\]*+(?:\\.?[^'\\]*+)*+'?|"[^"\\]*+(?:\\.?[^"\\]*+)*+"?"""
_CALL_AS_TEXT = re.compile(rf"""{_CALL_HEAD}(?:[^'"{{]++|{_STRING}|(?!{_CALL_HEAD})\{{)*+""", re.DOTALL)
"""A call as smolagents writes it (the ``repr`` of a dictionary), up to the next call. Strings are skipped whole and nothing is
read twice, so the time is in proportion to the text, whatever it is.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the conversation of a request is known by."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    """Index in ``messages`` → the anchor of the assistant message there (spec section 7)."""
    gaps: Mapping[int, Anchor] = field(default_factory=dict)
    """Index of a user's message → the anchor of a turn without an answer that may have been before it."""
    before: tuple[str, ...] = ()
    """Digests of the last visible messages: the evidence that goes with this request's answer."""
    earlier: str = ""
    """The digest of all messages but the user's last one; "" where there is no other."""


def calls_key(ids: Iterable[str]) -> str:
    """The key of an assistant's message with calls, in any order of them."""
    return "calls:" + _digest(sorted(_NOT_ALPHANUMERIC.sub("", call_id) for call_id in ids))


def call_key(name: str, arguments: str) -> str:
    """The key of a handoff that has no id: a call by its canonical arguments."""
    return "call:" + _digest([name, arguments])


def text_key(text: str) -> str:
    """The key of an answer."""
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
    """Whether a user's message is there in the next request too: it has visible text, and is no note of OpenClaw's, which ends
    every request with one of the moment.
    """
    return bool(_without_space(text)) and not text.lstrip().startswith(_OPENCLAW_NOTE)


class Transcript:
    """What was said so far, as evidence."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        self._digests = list(before)
        self._steps: list[str] = []
        self._asked: int | None = None

    def user_says(self, *parts: str) -> None:
        """A message of the user's; one without visible text, as one with results, is none."""
        text = "".join(parts)
        if is_resent(text):
            self._asked = len(self._steps)
            self._steps.append(text_key(text))
            self._digests.append(_digest_of_parts(parts))

    @property
    def earlier(self) -> str:
        """All that was said but for the user's last message: before it, and of the assistant since."""
        if self._asked is None or len(self._steps) == 1:
            return ""
        return _digest([*self._steps[: self._asked], "", *self._steps[self._asked + 1 :]])

    @property
    def before(self) -> tuple[str, ...]:
        """What was said last."""
        return tuple(self._digests[-_MAX_PRECEDING:])

    def says(self, text: str) -> None:
        """A message of the user's or the assistant's; one without visible text is none."""
        if plain := _without_space(text):
            self._digests.append(_digest([plain])[:_WHOLE])

    def anchor(self, key: str, text: str = "") -> Anchor:
        """The anchor of a message of the assistant's, that comes now, with its visible text."""
        if key != EMPTY_TEXT_KEY:
            self._steps.append(key)
        return Anchor(key, self.before, keys_in_text(text))


def match_rounds(anchors: Mapping[int, Anchor], kept: Sequence[StoredRounds], session: str) -> dict[int, StoredRounds]:
    """For each message with an anchor what was hidden before it. One kept turn serves one message."""
    by_key: dict[str, list[StoredRounds]] = {}
    for one in kept:
        by_key.setdefault(one.anchor.key, []).append(one)
    equal: dict[str, list[int]] = {key: [] for key in by_key}
    for index in sorted(anchors):
        for key in anchors[index].keys:
            if key in equal:
                equal[key].append(index)
    pairs = [
        (_similarity(one, anchors[index], session), index, one)
        for key, indexes in equal.items()
        for index in indexes[-_MAX_EQUAL:]
        for one in by_key[key]
        if _may_match(one, anchors[index], session, alone=len(by_key[key]) == 1)
    ]
    found: dict[int, StoredRounds] = {}
    used: set[int] = set()
    for _, index, one in sorted(pairs, key=lambda pair: (pair[0], pair[1], pair[2].id), reverse=True):
        if index not in found and one.id not in used:
            found[index] = one
            used.add(one.id)
    return found


def _may_match(one: StoredRounds, anchor: Anchor, session: str, *, alone: bool) -> bool:
    """Whether nothing speaks against it: another session, or nothing in common of what was said before. Of what was said before
    a summary may be left: where nothing else has a key that says enough by itself, it is that.
    """
    if one.anchor.key != anchor.key or anchor.key.endswith(EMPTY_TEXT_KEY):
        elsewhere = session and one.session and session != one.session
        return not elsewhere and any(map(_is_same_message, one.anchor.before[-1:], anchor.before[-1:]))
    if _compare(one.anchor.before, anchor.before)[0]:
        return True
    if session and one.session:
        return session == one.session
    telling = anchor.key.split(":")[-2] in _DISTINCTIVE_KINDS
    return (alone and telling) or not (one.anchor.before and anchor.before)


def _similarity(one: StoredRounds, anchor: Anchor, session: str) -> tuple[bool, int, int]:
    """The more is the same; and then, the less is not: what was said later was not said before this."""
    overlap, differs = _compare(one.anchor.before, anchor.before)
    return bool(session) and session == one.session, overlap, -differs


@lru_cache(maxsize=256)
def _compare(kept: tuple[str, ...], sent: tuple[str, ...]) -> tuple[int, int]:
    """Return how many of the messages before are the same, and how many are not the same as a whole."""
    kept_wholes, kept_words = _split_digests(kept)
    sent_wholes, sent_words = _split_digests(sent)
    differs = kept_wholes ^ sent_wholes
    overlap = len(kept_wholes & sent_wholes)
    if differs and not kept_words.isdisjoint(sent_words):
        unlike, others = ([one for one in before if one[:_WHOLE] in differs] for before in (kept, sent))
        pairs = [(one, other) for one in unlike for other in others if _is_same_message(one, other)]
        overlap += min(len(set(messages)) for messages in zip(*pairs, strict=True)) if pairs else 0
    return overlap, len(differs)


@lru_cache(maxsize=1024)
def _split_digests(before: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the digests of the messages as a whole, since runners join and part texts, and of the user's words in them."""
    words = (_split_digest(message)[0] for message in before)
    return frozenset(message[:_WHOLE] for message in before), frozenset().union(*words)


def _is_same_message(message: str, other: str) -> bool:
    """Return whether two digests are of one message of the user's, of which a runner may have dropped or changed parts.

    Of the user's words most must be there, and none be exchanged; of all parts, with the runner's notes, half must be there.
    (The notes are alike in every conversation of an agent. What the user says in each is not.)
    """
    if message[:_WHOLE] == other[:_WHOLE] or max(len(message), len(other)) <= _WHOLE:
        return message[:_WHOLE] == other[:_WHOLE]
    (words, parts), (other_words, other_parts) = _split_digest(message), _split_digest(other)
    shared = words & other_words
    if shared not in (words, other_words) or 2 * len(shared) <= max(len(words), len(other_words)):
        return False
    return 2 * len(parts & other_parts) >= min(len(parts), len(other_parts))


@lru_cache(maxsize=1024)
def _split_digest(message: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the user's words in a message, and all of its parts, from its digest."""
    parts = [message[at : at + _PART] for at in range(_WHOLE, len(message), _PART)] or [_WORDS + message[: _PART - 1]]
    return frozenset(part for part in parts if part[0] == _WORDS), frozenset(parts)


def _digest_of_parts(parts: Sequence[str]) -> str:
    """Return the digest of a user's message: of the whole, and, where it has several parts, of each behind a mark."""
    plain = [text for part in parts if (text := _without_space(part))]
    whole = _digest(["".join(plain)])[:_WHOLE]
    if not 1 < len(plain) <= _MAX_PARTS:
        return whole
    marks = (_NOTE if text.startswith(_REMINDER[0]) and text.endswith(_REMINDER[1]) else _WORDS for text in plain)
    return whole + "".join(mark + _digest([text])[: _PART - 1] for mark, text in zip(marks, plain, strict=True))


def _without_space(text: str) -> str:
    """Without white space: runners join the parts of a text with and without line breaks."""
    return "".join(text.split())


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8) + data)
    return digest.hexdigest()


EMPTY_TEXT_KEY = text_key("")
"""The key of an answer without visible text, and of none."""
