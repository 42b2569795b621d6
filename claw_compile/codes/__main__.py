"""Print ``docs/diagnostics.md``."""

from __future__ import annotations

import sys

import claw_compile.codes  # noqa: F401 - importing the areas fills the registry
from claw_compile.codes.registry import page

sys.stdout.write(page())
