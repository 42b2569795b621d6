"""Commands that a model writes: how they are contained, and the tools that run them.

See docs/tools-host.md.
"""
