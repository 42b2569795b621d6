"""The replies that a stream has shown before the present one, as one message has them.

SDKs add up the deltas of all replies of a stream. So its message says all of them: each text goes
on, and so do the logprobs.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from claw_mediate.dialects.bodies import Changes, encode
from claw_mediate.dialects.members import Members, split_array, split_object, string_member

_GLUE: Final = "\n\n"
_CONTENT: Final = "content"


class ShownTexts:
    """The texts that a stream has shown, by channel."""

    def __init__(self) -> None:
        self._earlier: dict[str, list[str]] = {}
        self._present: dict[str, list[str]] = {}

    @property
    def has_any(self) -> bool:
        return bool(self._earlier or self._present)

    def begin_reply(self) -> None:
        for name, parts in self._present.items():
            self._earlier.setdefault(name, []).extend(parts)
        self._present = {}

    def add(self, name: str, text: str) -> str:
        """Add a part of the present reply's text, and return it as it is shown."""
        if name in self._present:
            self._present[name].append(text)
            return text

        shown = self._separator(name, text) + text
        self._present[name] = [shown]
        return shown

    def with_earlier(self, message: Members) -> Changes:
        """Return the changes of a message that make it say all that was shown.

        A text of its own that was not shown leaves: a turn that a tool ended has one.
        """
        changes: Changes = {}
        for name, parts in self._present.items():
            shown = "".join(parts)
            # Of a secret that came in parts the first characters were shown, too.
            if string_member(message, name) not in {None, shown}:
                changes[name] = encode(shown)

        for name, parts in self._earlier.items():
            earlier = "".join(parts)
            own = string_member(message, name)
            if own is None and message.get(name, b"")[:1] == b"[":
                first_part = encode({"type": "text", "text": earlier})
                elements = [first_part, *split_array(message[name])]
                changes[name] = b"[" + b",".join(elements) + b"]"
            else:
                changes[name] = encode(earlier + "".join(self._present.get(name, ())))
        return changes

    def _separator(self, name: str, text: str) -> str:
        """Return what goes between the earlier replies and the first part of the present one."""
        earlier = self._earlier.get(name)
        if name != _CONTENT or not earlier or not text:
            return ""

        is_apart = earlier[-1][-1].isspace() or text[0].isspace()
        return "" if is_apart else _GLUE


class ShownLogprobs:
    """The logprobs that a stream has shown: lists, by name."""

    def __init__(self) -> None:
        self._earlier: dict[str, list[bytes]] = {}
        self._present: dict[str, list[bytes]] = {}

    @property
    def has_earlier(self) -> bool:
        return bool(self._earlier)

    def begin_reply(self) -> None:
        for name, entries in self._present.items():
            self._earlier.setdefault(name, []).extend(entries)
        self._present = {}

    def add(self, logprobs: bytes) -> None:
        """Add the logprobs of a part of the present reply."""
        for name, entries in _read_lists(logprobs).items():
            self._present.setdefault(name, []).extend(entries)

    def without_shown(self, logprobs: bytes) -> bytes | None:
        """Return the logprobs of the whole reply without those that were shown; None if all were.

        They are in the same order in both.
        """
        if not self._present:
            return logprobs

        rest = {
            name: entries[len(self._present.get(name, ())) :]
            for name, entries in _read_lists(logprobs).items()
        }
        return _write_lists(rest) if any(rest.values()) else None

    def with_earlier(self, logprobs: bytes) -> bytes:
        """Return the logprobs of a body with those of the earlier replies before them."""
        own = _read_lists(logprobs)
        names = {**self._earlier, **own}
        return _write_lists(
            {name: [*self._earlier.get(name, ()), *own.get(name, ())] for name in names}
        )


def _read_lists(logprobs: bytes) -> dict[str, list[bytes]]:
    if logprobs[:1] != b"{":
        return {}
    return {
        name: split_array(raw) for name, raw in split_object(logprobs).items() if raw[:1] == b"["
    }


def _write_lists(lists: Mapping[str, list[bytes]]) -> bytes:
    return msgspec.json.encode(
        {name: [msgspec.Raw(entry) for entry in entries] for name, entries in lists.items()}
    )
