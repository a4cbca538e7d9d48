"""The client of MCP servers that the operator names.

It speaks the Model Context Protocol over streamable HTTP, revisions 2025-03-26 to 2025-11-25. Only the command `mcp`
imports this package.
"""
