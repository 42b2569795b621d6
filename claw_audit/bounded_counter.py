"""Tables and lists that do not grow with what is read: names come from models, and a model may make up any number of them."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

OTHERS: Final = "(others)"
"""What stands for all names that have no row of their own."""
MOST_ROWS: Final = 2_000
_CHUNK: Final = 65_536


class Table[Row]:
    """A row by name, and one for all others where there are too many."""

    def __init__(self, new: Callable[[], Row]) -> None:
        self._new = new
        self._rows: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                name = OTHERS
            row = self._rows.setdefault(name, self._new())
        return row

    def items(self) -> list[tuple[str, Row]]:
        """By name, the others last."""
        return sorted(self._rows.items(), key=lambda item: (item[0] == OTHERS, item[0]))


class Counts:
    """How often, by name."""

    def __init__(self) -> None:
        self._table: Table[list[int]] = Table(lambda: [0])

    def add(self, name: str, count: int = 1) -> None:
        self._table[name][0] += count

    def items(self) -> list[tuple[str, int]]:
        """The most frequent first."""
        return sorted(((name, count) for name, (count,) in self._table.items()), key=lambda item: (-item[1], item[0]))


class Latest[Item]:
    """The last so many, by their times."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order = 0
        self._heap: list[tuple[float, int, Item]] = []

    def add(self, at: float | None, item: Item) -> None:
        self._order += 1
        entry = (at if at is not None else 0.0, self._order, item)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        elif self._heap and entry[:2] > self._heap[0][:2]:
            heapq.heapreplace(self._heap, entry)

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in sorted(self._heap, key=lambda entry: entry[:2]))


class Marks:
    """Numbers of eight bytes, in eight bytes each."""

    def __init__(self) -> None:
        self._sorted: list[array[int]] = []
        self._fresh: set[int] = set()

    def add(self, mark: int) -> None:
        self._fresh.add(mark)
        if len(self._fresh) >= _CHUNK:
            self._sorted.append(array("Q", sorted(self._fresh)))
            self._fresh.clear()

    def __contains__(self, mark: int) -> bool:
        return mark in self._fresh or any(_holds(marks, mark) for marks in self._sorted)


class Known:
    """Names that were met, at eight bytes each: a strange one is taken for one of a million once in 10^13 times."""

    def __init__(self) -> None:
        self._marks = Marks()

    def add(self, *name: str) -> None:
        self._marks.add(_mark(name))

    def __contains__(self, name: tuple[str, ...]) -> bool:
        return _mark(name) in self._marks


def _holds(marks: array[int], mark: int) -> bool:
    place = bisect_left(marks, mark)
    return place < len(marks) and marks[place] == mark


def _mark(name: tuple[str, ...]) -> int:
    digest = hashlib.blake2b("\0".join(name).encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
