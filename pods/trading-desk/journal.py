"""journal, the desk's notes: an MCP server on standard input and output.

`claw mcp-stdio` serves it over HTTP.

An entry is one JSON line in the file JOURNAL_FILE.
Its author is `claw_id`, which the proxy sets from the authenticated agent; a model cannot choose
it.

    JOURNAL_FILE=journal.jsonl claw mcp-stdio -- python3 journal.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def add_entry(claw_id: str, entry: str) -> Json:
    line = {"author": claw_id, "entry": entry}
    with Path(os.environ["JOURNAL_FILE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return line


def find_entries(word: str) -> Json:
    path = Path(os.environ["JOURNAL_FILE"])
    entries = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    return {"entries": [entry for entry in entries if word.lower() in entry["entry"].lower()][-20:]}


def tool(name: str, description: str, *, reads: bool, **parameters: str) -> Json:
    texts = {
        key: {"type": "string", "minLength": 1, "description": text}
        for key, text in parameters.items()
    }
    schema = {"type": "object", "properties": texts, "required": list(texts)}
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": reads},
    }


FUNCTIONS = {"add_entry": add_entry, "find_entries": find_entries}
TOOLS = [
    tool(
        "add_entry",
        "Add an entry to the journal",
        reads=False,
        claw_id="Agent identifier",
        entry="One sentence",
    ),
    tool(
        "find_entries",
        "Find the journal's latest entries",
        reads=True,
        word="A word of the entry, such as a symbol",
    ),
]


def respond(method: str, params: Json) -> Json:
    """Return the member `result` or `error` of the response to a request."""
    match method:
        case "initialize":
            server = {"name": "desk-journal", "version": "0.1.0"}
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "serverInfo": server,
                    "capabilities": {"tools": {}},
                }
            }
        case "ping":
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS}}
        case "tools/call":
            return call(params.get("name"), params.get("arguments") or {})
    return {"error": {"code": -32601, "message": f"unknown method: {method}"}}


def call(name: object, arguments: Json) -> Json:
    function = FUNCTIONS.get(str(name))
    if function is None:
        return {"error": {"code": -32602, "message": f"unknown tool: {name}"}}
    try:
        result = function(**{key: str(value) for key, value in arguments.items()})
    except (TypeError, OSError) as error:
        return {"result": {"isError": True, "content": [{"type": "text", "text": str(error)}]}}
    return {
        "result": {
            "structuredContent": result,
            "content": [{"type": "text", "text": json.dumps(result)}],
        }
    }


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            response = respond(message["method"], message.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **response}), flush=True)


if __name__ == "__main__":
    main()
