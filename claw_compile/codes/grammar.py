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
    "The key belongs to the original system: it is carried into `pod-manifest.json`, and nothing here acts on it.",
    "Keep the key if something of yours reads that file; else remove it.",
)
NATIVE_IS_MEDIATED = warning(
    "native-is-mediated",
    "`delivery: native` is compiled, but what the agent gets is mediated delivery: the proxy has no MCP endpoint yet.",
    "Keep it for a later version, or write `delivery: mediated`.",
)
SPREAD_TWICE = error("spread-twice", "`...` stands twice in one list.", "Keep one of them.")
SPREAD_WITHOUT_DEFAULTS = error(
    "spread-without-defaults", "`...` stands for the pod's defaults, but there are none.", "Add them, or remove `...`."
)
UNUSED_DEFAULT = warning(
    "unused-default",
    "No agent takes these defaults of the pod.",
    "Leave the key out of an agent to inherit them (a list also splices them with `- ...`), or remove them.",
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
BAD_MODEL = error(
    "bad-model",
    "A model is `provider/model`, or the name alone of one of Anthropic's; each slot has one, and `fallback` a list.",
    "Write `primary: provider/model` and `fallback: [provider/model, …]`.",
)
UNKNOWN_PROVIDER = warning(
    "unknown-provider",
    "A model is of a provider that the proxy does not know by itself, so that it can't be asked.",
    "Correct the name, or define the provider in the proxy's `providers.json`.",
)
BAD_BUDGET = error(
    "bad-budget",
    "A budget has a `window` (a duration such as `24h`), and at least one of `limit-usd` and `max-requests`.",
    "Write both; to have no budget write `budget: null`.",
)
BAD_BLOCK = error("bad-block", "A context block has no text, or an `id` that another block has.", "Correct it.")
BLOCK_IS_CUT = warning(
    "block-is-cut",
    "The text of a context block is longer than its `max-chars`, and is cut.",
    "Shorten it, or raise it.",
)
COUNT_CONFLICT = error(
    "count-conflict",
    "What Compose says of a service does not go with `count`, or makes several containers share one identity.",
    "Remove `container_name`, `scale` or `deploy.replicas`; to have several agents write `count: N`.",
)
