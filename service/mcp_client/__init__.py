"""The client of MCP servers that the operator names, whose tools the assistant may use.

It speaks the Model Context Protocol over streamable HTTP, revisions 2025-03-26 to 2025-11-25. This package is imported
only if a server is named, and by the command `mcp`.
"""
