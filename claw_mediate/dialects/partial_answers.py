"""The beginning of an answer at the end of a request, whose turn may have failed on its way.

docs/spec/live.md section 6. A runner goes on after a stream that broke off in one of these ways:

    the request                                               seen of
    ────────────────────────────────────────────────────────  ───────────────────────────────
    the same                                                  most runners
    that, and what it holds of the answer                     Codex, opencode
    that, and words of its own ("You were cut off. Go on.")   Claude Code, qwen
    the same, and words of its own                            a runner that has dropped what it held

The journal says whether there is such a turn. What is found here is only what may be one.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.json_pieces import copy_span

_MAX_MESSAGES: Final = 8  # Messages at the end that may be one answer; the journal is asked of each
_MAX_FOLLOWERS: Final = 4  # Messages of the user's behind them
_REASONING: Final = "reasoning"
_CALL_TYPES: Final = frozenset({"tool_use", "tool_result"})


class PartialAnswer(NamedTuple):
    """A possible beginning of an answer, and the request that it answers."""

    body: bytes  # The request without it, and without what stands behind it
    text: str  # "" if the runner has kept reasoning only, or nothing
    has_followers: bool  # True if words of the user's stand behind it


class _Part(msgspec.Struct):
    type: Any = None
    text: Any = None


class _Message(msgspec.Struct):
    role: Any = None
    type: Any = None
    content: msgspec.Raw = msgspec.Raw(b"null")
    tool_calls: Any = None
    function_call: Any = None


_message = msgspec.json.Decoder(_Message)
_content = msgspec.json.Decoder(str | list[_Part] | None)


def find_partial_answers(body: bytes, transcript: str) -> list[PartialAnswer]:
    """Return what may be the beginning of an answer: the last message, the last two, and so on.

    ``transcript``: the member of the request that has its messages.
    """
    span = json_splice.find_members(body, [transcript]).get(transcript)
    if span is None or body[span.start : span.start + 1] != b"[":
        return []
    elements = copy_span(body, span.start, span.end)
    spans = [
        (span.start + start, span.start + end) for start, end in json_splice.element_spans(elements)
    ]

    followers = 0
    for message in _backwards(body, spans):
        if not _is_users(message):
            break
        followers += 1
    if followers > _MAX_FOLLOWERS or not spans:
        return []

    end = spans[-1][1]
    found = [*_answers(body, spans[: len(spans) - followers], end, followers)]
    if followers > 1:
        # The last words may follow an answer of which nothing was kept.
        earlier = json_splice.splice(body, [(spans[-2][1], end, b"")])
        found.append(PartialAnswer(earlier, "", has_followers=True))
    return found


def _answers(
    body: bytes, spans: Sequence[tuple[int, int]], end: int, followers: int
) -> Iterator[PartialAnswer]:
    text = ""
    messages = [*islice(_backwards(body, spans), _MAX_MESSAGES + 1)]
    for count, (message, before) in enumerate(pairwise([*messages, _Message()]), 1):
        said = _answer_text(message)
        # An answer follows something of the runner's.
        if said is None or count > _MAX_MESSAGES or count == len(spans):
            return

        text = said + text
        if before.type == _REASONING:
            continue  # It led to this one, and is a part of the same answer.

        # From the end of the message before them, so that its comma goes, too.
        without = json_splice.splice(body, [(spans[-count - 1][1], end, b"")])
        yield PartialAnswer(without, text, followers > 0)


def _backwards(body: bytes, spans: Sequence[tuple[int, int]]) -> Iterator[_Message]:
    """Yield the messages from the last one on, until one has a form that we do not know."""
    for start, end in reversed(spans):
        try:
            yield _message.decode(body[start:end])
        except (msgspec.DecodeError, RecursionError):
            return


def _is_users(message: _Message) -> bool:
    parts = _parts(message)
    return message.role == "user" and parts is not None


def _answer_text(message: _Message) -> str | None:
    """Return the text of a model's message or item; None for one that is no part of an answer.

    A call is none: with it, the turn has ended.
    """
    if message.type == _REASONING:
        return ""
    if message.role != "assistant" or message.tool_calls or message.function_call:
        return None
    parts = _parts(message)
    return None if parts is None else "".join(parts)


def _parts(message: _Message) -> list[str] | None:
    """Return the texts of a content; None if it has calls or results of calls, or another form."""
    try:
        content = _content.decode(message.content)
    except msgspec.DecodeError:
        return None
    if content is None or isinstance(content, str):
        return [content or ""]
    if any(part.type in _CALL_TYPES for part in content):
        return None
    return [part.text for part in content if isinstance(part.text, str)]
