"""What happened, afterwards: history files and the proxy's log, merged, counted and checked (spec/inspect.md "claw audit")."""
