"""``claw schema``: the JSON Schema of the pod file, for editors (spec/compile.md "Verbs")."""

from __future__ import annotations

import sys

from claw_compile.schema.editor import as_text, editor_schema


def schema() -> None:
    """Print the JSON Schema of pod files, for editors: Compose's and x-claw's. Exit 0."""
    sys.stdout.write(as_text(editor_schema()))
