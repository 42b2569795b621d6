"""The tools host: files, shell, memory, web and messages for agents, served over MCP.

See docs/tools-host.md.
"""
