"""The size of searches (hypothesis): each test states its full size, and a run
tries a part of it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator

SEARCH_SIZE = float(os.environ.get("CLAW_SEARCH_SIZE", "0.1"))
"""The part of its full size that a search tries: a tenth in ``make test``, five times as many
examples in ``make soak``.
"""


def scale_examples(full: int) -> int:
    """Return how many examples this run tries.

    A search inside a test calls this; ``conftest.py`` does it for all others.
    """
    return max(1, round(full * SEARCH_SIZE))


def each_nth[T](step: int, cases: Iterable[T]) -> Iterator[T]:
    """Yield the first of each ``step`` cases; all of them in ``make soak``.

    ``step`` has no factor in common with the number of values at each place, so that each value
    is among them.
    """
    return itertools.islice(cases, None, None, step if SEARCH_SIZE < 1 else 1)
