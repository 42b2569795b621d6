"""The grammar of ``x-claw``."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

UNKNOWN_KEY = error("unknown-key", "A key under `x-claw` is not part of the grammar.", "Correct or remove it.")
MISSING_KEY = error("missing-key", "A key that is required is not there.", "Add it.")
WRONG_TYPE = error("wrong-type", "A value has another shape than its key takes.", "Give it the shape that is named.")
BAD_VALUE = error("bad-value", "A value is not one of those that its key takes.", "Choose one of those named.")
BAD_NAME = error(
    "bad-name", "A pod's name is `[a-z0-9][a-z0-9_-]*`: it names the Compose project.", "Choose such a name."
)
BAD_AGENT_ID = error(
    "bad-agent-id",
    "An agent's service name becomes a directory and half of a credential: `[a-z0-9][a-z0-9._-]{0,62}`, no `..`.",
    "Rename the service.",
)
BAD_SERVICE_NAME = error(
    "bad-service-name",
    "A service that provides tools needs a name that is a host name of at most 63 characters.",
    "Rename the service.",
)
NOT_AN_AGENT = error(
    "not-an-agent", "A key that only an agent can have is on a service without `agent`.", "Add `agent: ./AGENTS.md`."
)
NO_AGENTS = warning("no-agents", "The pod has no agent, so nothing is compiled.", "Give a service `x-claw.agent`.")
NOT_ACTED_ON = warning(
    "not-acted-on",
    "The key belongs to the grammar, but this version does not act on it.",
    "Remove the key, or keep it for a later version: it does no harm.",
)
SPREAD_TWICE = error("spread-twice", "`...` stands twice in one list.", "Keep one of them.")
SPREAD_WITHOUT_DEFAULTS = error(
    "spread-without-defaults", "`...` stands for the pod's defaults, but there are none.", "Add them, or remove `...`."
)
UNUSED_DEFAULT = warning(
    "unused-default",
    "No agent takes the pod's `tools-defaults`.",
    "Splice them with `- ...`, leave `tools` out to inherit them, or remove them.",
)
ALLOW_MISSING = error(
    "allow-missing",
    "A grant without `allow`, or with an empty one, grants nothing; to grant everything is said in full.",
    "Write `allow: all` or `allow: [tool, …]`; to take a default back write `tools: []`.",
)
ALL_MIXED_WITH_NAMES = error(
    "all-mixed-with-names", "`all` stands in a list of tool names.", "Write `allow: all`, or only names."
)
BAD_LIMIT = error("bad-limit", "A limit is a positive integer up to 2147483647.", "Write such a number.")
TOTAL_BELOW_PER_TOOL = error(
    "total-below-per-tool",
    "`total-timeout-ms` is less than `timeout-per-tool-ms`, so that no tool could use its time.",
    "Raise the one or lower the other; a limit that is left out takes its default.",
)
BAD_SURFACE = error(
    "bad-surface",
    "A surface is `service://X`, `volume://N [ro|rw]`, `host:///abs [ro|rw]`, `channel://P` or `egress://`.",
    "Write it in one of these forms.",
)
