"""``claw audit``: history files and the proxy's log, merged, counted and verified.

See docs/audit.md.
"""
