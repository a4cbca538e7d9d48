"""The records that `serve --demo` imports, and the MCP server and the canned assistant that it starts.

`make` generates the records, from a package and `story.toml`.
"""

from pathlib import Path

RECORDS = Path(__file__).with_name("records.jsonl")
MCP_PATH, ASSISTANT_PATH = "/mcp", "/v1"  # on the demo's server
