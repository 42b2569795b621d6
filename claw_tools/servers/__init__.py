"""MCP servers behind the host: commands and URLs. Their tools have the server's name in front."""
