"""Where a descriptor is from, and whether it is still what the lock has."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

NO_SNAPSHOT = error(
    "no-snapshot",
    "A service wraps a stdio server, and nothing says which tools that has.",
    "Run `claw discover SERVICE` once and keep what it writes, or name a descriptor with `x-claw.describe-file`.",
)
STALE_SNAPSHOT = warning(
    "stale-snapshot",
    "A snapshot in `.claw-discovered/` is of another command, or of another image. That of a stdio server is used all the"
    " same; that of an image is passed over.",
    "Run `claw discover SERVICE` again.",
)
SOURCES_DISAGREE = warning(
    "sources-disagree",
    "Two descriptors of one service declare different tools; the one of higher rank counts.",
    "Bring the other one up to date, or remove it.",
)
BAD_DESCRIBE_LABEL = error(
    "bad-describe-label",
    "`LABEL claw.describe` names no file of the build context, or of the image.",
    "Correct the label, or name the descriptor with `x-claw.describe-file`.",
)
BAD_TOOLS_LIST = error(
    "bad-tools-list",
    "`.claw-tools.json` is not the whole result of MCP's `tools/list`.",
    'Write `{"tools": […]}` with the tools of every page.',
)
TOOL_LEFT_OUT = warning(
    "tool-left-out",
    "A tool of `.claw-tools.json` has a name that is not `[A-Za-z0-9_-]{1,48}`, and can't be granted.",
    "Rename the tool in its server, or do without it.",
)
TOOLS_LIST_WITHOUT_MCP = warning(
    "tools-list-without-mcp",
    "`.claw-tools.json` says which tools there are, and nothing says where the server listens: it is passed over.",
    "Add `x-claw.mcp: {path: /mcp}` to the service, or `LABEL claw.mcp=/mcp` to its Dockerfile.",
)
MCP_UNUSED = warning(
    "mcp-unused",
    "A service has `x-claw.mcp`, and its descriptor has no `mcp`: its tools are called by plain HTTP.",
    "Remove the key, or declare `mcp` in the descriptor.",
)
BAD_LOCK = error(
    "bad-lock",
    "`claw.lock` is damaged, was edited by hand, or is of a newer claw; nothing of it is believed.",
    "Restore it from version control, or delete it and run `claw lock` after a look at every tool.",
)
LOCK_DRIFT = error(
    "lock-drift",
    "The tools of a service are not those that `claw.lock` has: one was changed, is gone, or is granted without having been"
    " locked.",
    "Look at the difference; then `claw lock --accept SERVICE`, or `claw lock` for a service that is new.",
)
LOCK_OUTDATED = warning(
    "lock-outdated",
    "`claw.lock` has another descriptor of a service, with the same tools, or a service that is no longer described.",
    "Run `claw lock`.",
)
