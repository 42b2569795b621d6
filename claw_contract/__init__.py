"""Everything that crosses a process border, as strict, frozen models; names; secrets.

Specification: docs/spec/contract.md.

This package imports nothing of ours. Types are strict (no coercion). Unknown keys are ignored, so
that a context directory of the original system or of a newer compiler loads here. A malformed file
raises ``pydantic.ValidationError``; its reader decides what fails closed.
"""
