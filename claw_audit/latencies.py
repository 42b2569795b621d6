"""How long things took: quantiles in constant memory.

Rules. Below 100 ms each millisecond is counted by itself; above, a bucket is 1% wide, and stands for its middle. So a
quantile is one that was seen, to within 1%.
"""

from __future__ import annotations

import math
from collections import Counter

_EXACT = 100
_WIDTH = math.log(1.01)
_MOST = 10**9
"""Milliseconds; eleven days."""


class Latencies:
    """Milliseconds, counted."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buckets: Counter[int] = Counter()
        """At most 1,720 of them."""

    def add(self, ms: int) -> None:
        self.count += 1
        self._buckets[_bucket(min(max(ms, 0), _MOST))] += 1

    def quantile(self, part: float) -> int | None:
        """The least of those that so large a part is not above; None where there is nothing."""
        rank = math.ceil(part * self.count)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return _middle(bucket)
        return None


def _bucket(ms: int) -> int:
    return ms if ms < _EXACT else _EXACT + int(math.log(ms / _EXACT) / _WIDTH)


def _middle(bucket: int) -> int:
    return bucket if bucket < _EXACT else round(_EXACT * math.exp((bucket - _EXACT + 0.5) * _WIDTH))
