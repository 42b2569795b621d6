"""What crosses a process border: the files of spec/contract.md as strict, frozen models; names; secrets.

Rules of this package. It imports nothing of ours. Types are strict (no coercion); unknown keys are ignored on reading,
so that a context directory of the original system, or of a newer compiler, loads here. What is malformed raises
``pydantic.ValidationError``; who reads the file decides what fails closed.
"""
