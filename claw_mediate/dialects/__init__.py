"""The protocols of model APIs, each a module of pure functions over its JSON.

They read views, keep the raw bytes, and edit by splicing. ``base.Dialect`` is the interface. The
rules are in ``core.judge``: a dialect decides nothing.
"""
