"""A stdio MCP server for the tests of the wrapper, honest or hostile by the tool that is called.

The standard library alone.

``python child.py [MODE]``: ``deaf`` reads nothing after the handshake, ``stubborn`` ends by no
signal but SIGKILL.
"""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

MODE = sys.argv[1] if len(sys.argv) > 1 else ""


def write(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def notify(method, **params):
    write({"jsonrpc": "2.0", "method": method, "params": params})


def sleeper(new_session):
    """A process that would outlive this one."""
    return subprocess.Popen(["sleep", "600"], start_new_session=new_session).pid


def die(_call):
    os.kill(os.getpid(), signal.SIGKILL)


def ask(call):
    """Asks back, under the id of the very call that waits."""
    for method in ("ping", "roots/list", "sampling/createMessage"):
        write({"jsonrpc": "2.0", "id": call.id, "method": method})
    return {"answers": [json.loads(sys.stdin.readline()) for _ in range(3)]}


def garbage(call):
    sys.stdout.write(
        'not json\n{"jsonrpc":"2.0"}\n[]\n"\\ud800"\n{"jsonrpc":"2.0","id":987654,"result":{}}\n\n'
    )
    sys.stdout.flush()
    return {"arguments": call.arguments}


def large(call):
    for _ in range(call.arguments["mebibytes"]):
        sys.stdout.write("x" * (1 << 20))
    sys.stdout.write("\n")
    sys.stdout.flush()


def progress(call):
    token = call.params.get("_meta", {}).get("progressToken")
    for step in (1, 2, 3):
        notify("notifications/progress", progressToken=token, progress=step)
    return {"token": token}


def flood(call):
    for number in range(call.arguments["lines"]):
        print(call.arguments.get("text", "line"), number, file=sys.stderr)
    return {}


def grow(call):
    """Has one tool more from now on."""
    GROWN.append(call.arguments["name"])
    notify("notifications/tools/list_changed")
    return {}


def fork(_call):
    return {"pid": os.getpid(), "children": [sleeper(False), sleeper(True)]}


TOOLS = {
    "echo": lambda call: {
        "arguments": call.arguments,
        "id": call.id,
        "meta": call.params.get("_meta"),
    },
    "environment": lambda _: dict(os.environ),
    "fork": fork,
    "die": die,
    "hang": lambda _: None,
    "garbage": garbage,
    "large": large,
    "ask": ask,
    "progress": progress,
    "log": lambda call: (
        notify("notifications/message", level="info", data=call.arguments.get("data")) or {}
    ),
    "change": lambda call: notify(f"notifications/{call.arguments['kind']}/list_changed") or {},
    "update": lambda call: (
        notify("notifications/resources/updated", uri=call.arguments["uri"]) or {}
    ),
    "flood": flood,
    "grow": grow,
    "line": lambda call: {"content": [{"type": "text", "text": call.line}]},
    "result": lambda call: call.arguments["result"],
    "half": lambda _: {"content": [{"type": "text", "text": "cut \ud83d"}]},
    "slow": lambda call: time.sleep(call.arguments["seconds"]) or {},
}
"""By name; one that returns None gives no answer."""
GROWN = []


def answer(message, seen):
    method, params = message["method"], message.get("params", {})
    if "id" not in message:
        seen.append(message)
        return
    if method == "initialize":
        info = {"name": "child", "version": "1.0"}
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
        result["instructions"] = "Be brief."
    elif method == "seen":
        result = {"seen": seen}
    elif method == "tools/list":
        result = {
            "tools": [
                {"name": name, "inputSchema": {"type": "object"}} for name in [*TOOLS, *GROWN]
            ]
        }
    elif method == "tools/call":
        line, arguments = message["line"], params.get("arguments", {})
        call = SimpleNamespace(params=params, arguments=arguments, id=message["id"], line=line)
        result = TOOLS[params["name"]](call)
        if result is None:
            seen.append(message)
    elif method in {"resources/subscribe", "resources/unsubscribe", "logging/setLevel"}:
        seen.append(message)
        result = {}
    else:
        error = {"code": -32601, "message": f"no {method}", "data": {"exact": 2**70}}
        write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return
    if result is not None:
        write({"jsonrpc": "2.0", "id": message["id"], "result": result})


def main():
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    seen = []
    for line in sys.stdin:
        message = json.loads(line) | {"line": line}
        if "method" in message:
            answer(message, seen)
        if MODE == "deaf" and message.get("method") == "notifications/initialized":
            time.sleep(600)
    if MODE == "stubborn":
        time.sleep(600)


main()
