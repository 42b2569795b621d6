"""The Kubernetes API's own JSON Schemas, each of which is read once: a set of a
version has two megabytes.
"""

from __future__ import annotations

import functools
from typing import Any

from kubernetes_validate import utils

utils.schema_contents = functools.cache(utils.schema_contents)
utils.all_versions = functools.cache(utils.all_versions)

OLDEST, NEWEST = "1.29.0", "1.37.0"
"""The first version with native sidecars on by default, and the last one whose schemas we have."""


def validate(document: dict[str, Any]) -> None:
    """Raise an error unless both versions know the object, and every member of it."""
    for version in (OLDEST, NEWEST):
        utils.validate(document, version, strict=True)
