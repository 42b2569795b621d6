"""MCP servers behind the host: commands and URLs, whose tools are the host's under
the server's name.
"""
