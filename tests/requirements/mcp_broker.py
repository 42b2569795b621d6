"""The MCP broker, and ``delivery: native``: each sentence of the broker's section, and of its rulings."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_BROKER = "docs/spec/mcp.md, the broker"

REQUIREMENTS: dict[str, Requirement] = {
    "broker:endpoint": Requirement(
        _BROKER, "The proxy serves /mcp/<agent> on its own port, with POST, GET and DELETE."
    ),
    "broker:list": Requirement(
        _BROKER,
        "tools/list gives exactly the agent's native tools: by alias, with the schema that a model would see.",
    ),
    "broker:delivery": Requirement(
        _BROKER,
        "delivery stands on the tool's entry in tools.json; the broker serves native tools, and only those.",
    ),
    "broker:not-injected": Requirement(
        _BROKER, "A native tool is not added to requests for the model, and history says so."
    ),
    "broker:call": Requirement(
        _BROKER,
        "tools/call runs through the executor of mediated calls: credentials, claw_id, key, time limit.",
    ),
    "broker:schema": Requirement(
        _BROKER,
        "Arguments are read and held to the schema as a model's are; what does not fit is not run.",
    ),
    "broker:limits": Requirement(
        _BROKER, "A call has the time and the size that a mediated call of the agent has."
    ),
    "broker:concurrency": Requirement(
        _BROKER,
        "At most max_parallel calls of an agent run at once; others wait, and too many are refused.",
    ),
    "broker:budget": Requirement(
        _BROKER, "A budget counts requests to models: a native call is neither counted nor refused."
    ),
    "broker:journal": Requirement(
        _BROKER,
        "A write is journaled before it is sent and after it was answered, and not sent if it can't be.",
    ),
    "broker:answer": Requirement(
        _BROKER, "Success is the data as text and, where it is an object, as structuredContent."
    ),
    "broker:over-mcp": Requirement(
        _BROKER,
        "A call of a tool over MCP has the images of its result, and its server, session and protocol in history.",
    ),
    "broker:failure": Requirement(_BROKER, "Failure is isError, with {code, message}."),
    "broker:cut": Requirement(_BROKER, "A cut result says so, with the true size."),
    "broker:redacted": Requirement(
        _BROKER, "No credential of the pod is in an answer, in history or in the log."
    ),
    "broker:eras": Requirement(
        _BROKER, "Both protocol eras are served, the handshake and the stateless one."
    ),
    "broker:equal-calls": Requirement(
        _BROKER, "Equal calls run each time, since there is no turn."
    ),
    "broker:same-id": Requirement(
        _BROKER,
        "The same JSON-RPC id in the same session again gets the recorded answer, in bounded memory.",
    ),
    "broker:identity": Requirement(
        _BROKER,
        "The client is the agent whose bearer it sends: none is 401, another agent's path is 403.",
    ),
    "broker:session-owner": Requirement(_BROKER, "A session of another agent is not found: 404."),
    "broker:origin": Requirement(_BROKER, "A request with an Origin that is not allowed is 403."),
    "broker:any-host": Requirement(_BROKER, "Any Host is served."),
    "broker:history": Requirement(
        _BROKER,
        "Each native call is one line of history with its own turn id: no usage, no model, a trace of one call.",
    ),
    "broker:log": Requirement(
        _BROKER, "Each native call has its events in the log, and metrics count it."
    ),
    "broker:audit": Requirement(
        _BROKER, "claw audit lists, shows and verifies native calls beside mediated ones."
    ),
    "broker:view": Requirement(
        _BROKER, "An observer sees a native call as a turn with its hidden request."
    ),
    "broker:disconnect": Requirement(
        _BROKER,
        "A client that leaves neither repeats nor loses a write; a read that is canceled ends.",
    ),
    "broker:drain": Requirement(
        _BROKER,
        "At the stop running calls have their time; what is cut off then is recorded as such.",
    ),
    "broker:reload": Requirement(
        _BROKER,
        "After a reload of the agent its list of tools is the new one, and clients hear of it.",
    ),
    "broker:list-changed": Requirement(
        _BROKER,
        "A client that only listens hears of a change of its own tools, and of no other, without sending a request.",
    ),
    "broker:hostile": Requirement(
        _BROKER,
        "Garbage, 10,000 sessions and large bodies cost bounded memory and a clear refusal.",
    ),
    "broker:client-files": Requirement(
        _BROKER,
        "For delivery: native, claw compile writes the configuration of the runner's MCP client in the form of its type.",
    ),
    "broker:client-token": Requirement(
        _BROKER,
        "The configuration holds no token but the name of a variable, and is the same on every machine.",
    ),
    "broker:client-claude": Requirement(_BROKER, "Claude Code gets ENABLE_TOOL_SEARCH=false."),
    "broker:client-names": Requirement(
        _BROKER, "The server's name keeps mcp__<server>__<tool> below 64 characters."
    ),
    "broker:client-mounts": Requirement(
        _BROKER,
        "The configuration is mounted like the agent's other files, in Compose and Kubernetes, and claw plan names it.",
    ),
}
