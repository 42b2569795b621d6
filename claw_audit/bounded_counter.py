"""Counters and collections of bounded size.

Names come from models, and a model may invent any number of them.
"""

import hashlib
import heapq
import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

OTHERS: Final = "(others)"  # Row of all names beyond the limit
MAX_ROWS: Final = 2_000
_CHUNK: Final = 65_536
_EXACT_MS: Final = 100  # Below, each millisecond has a bucket of its own
_BUCKET_WIDTH: Final = math.log(1.01)
_MAX_MS: Final = 10**9  # eleven days


class BoundedTable[Row]:
    """Rows by name. Names beyond ``MAX_ROWS`` share one row.

    A row is made when its name is first looked up.
    """

    def __init__(self, new_row: Callable[[str], Row]) -> None:
        self._new_row = new_row
        self._rows: dict[str, Row] = {}

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            if len(self._rows) >= MAX_ROWS:
                name = OTHERS
            self._rows.setdefault(name, self._new_row(name))

        return self._rows[name]

    def items(self) -> list[tuple[str, Row]]:
        """Return the rows by name, ``OTHERS`` last."""
        return sorted(self._rows.items(), key=lambda item: (item[0] == OTHERS, item[0]))

    def __iter__(self) -> Iterator[Row]:
        return (row for _, row in self.items())


@dataclass(frozen=True, slots=True)
class NamedCount:
    name: str
    count: int


class BoundedCounter:
    """Counts by name. Names beyond ``MAX_ROWS`` share one count.

    Iteration yields the highest count first.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        if name not in self.counts and len(self.counts) >= MAX_ROWS:
            name = OTHERS
        self.counts[name] += 1

    def __iter__(self) -> Iterator[NamedCount]:
        by_count = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return (NamedCount(name, count) for name, count in by_count)


class LatestItems[Item]:
    """The latest ``max_items`` by time. Items of the same time are in the order of ``add``."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._added = 0
        self._heap: list[tuple[float, int, Item]] = []

    def add(self, at: float | None, item: Item) -> None:
        """Add an item; one without a time counts as the oldest."""
        self._added += 1
        push = heapq.heappush if len(self._heap) < self._max_items else heapq.heappushpop
        push(self._heap, (at or 0.0, self._added, item))

    def __iter__(self) -> Iterator[Item]:
        return (item for _, _, item in sorted(self._heap))


class HashSet:
    """A set of 64-bit hashes that takes eight bytes for each."""

    def __init__(self) -> None:
        self._chunks: list[array[int]] = []  # sorted
        self._recent: set[int] = set()

    def add(self, number: int) -> None:
        self._recent.add(number)
        if len(self._recent) >= _CHUNK:
            self._chunks.append(array("Q", sorted(self._recent)))
            self._recent.clear()

    def __contains__(self, number: int) -> bool:
        if number in self._recent:
            return True

        for chunk in self._chunks:
            place = bisect_left(chunk, number)
            if place < len(chunk) and chunk[place] == number:
                return True
        return False


def hash_names(*names: str) -> int:
    """Return 64 bits of a hash.

    Among a million names, a new one is taken for a known one once in 10^13 times.
    """
    text = "\0".join(names).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


class LatencyHistogram:
    """Milliseconds, counted in at most 1,720 buckets.

    Below 100 ms each millisecond has its own bucket. Above, a bucket is 1% wide and stands for its
    middle, so a quantile is a value that occurred, to within 1%.
    """

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, ms: int) -> None:
        bucket = min(max(ms, 0), _MAX_MS)
        if bucket >= _EXACT_MS:
            bucket = _EXACT_MS + int(math.log(bucket / _EXACT_MS) / _BUCKET_WIDTH)
        self._buckets[bucket] += 1

    def quantile(self, part: float) -> int | None:
        """Return the smallest value that is not below ``part`` of all values.

        None if there are no values.
        """
        rank = math.ceil(part * self._buckets.total())
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return _middle_of(bucket)
        return None

    @property
    def p50(self) -> int | None:
        return self.quantile(0.5)

    @property
    def p95(self) -> int | None:
        return self.quantile(0.95)


def _middle_of(bucket: int) -> int:
    """Return the milliseconds that a bucket stands for."""
    if bucket < _EXACT_MS:
        return bucket
    return round(_EXACT_MS * math.exp((bucket - _EXACT_MS + 0.5) * _BUCKET_WIDTH))
