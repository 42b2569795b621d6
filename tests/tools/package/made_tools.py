"""A third party's package: a provider with a tool for each thing that a test asks of a host."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from claw_tools.provider import ToolDefinition

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}


class MadeProvider:
    """A ``ToolProvider``."""

    namespace = "made"

    async def list_tools(self) -> list[ToolDefinition]:
        names = ("echo", "environ", "fail", "noise", "wait")
        annotations = {"readOnlyHint": True}
        return [
            ToolDefinition(name, f"The tool {name}.", TEXT, annotations if name == "echo" else {})
            for name in names
        ]

    async def call_tool(self, name: str, args: dict[str, Any]) -> Any:
        return await getattr(self, name)(**args)

    async def echo(self, text: str = "") -> Any:
        return {"text": text}

    async def environ(self, text: str = "") -> Any:
        return {"value": os.environ.get(text)}

    async def fail(self, text: str = "") -> Any:
        raise ValueError(text)

    async def noise(self) -> Any:
        """Read standard input and write to standard output, in all ways that a tool might."""
        print("noise of print", flush=True)
        os.write(1, b"noise of write\n")
        child = await asyncio.create_subprocess_exec("sh", "-c", "cat; echo noise of a child")
        return {
            "read": os.read(0, 100).decode() + sys.stdin.read(),
            "exit_code": await child.wait(),
        }

    async def wait(self, text: str) -> Any:
        """Run until cancelled; the file ``text`` says how it goes."""
        note = Path(text).write_text
        note("runs")
        try:
            await asyncio.Event().wait()
        finally:
            note("ended")
