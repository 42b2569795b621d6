"""An MCP server on standard input and output, as honest or as broken as its first
argument, a JSON object, says.

``pages``: lists of tools. ``server``: its name and version. ``version``: of the protocol.
``fault``: one of the words below. ``child``: it starts a child in a session of its own, and writes
its id into that file. Run as a program: ``python stdio_server.py '{"pages": []}'``. It needs
nothing but Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FAULTS = (
    "silent",  # answers nothing
    "silent-list",  # answers the handshake only
    "exit",  # ends at the first request, with words on standard error
    "deaf",  # as silent, and it lives on when its input ends and when it is asked to end
    "garbage",  # writes lines that are no messages, and nothing else
    "banner",  # writes such a line, and is honest then
    "half",  # ends within a message
    "huge",  # writes a line without end
    "endless",  # always another page
    "repeats",  # leads back to a page
    "no-list",  # answers tools/list without tools
    "bad-cursor",  # a cursor that is a number
    "refuses",  # refuses initialize
    "refuses-list",  # refuses tools/list
    "stateless",  # knows the stateless era only
    "asks",  # asks the client, with ids equal to the client's, and answers then
)


def main() -> None:
    script: dict[str, Any] = json.loads(sys.argv[1])
    if "pid" in script:
        Path(script["pid"]).write_text(str(os.getpid()), encoding="utf-8")
    if script.get("fault") == "deaf":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in script:
        silent = subprocess.DEVNULL
        child = subprocess.Popen(
            ["sleep", "600"], stdin=silent, stdout=silent, stderr=silent, start_new_session=True
        )
        Path(script["child"]).write_text(str(child.pid), encoding="utf-8")
    server = Server(script)
    for line in sys.stdin:
        server.read(json.loads(line))
    while script.get("fault") == "deaf":
        time.sleep(60)


class Server:
    def __init__(self, script: dict[str, Any]) -> None:
        self.script, self.fault, self.pages = (
            script,
            script.get("fault", ""),
            script.get("pages", [[]]),
        )
        self.asked = 0

    def read(self, message: dict[str, Any]) -> None:
        if "log" in self.script:
            with Path(self.script["log"]).open("a", encoding="utf-8") as log:
                log.write(json.dumps(message) + "\n")
        if "id" in message and "method" in message and not self.breaks(message):
            self.answer(message)

    def breaks(self, message: dict[str, Any]) -> bool:
        """Do what the fault asks for; False where the message is to be answered."""
        match self.fault, message["method"]:
            case ("silent" | "deaf", _) | ("silent-list", "tools/list"):
                pass
            case "exit", _:
                sys.stderr.write(
                    Path(self.script["words"]).read_text()
                    if "words" in self.script
                    else "no configuration\n"
                )
                sys.stderr.flush()
                os._exit(3)
            case "garbage", _:
                print(
                    Path(self.script["words"]).read_text()
                    if "words" in self.script
                    else "hello " * 20,
                    flush=True,
                )
            case "half", _:
                sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "res')
                sys.stdout.flush()
                os._exit(0)
            case "huge", _:
                sys.stdout.write("x" * (9 * 1024 * 1024))
            case ("refuses", "initialize") | ("refuses-list", "tools/list"):
                self.send(
                    id=message["id"],
                    error={"code": -32603, "message": self.script.get("words", "no licence")},
                )
            case "stateless", "initialize":
                self.send(
                    id=message["id"],
                    error={"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}},
                )
            case _:
                return False
        return True

    def answer(self, message: dict[str, Any]) -> None:
        if self.fault == "banner":
            print("Listening on stdio!", flush=True)
        if self.fault == "asks":
            self.ask(message["id"])
        match message["method"]:
            case "initialize":
                version = self.script.get("version", "2025-11-25")
                information = {**self.script.get("server", {"name": "listed", "version": "1.0"})}
                result: Any = {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": information,
                }
            case "tools/list":
                result = self.page(message.get("params", {}))
            case _:
                self.send(id=message["id"], error={"code": -32601, "message": "unknown"})
                return
        self.send(id=message["id"], result=result)

    def ask(self, request_id: Any) -> None:
        """A request of ours with an id of theirs is no answer to them."""
        for method in ("ping", "roots/list", "sampling/createMessage"):
            self.send(id=request_id, method=method)
            answer = json.loads(sys.stdin.readline())
            with Path(self.script["answers"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps({method: answer}) + "\n")
        self.send(
            method="notifications/progress", params={"progressToken": request_id, "progress": 1}
        )
        self.send(id=99, result={"tools": [{"name": "of_nobody"}]})

    def page(self, params: dict[str, Any]) -> dict[str, Any]:
        number = int(params.get("cursor") or 0)
        if self.fault == "endless":
            return {"tools": [], "nextCursor": str(number + 1)}
        if self.fault == "no-list":
            return {"tools": {"a": 1}}
        result: dict[str, Any] = {"tools": self.pages[number]}
        if number + 1 < len(self.pages):
            result["nextCursor"] = str(number + 1)
        if self.fault == "repeats":
            result["nextCursor"] = "0"
        if self.fault == "bad-cursor":
            result["nextCursor"] = 5
        if self.fault == "stateless":
            assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
            information = self.script.get("server", {"name": "listed", "version": "1.0"})
            result |= {
                "resultType": "complete",
                "_meta": {"io.modelcontextprotocol/serverInfo": information},
            }
        return result

    def send(self, **members: Any) -> None:
        text = json.dumps({"jsonrpc": "2.0", **members})
        for name in self.script.get(
            "echoes", []
        ):  # what stands in the environment, as a server may put it anywhere
            text = text.replace(f"<{name}>", os.environ.get(name, "nothing"))
        print(text, flush=True)


if __name__ == "__main__":
    main()
