"""The size of searches (hypothesis): each test states its full size, and a run
tries a part of it.
"""

from __future__ import annotations

import os

SEARCH_SIZE = float(os.environ.get("CLAW_SEARCH_SIZE", "0.1"))
"""The part of its full size that a search tries: a tenth in ``make test``, five times as many
examples in ``make soak``.
"""


def scale_examples(full: int) -> int:
    """Return how many examples this run tries.

    A search inside a test calls this; ``conftest.py`` does it for all others.
    """
    return max(1, round(full * SEARCH_SIZE))
