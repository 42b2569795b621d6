"""``claw mcp-stdio``: one stdio MCP server, served over HTTP; and the server side of MCP over HTTP."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_WRAPPER, _SERVER = (
    "docs/spec/mcp.md, the stdio wrapper",
    "docs/spec/mcp.md, the stdio wrapper, HTTP",
)

REQUIREMENTS: dict[str, Requirement] = {
    "wrapper:both-eras": Requirement(
        _SERVER,
        "The wrapper speaks 2024-11-05 to 2025-11-25 in sessions, and 2026-07-28 without, to a server of the former.",
    ),
    "wrapper:own-ids": Requirement(
        _WRAPPER, "Many sessions share one server; each has its own request ids."
    ),
    "wrapper:exact": Requirement(
        _WRAPPER, "Ids, params, results and errors pass unchanged, integers above 2^53 included."
    ),
    "wrapper:progress": Requirement(
        _WRAPPER,
        "Progress reaches the request that asked for it, under its own token, and no other session.",
    ),
    "wrapper:broadcast": Requirement(
        _WRAPPER, "Log messages and list_changed go to every session."
    ),
    "wrapper:subscriptions": Requirement(
        _WRAPPER,
        "A resource stays subscribed as long as one session wants it; restarts do not end that.",
    ),
    "wrapper:cancel": Requirement(
        _WRAPPER,
        "A call that is cancelled or timed out ends, and the server gets notifications/cancelled under its own id.",
    ),
    "wrapper:asks": Requirement(
        _WRAPPER,
        "What a server asks is no answer, whatever its id: ping and roots/list are answered, all else is -32601.",
    ),
    "wrapper:bad-output": Requirement(
        _WRAPPER, "Output that is no JSON-RPC is logged and skipped."
    ),
    "wrapper:long-line": Requirement(
        _WRAPPER, "A line above 8 MiB ends that run of the server, in bounded memory."
    ),
    "wrapper:unread-input": Requirement(
        _WRAPPER, "A server that does not read its input costs bounded memory."
    ),
    "wrapper:restart": Requirement(
        _WRAPPER,
        "A server that ends is started again after 0.2 s, doubling to 30 s; calls under way get -32000 at once, "
        "new ones wait up to 10 s, and sessions survive.",
    ),
    "wrapper:health": Requirement(
        _WRAPPER, "/health and /healthz are 200 while the server answers, else 503."
    ),
    "wrapper:no-orphan": Requirement(
        _WRAPPER,
        "However the wrapper or the server ends, kill -9 included, no process of the server is left, nor a zombie.",
    ),
    "wrapper:stderr": Requirement(
        _WRAPPER,
        "The server's standard error goes to the log line by line, bounded and without credentials.",
    ),
    "wrapper:log": Requirement(
        _WRAPPER, "The wrapper's log is JSON lines, each as claw_contract.log.wrapper has it."
    ),
    "wrapper:log-cut": Requirement(
        _WRAPPER,
        "A line that is cut holds no part of a credential at its end: it is searched for beyond the cut.",
    ),
    "wrapper:log-characters": Requirement(
        _WRAPPER,
        "No character in a server's words ends a line of the log, moves a terminal's cursor or turns text around.",
    ),
    "wrapper:faults-limited": Requirement(
        _WRAPPER,
        "Faults that anybody can cause, such as a request that is no HTTP, are at most 20 lines a second.",
    ),
    "wrapper:subscriptions-bounded": Requirement(
        _WRAPPER,
        "Subscriptions are bounded in their number and length, since they are kept and asked for again.",
    ),
    "server:connections": Requirement(
        _SERVER,
        "Connections that show no token have a fixed share; when it is full the oldest of them is closed, with one line of "
        "the log a minute, and callers with a token are served.",
    ),
    "server:callers": Requirement(
        _SERVER,
        "Where all connections have shown a token, the caller with the most loses one, and no other is kept out.",
    ),
    "server:health-details": Requirement(
        _SERVER,
        "Only on the machine itself does /health say more than whether all is well, and never to a page.",
    ),
    "server:idle-connections": Requirement(
        _SERVER,
        "A connection on which no request is answered is closed after 30 s, whatever is sent on it meanwhile.",
    ),
    "server:unread-answers": Requirement(
        _SERVER, "An answer that nobody reads for 60 s is dropped with its connection."
    ),
    "server:long-bodies": Requirement(
        _SERVER,
        "Bodies above 64 KiB have 128 MiB together, until they are answered, and a caller half of what others leave; one more "
        "is 503, and short ones pass.",
    ),
    "server:refused-unread": Requirement(
        _SERVER,
        "A request of a host or origin that is not allowed, or whose body has two lengths, is refused unread.",
    ),
    "wrapper:environment": Requirement(
        _WRAPPER, "The server gets the container's environment, without the wrapper's own settings."
    ),
    "wrapper:settings": Requirement(
        _WRAPPER,
        "Command, address and limits come from CLAW_MCP_*, LISTEN_ADDR, the original's names, or the command line.",
    ),
    "wrapper:token": Requirement(
        _WRAPPER, "With CLAW_MCP_STDIO_AUTH_TOKEN a request needs that bearer."
    ),
    "wrapper:hosts": Requirement(
        _SERVER,
        "Host and Origin are checked: loopback and CLAW_MCP_ALLOWED_HOSTS pass, others are 421 and 403.",
    ),
    "wrapper:body-size": Requirement(
        _SERVER, "A body above CLAW_MCP_MAX_BODY, 4 MiB by default, is 413."
    ),
    "wrapper:sessions": Requirement(
        _SERVER,
        "A session belongs to its principal and ends by DELETE, when idle, or where there are too many.",
    ),
    "wrapper:streams": Requirement(
        _SERVER,
        "A principal has 128 streams on which it only listens; one more ends the oldest, and sessions and requests have room.",
    ),
    "wrapper:http": Requirement(
        _SERVER, "Each request that is not sound has its HTTP status and its JSON-RPC code."
    ),
    "wrapper:json-or-events": Requirement(
        _SERVER,
        "An answer is JSON, or a stream of events where something precedes it, it takes long, or only that is accepted.",
    ),
    "wrapper:compiled": Requirement(
        _WRAPPER,
        "claw compile writes command, arguments, address, allowed hosts, entry point and health check of a wrapper.",
    ),
    "wrapper:image": Requirement(
        _WRAPPER, "The Dockerfile has the wrapper's image, whose entry point is claw mcp-stdio."
    ),
}
