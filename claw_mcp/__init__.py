"""The Model Context Protocol: messages as values, the server side, the wrapper, discovery.

Specification: docs/spec/mcp.md.

It imports nothing of ours but the contract, so that the proxy, the wrapper and the commands share
it.
"""
