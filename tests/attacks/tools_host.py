"""Attacks on the tools host."""

from __future__ import annotations

from tests.attacks.attack import Attack

TOOLS_HOST = (
    Attack(
        "Escaping from the workspace",
        "`..`, absolute paths, a sibling whose name begins alike, links, dangling links, hard "
        "links, a rename while the file is"
        " opened, pipes and devices, odd and hostile names",
        (
            "files:escapes",
            "files:race",
            "files:hard-link",
            "files:no-file",
            "files:odd-paths",
            "files:any-path",
            "memory:link",
        ),
    ),
    Attack(
        "Writing files that other programs run",
        (
            "`.git/hooks`, `.bashrc`, `.mcp.json`, in other spellings and through folders "
            "that are links"
        ),
        ("files:protected", "files:protected-place", "files:mode"),
    ),
    Attack(
        "Huge, torn and contended files",
        "a sparse gibibyte, binary content, kill -9 in a write, a full disk, fifty writers at once",
        (
            "files:huge",
            "files:binary",
            "files:killed",
            "files:full-disk",
            "files:edit-concurrent",
            "memory:concurrent",
        ),
    ),
    Attack(
        "Requests to the tools host's own network (SSRF)",
        (
            "private, loopback, link-local and metadata addresses in every spelling, IPv4 in "
            "IPv6, DNS rebinding, redirects"
        ),
        (
            *(
                "fetch:spellings",
                "fetch:addresses",
                "fetch:ipv4-in-ipv6",
                "fetch:metadata",
                "fetch:rebinding",
            ),
            *(
                "fetch:every-answer",
                "fetch:redirects",
                "fetch:url-tricks",
                "fetch:host-stays",
                "fetch:no-proxy",
            ),
        ),
    ),
    Attack(
        "Hostile web servers",
        "decompression bombs, endless and slow bodies, large heads, a lying length",
        ("fetch:bombs", "fetch:body-limit", "fetch:broken-body", "fetch:slow", "fetch:large-head"),
    ),
    Attack(
        "Using another principal's tools and files",
        "a tool outside of the globs, `_meta` that would widen them, a header in the place of a "
        "token, another's session,"
        " workspace, or memory",
        (
            *(
                "tools:visible-is-callable",
                "tools:hidden-as-unknown",
                "tools:never-wider",
                "tools:bad-meta",
                "host:principals",
            ),
            *(
                "host:sessions",
                "files:principals",
                "memory:principals",
                "toolspod:tokens",
                "toolspod:no-leak",
            ),
        ),
    ),
    Attack(
        "Hostile arguments",
        "wrong types, unknown and duplicate keys, NaN, numbers without end, deep nesting",
        ("tools:arguments", "tools:strict-json", "tools:errors-capped"),
    ),
    Attack(
        "Escaping from a command's containment",
        "other files, links, watches on folders of others, /proc, sockets of every family, "
        "signals, ptrace, namespaces,"
        " mounts, bpf, io_uring, TIOCSTI, another architecture, setuid programs, inherited "
        "descriptors and variables",
        (
            *(
                "tools:exec:form",
                "tools:exec:files",
                "tools:exec:proc",
                "tools:exec:sockets",
                "tools:exec:signals",
            ),
            "tools:exec:watches",
            *(
                "tools:exec:calls",
                "tools:exec:architecture",
                "tools:exec:setuid",
                "tools:exec:descriptors",
            ),
            *("tools:exec:environment", "tools:exec:no-landlock", "tools:exec:root-workspace"),
        ),
    ),
    Attack(
        "A command that does not end, or takes everything",
        "daemons, sessions of their own, ignored signals, held pipes, kill -9 of the host; fork "
        "and memory bombs; a file"
        " without end (many files: docs/tools-host.md); output without end",
        (
            *(
                "tools:exec:survivors",
                "tools:exec:kill-9",
                "tools:exec:cancellation",
                "tools:exec:timeout",
            ),
            *("tools:exec:bombs", "tools:exec:files-size", "tools:exec:output", "tools:exec:busy"),
        ),
    ),
    Attack(
        "An MCP server that poses as the tools host",
        (
            "the names `builtin` and `read_file`, `__` in a name, lists without end, lines of "
            "50 MB, an id of ours in its question"
        ),
        (
            "tools:no-shadowing",
            "tools:namespaces",
            "servers:bad-entries",
            "servers:huge-line",
            "servers:child-asks",
        ),
    ),
)
