"""What an agent is given beside its tools, and how the parts of a pod go together."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

UNKNOWN_FEED = error("unknown-feed", "No service of the pod declares a feed of that name.", "Correct the name.")
AMBIGUOUS_FEED = error(
    "ambiguous-feed", "Several services declare a feed of that name.", "Write it in full: `service/feed`."
)
NO_MEMORY = error(
    "no-memory", "The service that is to remember declares no `memory`.", "Declare it in the service's descriptor."
)
MEMORY_WITHOUT_CLLAMA = error(
    "memory-without-cllama",
    "An agent has a memory, its own or inherited, but no proxy that could ask it.",
    "Add `cllama: passthrough`, or suppress the memory with `memory: null`.",
)
NEEDS_CLLAMA = warning(
    "needs-cllama",
    "An agent has feeds, context blocks or a budget, its own or inherited, but no proxy that could act on them.",
    "Add `cllama: passthrough`, or suppress them with `null`.",
)
BAD_SKILL = error(
    "bad-skill",
    "The front matter of a skill is not closed, or has no `description`, by which the agent knows what it is for.",
    "Open the file with `---`, `description: …`, `---`; or leave the front matter out.",
)
SKILL_TWICE = error(
    "skill-twice", "Two skills of an agent have the same base name, by which it knows them.", "Rename one of the files."
)
SKILL_HIDDEN = warning(
    "skill-hidden",
    "A skill of an agent has the name of one that a service brings, and is read in its place.",
    "Rename the file, or leave it if that is meant.",
)
SKILL_MISSING = warning(
    "skill-missing",
    "A descriptor names a skill, and no such file is beside it or in the build context.",
    "Keep a copy of the skill beside the descriptor, or remove `skill`.",
)
SKILL_TELLS_ENDPOINTS = warning(
    "skill-tells-endpoints",
    "A skill tells the address or a path of a service that has tools. Agents call tools by name; the address is no use to them,"
    " and leads round the proxy where they can reach the service.",
    "Describe the tools by their names.",
)
UNKNOWN_SECRET = error(
    "unknown-secret",
    "No secret of the pod has that name.",
    "Declare it: `x-claw.secrets: {NAME: {env: VARIABLE}}`, or `{file: ./path}`.",
)
SEVERAL_PROXIES = error(
    "several-proxies", "The agents of a pod want proxies of several types, and a pod has one.", "Choose one type."
)
PROXY_ENV_CONFLICT = error(
    "proxy-env-conflict",
    "Two agents give one variable of the proxy different values, and the pod has one proxy.",
    "Give it one value, best in `cllama-defaults.env`.",
)
BAD_EGRESS = error(
    "bad-egress",
    "`CLLAMA_EGRESS` is neither `allow` nor `deny`: an empty variable must not decide what leaves the pod.",
    "Remove it, which denies, or say which of both it is.",
)
COUNTED_PROVIDER = error(
    "counted-provider",
    "A service with `count` is used by its name, and no container has that name: there are `name-0`, `name-1`, ….",
    "Name one of them, or make what provides a service of its own, without `count`.",
)
ORDINAL_COLLISION = error(
    "ordinal-collision",
    "`count` makes an agent with the name that another service has.",
    "Rename one of the two services.",
)
RESERVED_NAME = error(
    "reserved-name",
    "A service, network, volume or secret has a name that the compiler or the original system gives to those of its own.",
    "Rename it.",
)
SAME_HOST = error(
    "same-host",
    "Two services have names that differ in capitals only; as host names they are the same.",
    "Rename one of them.",
)
