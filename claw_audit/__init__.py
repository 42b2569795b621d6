"""``claw audit``: history files and the proxy's log, merged, counted and verified
(docs/audit.md).
"""
