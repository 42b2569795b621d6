"""Dialects: modules of pure functions over wire JSON, which read views, keep the
raw bytes, and edit by splicing.

``base.Dialect`` is the interface. Rules live in ``core.judge``; a dialect decides nothing.
"""
