"""The parts of an answer that the rounds of a live turn showed (docs/spec/live.md). Pure.

The answer holds all that was shown, over all rounds, and history has the characters of each round:

    the answer   Let me look.      And once more.     You have 50.
    the rounds   12 characters     14 characters      (the rest)

In OpenAI's chat completions that is one string, and an empty line between two rounds, where they
would touch, is counted with the second. Elsewhere an answer has blocks or items, of which each
belongs to one round.

A line of history may be damaged or hostile: nothing here raises, and an answer that is not what the
rounds have shown is not cut.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from claw_contract.transcript.text import as_array, as_object


class ShownSize(NamedTuple):
    """The characters that a round has shown."""

    text: int = 0
    reasoning: int = 0


class AnswerParts(NamedTuple):
    """An answer in the parts in which its runner saw it.

    ``rounds``: the message, or the items, that each round showed. ``rest``: the answer without
    them.
    """

    rounds: Sequence[Sequence[Any]]
    rest: Any


def cut_answer(answer: object, sizes: Sequence[ShownSize]) -> AnswerParts:
    """Return an answer in parts: what rounds of these sizes have shown of it, and the rest.

    An answer that can't be cut so is returned whole, as the rest.
    """
    whole = AnswerParts([()] * len(sizes), answer)
    document = as_object(answer)
    cut: AnswerParts | None = None

    if isinstance(answer, str):
        cut = _cut_text(answer, sizes)
    elif isinstance(document.get("choices"), list):
        cut = _cut_choices(document, sizes)
    elif isinstance(document.get("output"), list):
        cut = _cut_list(document, "output", sizes)
    elif isinstance(document.get("content"), list):
        cut = _cut_list(document, "content", sizes)

    return cut or whole


def _cut_text(text: str, sizes: Sequence[ShownSize]) -> AnswerParts | None:
    """Cut a string. Reasoning has one of its own, which is not shown to people."""
    rounds: list[Sequence[Any]] = []
    place = 0
    for size in sizes:
        end = place + size.text
        if end > len(text):
            return None

        words = text[place:end].strip("\n")
        rounds.append([{"content": words}] if words else [])
        place = end

    return AnswerParts(rounds, text[place:].lstrip("\n") if place else text)


def _cut_choices(document: dict[str, Any], sizes: Sequence[ShownSize]) -> AnswerParts | None:
    """Cut an answer of chat completions. Only one with one choice is mediated."""
    choices = as_array(document.get("choices"))
    choice = as_object(choices[0]) if len(choices) == 1 else {}
    message = as_object(choice.get("message"))
    content = message.get("content")
    if not isinstance(content, str):
        return None

    cut = _cut_text(content, sizes)
    if cut is None:
        return None

    rest = {**choice, "message": {**message, "content": cut.rest}}
    return AnswerParts(cut.rounds, {**document, "choices": [rest]})


def _cut_list(
    document: dict[str, Any], name: str, sizes: Sequence[ShownSize]
) -> AnswerParts | None:
    """Cut an answer whose parts are blocks (under "content") or items (under "output").

    A part without characters, such as a search of the provider's own, goes to the round whose text
    comes behind it.
    """
    parts = as_array(document.get(name))
    rounds: list[Sequence[Any]] = []
    place = 0
    for size in sizes:
        start = place
        left = size
        while left.text or left.reasoning:
            if place == len(parts):
                return None

            part = _size_of(parts[place])
            left = ShownSize(left.text - part.text, left.reasoning - part.reasoning)
            if left.text < 0 or left.reasoning < 0:
                return None
            place += 1

        taken = parts[start:place]
        if name == "content" and taken:
            # Blocks are the content of one message. Items of "output" stand for themselves.
            rounds.append([{"content": taken}])
        else:
            rounds.append(taken)

    return AnswerParts(rounds, {**document, name: parts[place:]})


def _size_of(value: object) -> ShownSize:
    """Return the size of a block, or of an item."""
    part = as_object(value)
    match part.get("type"):
        case "text":
            return ShownSize(text=_length(part.get("text")))
        case "thinking":
            return ShownSize(reasoning=_length(part.get("thinking")))
        case "message":
            return ShownSize(text=_total(part, "content"))
        case "reasoning":
            return ShownSize(reasoning=_total(part, "summary") + _total(part, "content"))
        case _:
            return ShownSize()


def _total(item: dict[str, Any], name: str) -> int:
    return sum(_length(as_object(part).get("text")) for part in as_array(item.get(name)))


def _length(text: object) -> int:
    return len(text) if isinstance(text, str) else 0
