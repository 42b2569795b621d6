"""A dialect is a module of pure functions over wire JSON: it reads views, keeps the raw bytes, and edits by splicing.

``base.Dialect`` is what each of them provides. Rules live in ``judge``; a dialect decides nothing.
"""
