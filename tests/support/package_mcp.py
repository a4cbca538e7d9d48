"""An MCP server of the package `mcp`, in a process of its own, whose tools have faults.

Run as a program, it prints its URL: `python -m tests.support.package_mcp FILE KIND`. FILE is where tools record calls,
and KIND whether answers are streams of events (`events`) or JSON (`json`).
"""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

HUGE = 64 * 1024  # characters
SCHEMA = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
OUTPUT = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}


@contextlib.contextmanager
def package_mcp_server(file: Path, kind: str) -> Iterator[str]:
    """Run the server during the block. Returns its URL."""
    command = [sys.executable, "-m", "tests.support.package_mcp", str(file), kind]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main(file: str, kind: str) -> None:
    """Serve until the process is ended."""
    import anyio
    import mcp.types as t
    import uvicorn
    from mcp.server.lowlevel import Server

    only_reads = t.ToolAnnotations(read_only_hint=True)
    tools = [
        t.Tool(
            name=name,
            description="Forecasts the weather.",
            input_schema=SCHEMA,
            output_schema=OUTPUT if name == "other_schema" else None,
            annotations=only_reads,
        )
        for name in ("forecast", "writes", "slow", "huge", "other_schema", "fails")
    ]

    async def list_tools(*_: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=tools)

    async def call_tool(_: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        place = (params.arguments or {}).get("place", "")
        text = {"huge": "x" * HUGE}.get(params.name, f"Sunny in {place}.")
        if params.name in ("writes", "slow"):
            with Path(file).open("a") as opened:
                opened.write(f"{params.name} {place}\n")
        if params.name == "slow":
            await anyio.sleep_forever()
        if params.name == "fails":
            raise RuntimeError("secret")
        if params.name == "other_schema":
            return t.CallToolResult(content=[], structured_content={"days": "many"})
        return t.CallToolResult(content=[t.TextContent(text=text)])

    server = Server("weather", on_list_tools=list_tools, on_call_tool=call_tool)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    application = server.streamable_http_app(json_response=kind == "json")
    uvicorn.Server(uvicorn.Config(application, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
