"""Commands that a model writes: how they are contained, and the tools that run them
(docs/tools-host.md).
"""
