"""The Model Context Protocol (docs/spec/mcp.md): messages and events as values, the server side,
the wrapper, discovery.

It imports nothing of ours but the contract, so that the proxy, the wrapper and the commands share
it.
"""
