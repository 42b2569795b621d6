"""Who may do what."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

UNKNOWN_SERVICE = error("unknown-service", "No service of the pod has that name.", "Correct the name.")
UNKNOWN_AGENT = error(
    "unknown-agent",
    "No agent of the pod has that name; with `count` they are `name-0`, `name-1` ….",
    "Correct the name.",
)
UNKNOWN_TOOL = error("unknown-tool", "The service's descriptor declares no tool of that name.", "Correct the name.")
NO_DESCRIPTOR = error(
    "no-descriptor",
    "A service whose tools are granted has no descriptor.",
    "Name one with `x-claw.describe-file`, keep a `.claw-describe.json` in the service's build context (one outside of the"
    " pod's directory is not looked into), or run `claw discover SERVICE` once.",
)
NO_TOOLS = error("no-tools", "A service whose tools are granted declares none.", "Declare them in its descriptor.")
PRESENTED_NAME = warning(
    "presented-name",
    "Models see a tool as `service__tool`, in at most 64 characters of `[A-Za-z0-9_-]`. Where that is too long, or two tools of"
    " an agent would have one name, it is cut, and 8 hex digits of the tool's full name follow.",
    "Give the service or the tool a shorter name, or one of its own; or leave it: it works.",
)
TOOLS_WITHOUT_CLLAMA = error(
    "tools-without-cllama",
    "An agent has tools, its own or inherited, but no proxy that could run them.",
    "Add `cllama: passthrough`, or suppress the tools with `tools: []`.",
)
WRITE_GRANTED_BY_ALL = warning(
    "write-granted-by-all",
    "`allow: all` grants tools that change things, and will grant those that the service adds later.",
    "Name the tools, or take some out with `deny: [tool, …]`.",
)
GRANT_BESIDE_SURFACE = warning(
    "grant-beside-surface",
    "The agent reaches the service directly, and so can go round the proxy that governs its tools.",
    "Remove the surface: a grant works without one.",
)
GRANT_WITHOUT_SURFACE = error(
    "grant-without-surface",
    "The pod has `strict-surfaces: true`, and the agent has a grant on a service without a surface on it.",
    "Add `service://…` to the agent's `surfaces`, or remove `strict-surfaces`.",
)
