"""A host of the exec tools in a process of its own: ``python exec_host.py SETTINGS``.

SETTINGS is JSON {forms, max_abi, settings}. Each line of standard input is {id, tool, workspace,
args}, and is answered by a line {id, result} or {id, error, message} when the call has ended;
``cancel`` instead of a tool cancels the call of that id. The first line says {form, reason,
launcher}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from claw_contract.toolhost_file import ExecSection, LimitsSection, ToolsSection
from claw_tools.errors import ToolError
from claw_tools.execution.containment import Containment, find_containment
from claw_tools.execution.tools import exec_tools
from claw_tools.tool import Tool


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def answer(tool: Tool, call: dict[str, Any]) -> None:
    try:
        say({"id": call["id"], "result": await tool.execute(call["args"])})
    except ToolError as error:
        say({"id": call["id"], "error": error.code, "message": error.message})
    except asyncio.CancelledError:
        say({"id": call["id"], "error": "cancelled"})


MAX_RESULT = LimitsSection().result_bytes


async def serve(containment: Containment, section: ToolsSection) -> None:
    reader, loop = asyncio.StreamReader(), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tools: dict[str, dict[str, Tool]] = {}
    calls: dict[str, asyncio.Task[None]] = {}
    while line := await reader.readline():
        call = json.loads(line)
        if call["tool"] == "cancel":
            calls[call["id"]].cancel()
            continue
        if call["tool"] == "launcher":
            say({"id": call["id"], "result": containment.launcher})
            continue
        root = call["workspace"]
        if root not in tools:
            tools[root] = {
                each.name: each for each in exec_tools(Path(root), section, containment, MAX_RESULT)
            }
        calls[call["id"]] = asyncio.create_task(answer(tools[root][call["tool"]], call))
    await asyncio.gather(*calls.values())


def main() -> None:
    given = json.loads(sys.argv[1])
    tools = ToolsSection(exec=ExecSection(enabled=True, **given["settings"]))
    with find_containment(tools.exec, given["forms"], given["max_abi"]) as containment:
        say(
            {
                "form": containment.form,
                "reason": containment.reason,
                "launcher": containment.launcher,
            }
        )
        asyncio.run(serve(containment, tools))


if __name__ == "__main__":
    main()
