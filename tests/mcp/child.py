"""A stdio MCP server for the tests of the wrapper, honest or hostile by the tool that is called. The standard library alone.

``python child.py [MODE]``: ``deaf`` reads nothing after the handshake, ``stubborn`` ends by no signal but SIGKILL.
"""

import json
import os
import signal
import subprocess
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else ""


def write(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def notify(method, **params):
    write({"jsonrpc": "2.0", "method": method, "params": params})


def sleeper(new_session):
    """A process that would outlive this one."""
    return subprocess.Popen(["sleep", "600"], start_new_session=new_session).pid


def call(name, arguments, params, request_id):
    """Return the result of a tool; None where there is no answer."""
    token = params.get("_meta", {}).get("progressToken")
    match name:
        case "echo":
            return {"arguments": arguments, "id": request_id, "meta": params.get("_meta")}
        case "environment":
            return dict(os.environ)
        case "pid":
            return {"pid": os.getpid(), "children": [sleeper(False), sleeper(True)] if arguments.get("fork") else []}
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            return None
        case "garbage":
            sys.stdout.write('not json\n{"jsonrpc":"2.0"}\n[]\n"\\ud800"\n{"jsonrpc":"2.0","id":987654,"result":{}}\n\n')
            return {"arguments": arguments}
        case "large":
            sys.stdout.write("x" * arguments["bytes"])
            sys.stdout.write("\n")
            sys.stdout.flush()
            return None
        case "ask":
            # Under the id of the very call that waits
            for method in ("ping", "roots/list", "sampling/createMessage"):
                write({"jsonrpc": "2.0", "id": request_id, "method": method})
            return {"answers": [json.loads(sys.stdin.readline()) for _ in range(3)]}
        case "progress":
            for step in (1, 2, 3):
                notify("notifications/progress", progressToken=token, progress=step)
            return {"token": token}
        case "log":
            notify("notifications/message", level="info", data=arguments.get("data"))
            return {}
        case "change":
            notify("notifications/tools/list_changed")
            return {}
        case "update":
            notify("notifications/resources/updated", uri=arguments["uri"])
            return {}
        case "flood":
            for number in range(arguments["lines"]):
                print(arguments.get("text", "line"), number, file=sys.stderr)
            return {}
        case "slow":
            time.sleep(arguments["seconds"])
            return {}
    return {"unknown": name}


def answer(message, seen):
    method, params = message["method"], message.get("params", {})
    if "id" not in message:
        seen.append(message)
        return
    if method == "initialize":
        info = {"name": "child", "version": "1.0"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "seen":
        result = {"seen": seen}
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments", {}), params, message["id"])
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
        message = json.loads(line)
        if "method" in message:
            answer(message, seen)
        if MODE == "deaf" and message.get("method") == "notifications/initialized":
            time.sleep(600)
    if MODE == "stubborn":
        time.sleep(600)


main()
