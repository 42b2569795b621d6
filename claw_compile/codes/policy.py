"""Codes about policy: grants, credentials, networks, and what an agent has beside its tools."""

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
    "The agent reaches the service directly, and can bypass the proxy that governs its tools.",
    "Remove the surface: a grant works without one.",
)
GRANT_WITHOUT_SURFACE = error(
    "grant-without-surface",
    "The pod has `strict-surfaces: true`, and the agent has a grant on a service without a surface on it.",
    "Add `service://…` to the agent's `surfaces`, or remove `strict-surfaces`.",
)


TOKEN_VISIBLE_TO_AGENT = error(
    "token-visible-to-agent",
    "An agent is given a secret that only the proxy or a service may have (a service's token, a provider's key, the pod's"
    " master secret, another agent's token), which would let it bypass the proxy.",
    "Take it away from the agent: the proxy holds it, and uses it for the agent.",
)
PROVIDER_KEY_VARIABLE = error(
    "provider-key-variable",
    "An agent is given a variable that holds a provider's key, or a value that is made of one. Only the agent's own token may"
    " stand there; what the environment holds now does not count, since Compose fills it in when the pod is started.",
    "Remove it: the compiler gives the runner its token. The provider's key belongs into `x-claw.cllama-env`.",
)
PROVIDER_KEY_VALUE = error(
    "provider-key-value",
    "Something that an agent is given looks like a provider's key (`sk-…`, `sk-ant-…`, `sk-or-…`, `AIza…`, `xai-…`, …).",
    "Remove it; the provider's key belongs into `x-claw.cllama-env`.",
)
PRIVATE_MOUNT = error(
    "private-mount",
    "An agent is given the compiled tree, the pod's master secret, `.env`, a file with one of the pod's secrets, or a volume or"
    " secret of its proxy: by a mount, a volume that is bound to a path, `volumes_from`, `develop.watch`, a build's context,"
    " `secrets` or `configs`.",
    "Mount the files that the agent needs, or a directory that holds only them.",
)


AGENT_NETWORK_MODE = error(
    "agent-network-mode",
    "An agent with `network_mode` is on a network that the compiler did not derive, and can bypass its proxy.",
    "Remove `network_mode`, and name what the agent reaches in `surfaces`.",
)
PROVIDER_NETWORK_MODE = error(
    "provider-network-mode",
    "A service that the proxy calls has `network_mode`, so that it can't be put on a network with the proxy.",
    "Remove `network_mode`, or say with `x-claw.base-url` where the proxy reaches the service.",
)
COUNTED_REFERENCE = error(
    "counted-reference",
    "A key names the one container of a service, and `count` makes several of it.",
    "Name one of them, as `analyst-0`.",
)
EXTENDS_AGENT = error(
    "extends-agent",
    "A service that extends an agent gets the agent's credential and networks with the rest.",
    "Put what both have into a service of its own, or behind a YAML anchor.",
)
AGENT_ON_OWN_NETWORK = warning(
    "agent-on-own-network",
    "An agent is on a network that the pod file names, and reaches all that is on it without its proxy.",
    "Remove `networks` from the agent, and name what it reaches in `surfaces`.",
)
PORTS_NOT_PUBLISHED = warning(
    "ports-not-published",
    "Docker publishes no port of a container that is on internal networks only, as an agent without `egress://` is.",
    "Give the agent the surface `egress://`, or remove `ports`.",
)
MANY_NETWORKS = warning(
    "many-networks",
    "The pod needs more networks than Docker's default address pools hold (about 30).",
    "Raise `default-address-pools` in the Docker daemon's configuration.",
)
AGENT_TAKES_HOST = warning(
    "agent-takes-host",
    "An agent has something by which it can take over its host: privileges, a capability, a container engine's socket, or a"
    " directory of the host's own. Then nothing that the pod says of the agent holds.",
    "Remove it, or run what needs it as a service of its own, with a tool for the agent.",
)


UNKNOWN_FEED = error("unknown-feed", "No service of the pod declares a feed of that name.", "Correct the name.")
AMBIGUOUS_FEED = error(
    "ambiguous-feed", "Several services declare a feed of that name.", "Write it in full: `service/feed`."
)
NO_MEMORY = error(
    "no-memory",
    "The service that an agent's `memory` names declares no `memory`.",
    "Declare it in the service's descriptor.",
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
    "Remove it (the default is `deny`), or write `allow` or `deny`.",
)
COUNTED_PROVIDER = error(
    "counted-provider",
    "A service with `count` is used by its name, and no container has that name: there are `name-0`, `name-1`, ….",
    "Name one of them, or give the provider a service of its own, without `count`.",
)
ORDINAL_COLLISION = error(
    "ordinal-collision",
    "`count` makes an agent with the name that another service has.",
    "Rename one of the two services.",
)
RESERVED_NAME = error(
    "reserved-name",
    "A service, network, volume or secret has a name that the compiler or the original system uses for its own.",
    "Rename it.",
)
SAME_HOST = error(
    "same-host",
    "Two services have names that differ in capitals only; as host names they are the same.",
    "Rename one of them.",
)


BAD_BASE_URL = error(
    "bad-base-url", "A base URL is http(s)://host[:port][/path], without user, query or fragment.", "Correct it."
)
BAD_PORT = error(
    "bad-port", "An entry of `expose` or `ports` names no port number.", "Correct it, or set `x-claw.base-url`."
)
PORT_RANGE = error(
    "port-range", "A range of ports does not say on which one the service listens.", "Set `x-claw.base-url`."
)
SEVERAL_PORTS = warning(
    "several-ports", "The service has several TCP ports; the first is taken.", "Choose with `x-claw.base-url`."
)
NO_PORT = warning(
    "no-port", "The service has no TCP port; port 80 is taken.", "Add `expose`, or set `x-claw.base-url`."
)
TOKEN_MISSING = error(
    "token-missing",
    "A service wants a credential, and its environment holds none (missing or empty).",
    "Set the variable in the environment of the service that provides the tools.",
)
BAD_TOKEN = error(
    "bad-token", "A credential holds characters that an HTTP header can't carry.", "Use visible ASCII characters."
)
BAD_FEED = error("bad-feed", "A feed's name, path or TTL can't be made into a request.", "Correct the feed.")
BEARER_ONLY = error(
    "bearer-only",
    "A feed or a memory is asked for with a bearer token or with none, and the service wants another kind of credential.",
    "Give the agent a `service-auth` of its own, or let the service take a bearer token.",
)
UNPINNED_IMAGE = warning(
    "unpinned-image",
    "An agent, or a service that one uses, has an image without a tag, or with `latest`: another image may be run tomorrow.",
    "Name a version (`api:1.4.2`) or a digest (`api@sha256:…`).",
)
