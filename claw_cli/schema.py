"""``claw schema``: the JSON Schema of the pod file, for editors (docs/spec/compile.md "Verbs")."""

from __future__ import annotations

import sys

from claw_compile.schema.editor import as_text, editor_schema


def schema() -> None:
    """Print the JSON Schema of pod files, for editors.

    Exit 0; 2 for wrong usage.
    """
    sys.stdout.write(as_text(editor_schema()))
