"""``claw discover``: what is asked of an MCP server, written, shown, kept back and refused."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = 'docs/spec/mcp.md, "Discovery"'

REQUIREMENTS: dict[str, Requirement] = {
    "discovery:stdio": Requirement(
        SPEC,
        "`claw discover SERVICE` starts the stdio command, asks for its tools and writes a descriptor that compiles.",
    ),
    "discovery:http": Requirement(
        SPEC,
        "A URL server is asked over streamable HTTP, in JSON and in events, and its session ended.",
    ),
    "discovery:eras": Requirement(
        SPEC, "The handshake comes first; a server that refuses it is asked in the stateless era."
    ),
    "discovery:pages": Requirement(
        SPEC,
        "Every page is asked for; 100 pages, 1,000 tools, 8 MiB and a cursor that comes back are the limits.",
    ),
    "discovery:deterministic": Requirement(
        SPEC, "The same tools give the same bytes, in any order and on any pages."
    ),
    "discovery:metadata": Requirement(
        SPEC,
        "`x-claw-discovery` has command, arguments or image, the server's name and version, and a digest; `${NAME}` stays.",
    ),
    "discovery:environment": Requirement(
        SPEC, "The child gets the shell's environment and the service's own, which wins."
    ),
    "discovery:changes": Requirement(
        SPEC, "Added, removed and changed tools are shown, with the parts that changed."
    ),
    "discovery:update": Requirement(
        SPEC, "A snapshot that differs is written over with `--update` only."
    ),
    "discovery:check": Requirement(
        SPEC, "`--check` writes nothing, and exits 1 for a difference and for a missing snapshot."
    ),
    "discovery:json": Requirement(SPEC, "`--json` prints the result for programs."),
    "discovery:progress": Requirement(
        SPEC, "A terminal shows what is waited for; a pipe does not."
    ),
    "discovery:ungrantable": Requirement(
        SPEC,
        "A tool that can't be granted stays in the snapshot with the reason, one warning each, and costs no other tool.",
    ),
    "discovery:secrets": Requirement(
        SPEC,
        "No credential is written or printed; what a server echoes of one is redacted, with a warning.",
    ),
    "discovery:auth": Requirement(
        SPEC, "A URL server gets the credential of the service: bearer, header or basic."
    ),
    "discovery:by-hand": Requirement(
        SPEC, "Members that only a person can have added to a snapshot are kept."
    ),
    "discovery:atomic": Requirement(SPEC, "A snapshot is replaced in one rename."),
    "discovery:pod": Requirement(
        SPEC, "Only what concerns the asked server must be sound in the pod."
    ),
    "discovery:time": Requirement(SPEC, "All of it takes at most 30 seconds, or `--timeout`."),
    "discovery:broken-servers": Requirement(
        SPEC,
        "A server that breaks is one bounded error with thing, place and remedy, exit 1, and nothing is written.",
    ),
    "discovery:no-orphan": Requirement(
        SPEC, "The child and all its descendants end in every way out."
    ),
    "discovery:server-requests": Requirement(
        SPEC,
        "A ping is answered, there are no roots, any other request is refused, and none of them is an answer.",
    ),
    "discovery:tools-file": Requirement(
        SPEC,
        "`.claw-tools.json` is read when no descriptor of higher rank exists; a tool of it that can't be granted is left out.",
    ),
    "discovery:source": Requirement(
        SPEC, "A compile says of each service from which of its sources the tools are."
    ),
}
