"""The text that a runner was shown of each round, and its place in the runner's message.

docs/spec/live.md section 6. Pure. A turn that streams live shows the text of its hidden
rounds, too, and the runner sends all of it back as one message. The record of such a turn says
where each round ended in it:

    marker            {"claw":"live","shown":[[…], …],"turn":"…","given_ids":{…},"is_part":true}:
                        one entry for each round (``ShownRound``); the others of ``LiveRecord``
    hidden messages   those of the first round, then those of the second …

A round is found by its text without white space, because runners trim and join. White space at a
cut belongs to nobody, unless the record says how much of it was shown (``Stretch.space``): where
rounds are joined to one text, the line breaks between them are the proxy's.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import EMPTY_TEXT_KEY, text_key
from claw_mediate.core.weave import join_messages
from claw_state.continuity import Anchor

GLUE = "\n\n"
"""The proxy's line breaks between the texts of two rounds that would touch otherwise."""
PREFILL = 0
"""The number of the round that is no round: what the runner itself began of the answer."""

HIDES_KIND = "hides"
"""The kind of a key that is reasoning of a hidden round (``hides_key``)."""
_LIVE = "+live"  # The end of the dialect's name in the keys of live turns

_WORD = re.compile(r"\S+")
_DIGEST_LENGTH = 32  # Characters of the digest of a text
_SIGNATURE_LENGTH = 512  # Characters of a signature that tell it from every other one
_MAX_ROUNDS = 10_000  # A record with more was not written by us

type _Count = Annotated[int, msgspec.Meta(ge=0)]


class Stretch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A text that was shown, told by its length and digest."""

    characters: _Count = 0  # Those that are not white space
    digest: str = ""  # Of those
    space: _Count | None = None
    """White space behind the text that is not the next round's: its own, and the proxy's.

    None if all of it is nobody's.
    """


class ShownRound(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content that was shown of one round."""

    number: _Count
    text: Stretch = Stretch()
    reasoning: Stretch = Stretch()  # Of reasoning that runners join to one text, too
    pieces: _Count = 0  # Blocks or items that were shown, without signed reasoning
    messages: _Count = 0
    """Hidden messages of the round in the record.

    A round that was rejected has none: it leaves the transcript with its text.
    """
    signed: tuple[str, ...] = ()
    """Digests of what makes reasoning of this round known (``signature_digest``)."""

    @property
    def is_woven(self) -> bool:
        return self.messages > 0


class RoundText(NamedTuple):
    """The input of ``describe_rounds``: what was shown of one round, in its own words."""

    number: int
    text: str
    messages: Sequence[bytes] = ()  # The hidden messages of the round; none if it was rejected
    reasoning: str = ""  # Only in protocols in which rounds are joined to one text
    pieces: int = 0
    signatures: Sequence[str] = ()  # Signatures, or ids and encrypted contents, of its reasoning


class _Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    claw: Literal["live"]
    shown: Annotated[tuple[ShownRound, ...], msgspec.Meta(max_length=_MAX_ROUNDS)]
    turn: str = ""
    given_ids: dict[str, str] = {}
    is_part: bool = False
    continued: tuple[str, ...] = ()


_marker = msgspec.json.Decoder(_Marker)


class LiveRecord(msgspec.Struct, frozen=True):
    """The record of a turn that streamed live: what was shown, and the hidden messages."""

    shown: tuple[ShownRound, ...]
    messages: tuple[bytes, ...]  # Of each round, comma separated; b"" for none
    turn: str = ""
    """The id of the turn. It has further records if it failed before it was answered."""
    given_ids: Mapping[str, str] = MappingProxyType({})
    """The provider's ids of items of the last reply that the runner knows by an id of ours."""
    is_part: bool = False
    """True if the answer broke off there: its runner may join it with what it gets next."""
    continued: tuple[str, ...] = ()
    """The ids of the turns whose broken answers this one goes on with. Their rounds come first."""

    @classmethod
    def read(cls, stored: bytes) -> Self | None:
        """Return the record that ``write`` has written; None for anything else."""
        try:
            array = b"[%b]" % stored
            # ``element_spans`` reads valid JSON only, and does not check it.
            msgspec.json.decode(array, type=list[msgspec.Raw])
            elements = [array[start:end] for start, end in json_splice.element_spans(array)]
            if not elements:
                return None
            marker = _marker.decode(elements[0])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None

        shown = marker.shown
        hidden = elements[1:]
        if not shown or sum(each.messages for each in shown) != len(hidden):
            return None

        rest = iter(hidden)
        messages = [b",".join([next(rest) for _ in range(each.messages)]) for each in shown]
        return cls(
            shown,
            tuple(messages),
            marker.turn,
            marker.given_ids,
            marker.is_part,
            marker.continued,
        )

    def hide(self, signatures: Iterable[str]) -> Self:
        """Return the record with more reasoning that was shown and must not be sent back."""
        digests = tuple(sorted(map(signature_digest, signatures)))
        # A round without text and messages: it carries the digests, and moves no cut.
        carrier = ShownRound(PREFILL, signed=digests)
        return replace(self, shown=(*self.shown, carrier), messages=(*self.messages, b""))

    def write(self) -> bytes:
        """Return the record as it is stored: the marker, and the hidden messages behind it."""
        marker = _Marker(
            "live",
            self.shown,
            self.turn,
            dict(self.given_ids),
            self.is_part,
            self.continued,
        )
        return join_messages((msgspec.json.encode(marker), *self.messages))

    @property
    def hidden(self) -> bytes:
        """Return the hidden messages of all rounds, comma separated."""
        return join_messages(self.messages)

    @property
    def signed(self) -> frozenset[str]:
        """Return the digests of all reasoning that belongs to hidden rounds."""
        return frozenset(digest for each in self.shown for digest in each.signed)


def needs_glue(before: str, after: str) -> bool:
    """Return True if ``GLUE`` goes between two texts that are shown one behind the other."""
    if not before or not after:
        return False
    return not before[-1].isspace() and not after[0].isspace()


def describe_rounds(rounds: Sequence[RoundText], after: str, *, is_joined: bool) -> LiveRecord:
    """Return the record of a turn.

    ``after``: the text that was shown behind these rounds. ``is_joined``: the protocol has one text
    for all rounds, with ``GLUE`` between them where it is needed.
    """
    followers = [each.text for each in rounds[1:]]  # The text right behind each round
    if rounds:
        followers.append(after)
    before = ""  # The last text that was shown
    shown: list[ShownRound] = []

    for each, follower in zip(rounds, followers, strict=True):
        before = each.text or before
        glue = len(GLUE) if needs_glue(before, follower) else 0
        text_space = _space_at_end(each.text) + glue if is_joined else None
        reasoning_space = _space_at_end(each.reasoning) if is_joined else None

        described = ShownRound(
            each.number,
            text=_describe(each.text, text_space),
            reasoning=_describe(each.reasoning, reasoning_space),
            pieces=each.pieces,
            messages=len(each.messages),
            signed=tuple(map(signature_digest, each.signatures)),
        )
        shown.append(described)

    return LiveRecord(tuple(shown), tuple(b",".join(each.messages) for each in rounds))


def _describe(text: str, space: int | None) -> Stretch:
    words = [match[0] for match in _WORD.finditer(text)]
    return Stretch(sum(map(len, words)), _digest(words), space)


def _space_at_end(text: str) -> int:
    return len(text) - len(text.rstrip())


def _digest(words: Iterable[str]) -> str:
    """Return the digest of words without the white space between them; "" for none."""
    digest = hashlib.sha256()
    is_empty = True
    for word in words:
        digest.update(word.encode(errors="surrogatepass"))
        is_empty = False
    return "" if is_empty else digest.hexdigest()[:_DIGEST_LENGTH]


def signature_digest(signature: str) -> str:
    """Return the name of a signature, or of the id or encrypted content of reasoning.

    It is made of the beginning, since of a long text in a large request only that is read.
    """
    beginning = signature[:_SIGNATURE_LENGTH].encode(errors="surrogatepass")
    return hashlib.sha256(beginning).hexdigest()[:_DIGEST_LENGTH]


def hides_key(digest: str) -> str:
    """Return the name under which it is remembered that a hidden round had this reasoning.

    Such names outlive the hidden messages. The runner may still send the reasoning back then, and a
    provider refuses it without those messages, so it must be known to be taken out.
    """
    return f"{HIDES_KIND}:{digest}"


def digests_of_hides(keys: Iterable[str]) -> frozenset[str]:
    """Return the digests in those keys that are of ``hides_key``, with any prefix."""
    digests: set[str] = set()
    for key in keys:
        # "hides:digest", or "prefix:hides:digest"
        before, _, digest = key.rpartition(":")
        kind = before.rpartition(":")[2]
        if kind == HIDES_KIND:
            digests.add(digest)

    return frozenset(digests)


def live_name(dialect: str) -> str:
    """Return the name of a dialect in the keys of live turns.

    Under another name, an older process of a fleet finds nothing. It would take the marker for a
    message.
    """
    return dialect + _LIVE


def is_live_key(key: str) -> bool:
    """Return True if a key is that of a live turn."""
    return key.partition(":")[0].endswith(_LIVE)


def answer_anchor_of_shown(whole: Anchor, last: Anchor) -> Anchor:
    """Return the anchor of a live answer.

    ``whole`` is that of all that was shown, ``last`` that of the last reply alone: some runners
    keep only the last piece.
    """
    names = dict.fromkeys((*whole.names, *last.names))
    if last.key not in whole.keys and not last.key.endswith(EMPTY_TEXT_KEY):
        names[last.key] = None
    return replace(whole, names=tuple(names))


def failed_anchor_of_shown(shown: str, before: tuple[str, ...]) -> Anchor:
    """Return the anchor of a live turn that failed after it had shown this text.

    A runner sends the text back, or drops it.
    """
    key = text_key(shown)
    names = () if key == EMPTY_TEXT_KEY else (EMPTY_TEXT_KEY,)
    return Anchor(key, before, names=names)


def find_end(text: str, start: int, stretch: Stretch) -> int | None:
    """Return where a stretch ends that begins at ``start``, with the space that goes with it.

    None if the text is another one there.
    """
    words = [*_take_words(text, start, stretch.characters)]
    taken = [text[begin:end] for begin, end in words]
    if sum(map(len, taken)) != stretch.characters or _digest(taken) != stretch.digest:
        return None

    end = words[-1][1] if words else start
    return _skip_space(text, end, stretch.space)


def _take_words(text: str, start: int, characters: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of words that have this many characters together, or all there are."""
    if not characters:
        return

    for match in _WORD.finditer(text, start):
        begin, end = match.span()
        end = min(end, begin + characters)
        yield begin, end

        characters -= end - begin
        if not characters:
            return


def _skip_space(text: str, start: int, most: int | None) -> int:
    """Return the place behind the white space at ``start``, of which at most ``most`` counts."""
    word = _WORD.search(text, start)
    end = word.start() if word else len(text)
    return end if most is None else min(end, start + most)


class Piece(NamedTuple):
    """A part of the runner's message, or an item, in which shown text is looked for."""

    kind: Literal["text", "signed", "call", "other"]
    """``call``: of the last reply, since those of the rounds were not shown."""
    text: str = ""


class Cut(NamedTuple):
    """The place behind a round in the runner's pieces."""

    piece: int  # The first piece that does not belong to the round as a whole
    offset: int = 0  # Characters of it that belong to the round


def find_cuts(pieces: Sequence[Piece], shown: Sequence[ShownRound]) -> list[Cut] | None:
    """Return where each round ends in what the runner sent.

    None if that is not what was shown. Reasoning of the rounds must not be among the pieces: the
    runner may have lost it, and it is no reason not to split.
    """
    cuts: list[Cut] = []
    cut = Cut(0)

    for each in shown:
        end = _find_text_end(pieces, cut, each.text)
        if end is None:
            return None
        cut = _take_other_pieces(pieces, cut, end, each.pieces)
        cuts.append(cut)

    return cuts


def _find_text_end(pieces: Sequence[Piece], start: Cut, stretch: Stretch) -> Cut | None:
    """Return the place right behind the text of a round; None if the pieces have another."""
    index, offset = start
    missing = stretch.characters
    words: list[str] = []

    while missing:
        if index == len(pieces) or pieces[index].kind == "call":
            return None

        text = pieces[index].text
        for begin, end in _take_words(text, offset, missing):
            words.append(text[begin:end])
            missing -= end - begin
            offset = end
        if missing:
            index, offset = index + 1, 0

    if _digest(words) != stretch.digest:
        return None
    if index == len(pieces):
        return Cut(index)

    # The space at the beginning of a piece is the piece's own, unless the record counts it.
    text = pieces[index].text
    if offset or stretch.space is not None:
        offset = _skip_space(text, offset, stretch.space)
    is_used_up = offset > 0 and not text[offset:].strip()
    return Cut(index + 1) if is_used_up else Cut(index, offset)


def _take_other_pieces(pieces: Sequence[Piece], start: Cut, end: Cut, number: int) -> Cut:
    """Return the end of a round, with the pieces without text that were shown behind its text.

    ``number``: of its pieces, all in all.
    """
    index, offset = end
    taken = sum(piece.kind != "signed" for piece in pieces[start.piece : index])
    while not offset and index < len(pieces) and taken < number:
        if pieces[index].kind in {"signed", "call"} or pieces[index].text.strip():
            break
        index += 1
        taken += 1

    return Cut(index, offset)
