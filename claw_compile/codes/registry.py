"""The registry of codes: each once, with its meaning and its remedy.

``docs/diagnostics.md`` is printed from it: ``python -m claw_compile.codes > docs/diagnostics.md``. A code, once published,
keeps its name.
"""

from __future__ import annotations

from claw_compile.diagnostics.diagnostic import Code, Severity

CODES: dict[str, Code] = {}


def _code(severity: Severity, name: str, meaning: str, remedy: str) -> Code:
    code = Code(name, severity, meaning, remedy)
    assert name not in CODES
    CODES[name] = code
    return code


def error(name: str, meaning: str, remedy: str) -> Code:
    """Register an error: with one, nothing is written."""
    return _code("error", name, meaning, remedy)


def warning(name: str, meaning: str, remedy: str) -> Code:
    """Register a warning: it changes nothing."""
    return _code("warning", name, meaning, remedy)


def page() -> str:
    """Return the text of ``docs/diagnostics.md``."""
    intro = (
        "# Diagnostics\n\n"
        "What `claw check` and `claw compile` report. An error means that nothing is written; a warning changes nothing.\n"
        "This page is printed from the registry: `python -m claw_compile.codes > docs/diagnostics.md`.\n"
    )
    parts = [f"## {code.name}\n\n*{code.severity}* · {code.meaning}\n\n{code.remedy}\n" for code in _sorted_codes()]
    return "\n".join([intro, *parts])


def _sorted_codes() -> list[Code]:
    return [CODES[name] for name in sorted(CODES)]
