"""All persistence: ports and records, and their backends ``sqlite`` and ``valkey``.

The only package with SQL or Lua.
"""
