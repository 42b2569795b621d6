"""The values of a delta's members that come in several chunks, joined as a whole body has them.

Texts that flow are not joined here, nor are the names and the arguments of calls. What is left are
members that nearly always come once, and then keep their bytes. Where one comes again:

    lists       go on. An entry with the ``index`` and ``type`` of one that is there goes on with
                it, unless the two have different ids or data: OpenRouter's ``reasoning_details``
    objects     are joined member by member
    strings     are joined if their name is one of a text, else the last one counts: servers repeat
                ``format`` in each chunk, and send a signature once, at the end
    all others  the last one counts; null says nothing
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_TEXTS: Final = frozenset({"text", "summary", "thinking", "content", "reasoning"})
_WHOLE: Final = ("id", "data")
"""Members of an entry that are never sent in parts. Two entries that differ in one are two."""


def join_values(values: Sequence[bytes]) -> bytes:
    """Return one JSON value of those that a member had in its chunks, in order; not none.

    Raise ``DecodeError`` or ``RecursionError`` for one that is no JSON.
    """
    if len(values) == 1:
        return values[0]

    joined: Any = None
    entries = _Entries()
    for value in map(msgspec.json.decode, values):
        if isinstance(value, list):
            entries.add(value)
            joined = entries.joined
        else:
            joined = _join(joined, value)
    return msgspec.json.encode(joined)


class _Entries:
    """The entries of a list that comes in parts."""

    def __init__(self) -> None:
        self.joined: list[Any] = []
        # The last entry of an index and type, with its place
        self._places: dict[tuple[Any, Any], int] = {}

    def add(self, entries: list[Any]) -> None:
        for entry in entries:
            key = _entry_key(entry)
            place = None if key is None else self._places.get(key)
            if place is not None and _continues(self.joined[place], entry):
                self.joined[place] = _join(self.joined[place], entry)
                continue

            if key is not None:
                self._places[key] = len(self.joined)
            self.joined.append(entry)


def _entry_key(entry: Any) -> tuple[int, str] | None:
    if not isinstance(entry, dict) or type(entry.get("index")) is not int:
        return None
    return entry["index"], str(entry.get("type"))


def _continues(earlier: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Return True if an entry is a part of the earlier one."""
    pairs = [(earlier.get(name), entry.get(name)) for name in _WHOLE]
    return all(old is None or new is None or old == new for old, new in pairs)


def _join(old: Any, new: Any, name: str = "") -> Any:
    if new is None:
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _join(old.get(key), value, key) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *new]
    if isinstance(old, str) and isinstance(new, str) and name in _TEXTS:
        return old + new
    return new
