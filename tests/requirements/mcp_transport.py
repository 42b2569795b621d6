"""Managed calls over MCP: sessions, eras, messages, results, and what happens when a server fails."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_SPEC = "docs/spec/mcp.md, tools over MCP"

REQUIREMENTS: dict[str, Requirement] = {
    "mcp:runs": Requirement(
        _SPEC,
        "A tool with transport mcp is called over streamable HTTP, in a turn of either dialect.",
    ),
    "mcp:one-session": Requirement(
        _SPEC,
        "One session for each agent, service and credential: opened when first needed, kept, and shared by calls.",
    ),
    "mcp:agents-apart": Requirement(_SPEC, "Two agents share neither a session nor a connection."),
    "mcp:handshake": Requirement(
        _SPEC,
        "initialize, notifications/initialized, tools/call; each message has the session's id and the version.",
    ),
    "mcp:answers": Requirement(_SPEC, "A response may come as JSON or in a stream of events."),
    "mcp:gone-session": Requirement(
        _SPEC,
        "404 in a session that was known opens a new one and repeats the call; so for many calls at once.",
    ),
    "mcp:once": Requirement(
        _SPEC,
        "Nothing else is sent twice: not after 400, 5xx, a broken connection or a second 404.",
    ),
    "mcp:eras": Requirement(
        _SPEC,
        "The handshake comes first; a server that refuses it is asked without; this is remembered until it fails.",
    ),
    "mcp:stateless": Requirement(
        _SPEC,
        "Without handshake, each request has its _meta and the headers Mcp-Method, Mcp-Name and Mcp-Param.",
    ),
    "mcp:cancel": Requirement(
        _SPEC,
        "A call whose time is over is cancelled at the server: by a notification, or by closing.",
    ),
    "mcp:results": Requirement(
        _SPEC, "The model gets structuredContent if there is any, else the text of the content."
    ),
    "mcp:parts": Requirement(_SPEC, "Images, audio and resources are named with type and size."),
    "mcp:images": Requirement(
        "docs/spec/mcp.md, results",
        "Images within the tool's limit reach models whose protocol has images in results; a resumed turn has them too.",
    ),
    "mcp:exact": Requirement(_SPEC, "Arguments and results keep their numbers."),
    "mcp:tool-error": Requirement(
        _SPEC, "isError is tool_error, and so is input_required, which says so."
    ),
    "mcp:error-words": Requirement(
        _SPEC,
        "The text of an error with structured content is its message, and the structure its details; both share the limit.",
    ),
    "mcp:rpc-error": Requirement(
        _SPEC, "A JSON-RPC error is mcp_error, with its code and message."
    ),
    "mcp:truncation": Requirement(
        _SPEC, "A long answer is cut; original_bytes is the size of what would have been shown."
    ),
    "mcp:claw-id": Requirement(_SPEC, "claw_id as an argument is the authenticated agent."),
    "mcp:broken": Requirement(
        _SPEC,
        "A broken connection: request_failed if nothing was sent or the tool reads, else outcome_unknown.",
    ),
    "mcp:unreadable": Requirement(
        _SPEC, "An answer that is no result is a clear failure, and a write's outcome is unknown."
    ),
    "mcp:odd-answers": Requirement(
        _SPEC,
        "A result or error counts though absent members are null, half of a surrogate pair is in a text, or the code is no "
        "integer.",
    ),
    "mcp:turns": Requirement(
        _SPEC, "Others have their turn while a huge answer, or a flood of events, is read."
    ),
    "mcp:long-session": Requirement(
        _SPEC, "A session id may have 8,192 visible characters, as a JWT needs."
    ),
    "mcp:line-ends": Requirement(
        _SPEC, "An event is whole at its last line end: a line feed, a carriage return, or both."
    ),
    "mcp:refused-words": Requirement(
        _SPEC,
        "What a server says when it refuses a session stands in result and log, redacted and cut.",
    ),
    "mcp:server-requests": Requirement(
        _SPEC,
        "ping and roots/list are answered, other requests refused; an id equal to ours is not an answer.",
    ),
    "mcp:ignored": Requirement(
        _SPEC, "Notifications, answers to unknown ids and garbage in a stream are passed over."
    ),
    "mcp:ends": Requirement(
        _SPEC, "DELETE when idle, when the agent or its credential changes, and at the stop."
    ),
    "mcp:drift": Requirement(
        _SPEC,
        "A tool that the server changed is not called; one event names the difference; other tools work.",
    ),
    "mcp:list-bounded": Requirement(
        _SPEC,
        "A list is read up to 100 pages, 1,000 tools and 8 MiB; of a longer or broken one, the tools that were read can be "
        "called, and for any other the limit or fault is named.",
    ),
    "mcp:one-client": Requirement(
        "docs/spec/mcp.md, one client",
        "The proxy, discovery and the tools host judge the same answer of a server alike: refusals, eras, sessions and lists.",
    ),
    "mcp:bounded": Requirement(
        _SPEC, "No answer takes more memory than its limit, and none takes longer than its time."
    ),
    "mcp:statuses": Requirement(
        _SPEC, "401, 403, 5xx and redirects are results with their status."
    ),
    "mcp:credentials": Requirement(
        _SPEC, "The credential is sent with every message, and never comes back to the model."
    ),
    "mcp:records": Requirement(
        _SPEC, "History, log and flows show a call with server, session and protocol version."
    ),
    "mcp:records-resumed": Requirement(
        _SPEC,
        "A turn that is resumed records the session of a call that an earlier attempt made; older journals can be read.",
    ),
    "mcp:at-most-once": Requirement(
        _SPEC, "However the proxy dies, no call of an MCP tool that writes is made twice."
    ),
    "mcp:sse-reader": Requirement(
        _SPEC, "Events are read in pieces of any size, with any line end, and up to a limit."
    ),
    "mcp:messages": Requirement(
        _SPEC, "A message is read with its exact id and members, or it is refused in one sentence."
    ),
}
