"""MCP servers behind the tools host (docs/spec/tools-host.md "Servers")."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = 'docs/spec/tools-host.md, "Servers"'

REQUIREMENTS: dict[str, Requirement] = {
    "servers:stdio": Requirement(
        SPEC, "A command that speaks MCP on stdio offers its tools, and runs calls of them."
    ),
    "servers:url": Requirement(
        SPEC,
        "A URL offers its tools in both eras, in JSON and in events; the handshake is tried first.",
    ),
    "servers:down-at-start": Requirement(
        SPEC,
        "A server that is down stops nobody: it is tried again with backoff, and its tools are told when it is there.",
    ),
    "servers:restart": Requirement(
        SPEC,
        "Calls in flight at a server that dies fail at once and say that they may have taken effect; it is started again, and"
        " its tools stay.",
    ),
    "servers:isolation": Requirement(SPEC, "A server that crashes in a loop disturbs no other."),
    "servers:list-changed": Requirement(
        SPEC, "A list of tools that has changed is read anew, and the change told."
    ),
    "servers:pages": Requirement(SPEC, "A list is read in pages, within the limits of discovery."),
    "servers:not-repeated": Requirement(
        SPEC, "Nothing is sent twice, but once more after 404 in a session that was known."
    ),
    "servers:timeout": Requirement(
        SPEC, "A call that takes too long, or whose caller leaves, is cancelled at the server."
    ),
    "servers:concurrent": Requirement(SPEC, "Calls run at once over one session."),
    "servers:environment": Requirement(
        SPEC,
        "A child gets HOME, LANG, LOGNAME, PATH, SHELL, TERM, USER, TMPDIR and what is declared; no secret of the host.",
    ),
    "servers:stderr": Requirement(
        SPEC, "What a child writes to standard error is in the log, bounded."
    ),
    "servers:secrets": Requirement(
        SPEC,
        "A declared variable or header is in no result, error or line of the log; it is redacted before the text is cut.",
    ),
    "servers:huge-line": Requirement(
        SPEC, "A line of 50 MB ends that run of the server, and nothing else."
    ),
    "servers:child-asks": Requirement(
        SPEC,
        "A request of the server with the id of a call is answered, and is no answer; what is no message is skipped.",
    ),
    "servers:no-orphan": Requirement(
        SPEC, "No process of a server outlives the host's run of it, whatever the server does."
    ),
    "servers:credentials": Requirement(
        SPEC,
        "A credential goes to its URL and nowhere else; one that is refused is in the log with the remedy.",
    ),
    "servers:exact-numbers": Requirement(SPEC, "Arguments arrive with their exact numbers."),
    "servers:results": Requirement(
        SPEC,
        "A result is the structured content, else the text; other parts are named with type and size; failures are errors.",
    ),
    "servers:bad-entries": Requirement(
        SPEC, "A tool of a list that can't be used is left out, and costs no other."
    ),
    "servers:internal": Requirement(
        SPEC,
        "Tools of an internal server are there for requests whose globs name them, within those of the principal.",
    ),
}
