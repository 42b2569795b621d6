"""Every code that the compiler can report: its constant, its meaning and its remedy.

The name of a code is that of its constant, ``unknown-key`` for ``UNKNOWN_KEY``; once published, it
stays. ``docs/diagnostics.md`` is printed from here: ``python -m claw_compile.codes >
docs/diagnostics.md``.
"""

import sys

from claw_compile.diagnostics.diagnostic import Code


def error(meaning: str, remedy: str) -> Code:
    """Return an error: with one, nothing is written."""
    return Code("error", meaning, remedy)


def warning(meaning: str, remedy: str) -> Code:
    """Return a warning: it changes nothing."""
    return Code("warning", meaning, remedy)


# The grammar of ``x-claw``.

UNKNOWN_KEY = error("A key under `x-claw` is not part of the grammar.", "Correct or remove it.")
MISSING_KEY = error("A key that is required is not there.", "Add it.")
WRONG_TYPE = error(
    "A value has another shape than its key takes.", "Give it the shape that is named."
)
BAD_VALUE = error("A value is not one of those that its key takes.", "Choose one of those named.")
BAD_NAME = error(
    "A pod's name is `[a-z0-9][a-z0-9_-]*`: it names the Compose project.", "Choose such a name."
)
BAD_AGENT_ID = error(
    (
        "An agent's service name becomes a directory and half of a credential: "
        "`[a-z0-9][a-z0-9._-]{0,62}`, no `..`."
    ),
    "Rename the service.",
)
BAD_SERVICE_NAME = error(
    "A service that provides tools needs a name that is a host name of at most 63 characters.",
    "Rename the service.",
)
NOT_AN_AGENT = error(
    "A key that only an agent can have is on a service without `agent`.",
    "Add `agent: ./AGENTS.md`.",
)
NO_AGENTS = warning(
    "The pod has no agent, so nothing is compiled.", "Give a service `x-claw.agent`."
)
NOT_ACTED_ON = warning(
    (
        "The key belongs to the original system: it is carried into `pod-manifest.json`, and "
        "nothing here acts on it."
    ),
    "Keep the key if something of yours reads that file; else remove it.",
)
SPREAD_TWICE = error("`...` stands twice in one list.", "Keep one of them.")
SPREAD_WITHOUT_DEFAULTS = error(
    "`...` stands for the pod's defaults, but there are none.", "Add them, or remove `...`."
)
UNUSED_DEFAULT = warning(
    "No agent takes these defaults of the pod.",
    (
        "Leave the key out of an agent to inherit them (a list also splices them with `- "
        "...`), or remove them."
    ),
)
ALLOW_MISSING = error(
    (
        "A grant without `allow`, or with an empty one, grants nothing; to grant everything "
        "is said in full."
    ),
    "Write `allow: all` or `allow: [tool, …]`; to take a default back write `tools: []`.",
)
ALL_MIXED_WITH_NAMES = error(
    "`all` stands in a list of tool names.", "Write `allow: all`, or only names."
)
BAD_LIMIT = error("A limit is a positive integer up to 2147483647.", "Write such a number.")
TOTAL_BELOW_PER_TOOL = error(
    "`total-timeout-ms` is less than `timeout-per-tool-ms`, so that no tool could use its time.",
    "Raise the one or lower the other; a limit that is left out takes its default.",
)
BAD_SURFACE = error(
    (
        "A surface is `service://X`, `volume://N [ro|rw]`, `host:///abs [ro|rw]`, "
        "`channel://P` or `egress://`."
    ),
    "Write it in one of these forms.",
)
BAD_MODEL = error(
    (
        "A model is `provider/model`, or the name alone of one of Anthropic's; each slot has "
        "one, and `fallback` a list."
    ),
    "Write `primary: provider/model` and `fallback: [provider/model, …]`.",
)
UNKNOWN_PROVIDER = warning(
    "A model is of a provider that the proxy does not know by itself, so that it can't be asked.",
    "Correct the name, or define the provider in the proxy's `providers.json`.",
)
BAD_BUDGET = error(
    (
        "A budget has a `window` (a duration such as `24h`), and at least one of `limit-usd` "
        "and `max-requests`."
    ),
    "Write both; to have no budget write `budget: null`.",
)
BAD_PATH = error(
    (
        "An entry of `paths` is no `METHOD /prefix*`, or opens what mints or lists "
        "credentials, which nothing opens."
    ),
    (
        "Write `METHOD /path` as the proxy's refusal (`path_not_allowed`) shows it, with `*` "
        "at its end for all paths below."
    ),
)
BAD_BLOCK = error("A context block has no text, or an `id` that another block has.", "Correct it.")
BLOCK_IS_CUT = warning(
    "The text of a context block is longer than its `max-chars`, and is cut.",
    "Shorten it, or raise it.",
)
COUNT_CONFLICT = error(
    (
        "What Compose says of a service does not go with `count`, or makes several containers "
        "share one identity."
    ),
    (
        "Remove `container_name`, `scale` or `deploy.replicas`; to have several agents write "
        "`count: N`."
    ),
)

# Codes about descriptors: their content, their source, and the files of a pod.

DESCRIPTOR_VERSION = error("A descriptor needs `version`: 1 or 2.", "Add it.")
DESCRIPTOR_NEEDS_V2 = error(
    "`tools`, `mcp` and `memory` belong to version 2 of the descriptor.", "Set `version` to 2."
)
DESCRIPTOR_SHAPE = error(
    "A value of a descriptor is missing or has the wrong shape.", "Give it the shape that is named."
)
DESCRIPTOR_UNKNOWN_KEY = warning(
    (
        "A key of a descriptor, or an annotation `x-claw.…`, is not part of the grammar, and "
        "does nothing."
    ),
    "Correct or remove it.",
)
BAD_TOOL_NAME = error("A tool's name is `[A-Za-z0-9_-]{1,48}`.", "Choose such a name.")
DUPLICATE_TOOL = error("Two tools of one descriptor have the same name.", "Rename one of them.")
BAD_SCHEMA = error(
    "`inputSchema` is not an object schema, not valid JSON Schema, has a `pattern` that is no "
    "regular expression of"
    " ECMA-262, or refers to something outside of it.",
    'Write `{"type": "object", "properties": {…}}`; a `$ref` begins with `#`.',
)
SCHEMA_TOO_LARGE = error(
    (
        "`inputSchema` has over 65536 characters, or nests more than 24 deep: every request "
        "would carry it."
    ),
    "Take fewer parameters, or describe them in fewer words.",
)
HTTP_REQUIRED = error("A tool says neither how it is called by HTTP nor by MCP.", "Add `http`.")
HTTP_FORBIDDEN = error("A tool has `http` although the service speaks MCP.", "Remove one of them.")
BAD_PATH = error(
    "A path begins with `/` and holds no blank, `?`, `#`, `\\`, `.` or `..` segment; a feed's "
    "may hold `?`, and of"
    " parameters only `{claw_id}`.",
    "Correct the path.",
)
PATH_PARAMETER = error(
    (
        "A `{parameter}` of a path is not a required single value of the tool's schema "
        "(`{claw_id}` apart)."
    ),
    "Add it to `properties` and to `required`.",
)
BAD_BODY = error("`body_key` needs a method with a body: POST, PUT or PATCH.", "Remove `body_key`.")
BAD_ANNOTATION = error("An annotation that the proxy acts on is of another type.", "Correct it.")
EFFECT_CONFLICT = warning(
    "Annotations of a tool contradict each other: `readOnly` and `readOnlyHint` differ "
    "(`readOnly` wins), or it only reads"
    " and yet is destructive.",
    "Remove one of them.",
)
READ_ONLY_DELETE = warning(
    "A tool says that it only reads, and its method is DELETE; it counts as a write.", "Correct it."
)
LONG_DESCRIPTION = warning(
    "A tool's description is over 1024 characters; every request carries it.", "Shorten it."
)
MISSING_DESCRIPTION = warning(
    "A tool has no description: a model has only the name to go by.",
    "Say in one sentence what it does, and when to use it.",
)
HIDDEN_TEXT = warning(
    "A tool's name, description or schema holds characters that nobody sees (control characters, "
    "marks of direction, letters"
    " without a glyph), which can say to a model what a reviewer does not read.",
    "Look at the text with these characters shown, and remove them.",
)
NO_SNAPSHOT = error(
    "A service wraps a stdio server, and nothing says which tools that server has.",
    (
        "Run `claw discover SERVICE` once and keep what it writes, or name a descriptor with "
        "`x-claw.describe-file`."
    ),
)
TOOLS_HOST_CONFLICT = error(
    "What the compiler writes for a tools host is set as well: `auth`, `mcp` or `mcp-stdio` of "
    "the service, an agent's"
    " `service-auth` for it, or a secret of the name of an agent's token there.",
    "Remove it, or rename the secret; each agent has a token of its own at a tools host.",
)
UNLISTED_SERVER = warning(
    "An MCP server behind a tools host is open to grants (`internal_only: false`), and no "
    "snapshot has its tools, so that none"
    " can be granted.",
    "Run `claw tools describe --config toolhost.yml > "
    ".claw-discovered/SERVICE.claw-describe.json` where the server can be"
    " started, and keep what it writes.",
)
UNUSED_TOOLS_HOST = warning(
    "No agent may call a tool of the tools host, so that it has no principal.",
    (
        "Grant some of its tools: `tools: [{service: NAME, allow: [read_file]}]`; or remove "
        "the service."
    ),
)
STALE_SNAPSHOT = warning(
    "A snapshot in `.claw-discovered/` was taken from another command or image. That of a stdio "
    "server is used all the"
    " same; that of an image is ignored.",
    "Run `claw discover SERVICE --update`.",
)
SOURCES_DISAGREE = warning(
    "Two descriptors of one service declare different tools; the one of higher rank counts.",
    "Bring the other one up to date, or remove it.",
)
BAD_DESCRIBE_LABEL = error(
    "`LABEL claw.describe` names no file of the build context, or of the image.",
    "Correct the label, or name the descriptor with `x-claw.describe-file`.",
)
BAD_TOOLS_LIST = error(
    "`.claw-tools.json` is not the whole result of MCP's `tools/list`.",
    'Write `{"tools": […]}` with the tools of every page.',
)
TOOL_LEFT_OUT = warning(
    "A tool of `.claw-tools.json` can't be granted: its name is not `[A-Za-z0-9_-]{1,48}` or "
    "stands there twice, or its schema"
    " or an annotation is not sound.",
    "Correct the tool in its server, or do without it.",
)
TOOLS_LIST_WITHOUT_MCP = warning(
    (
        "`.claw-tools.json` says which tools there are, and nothing says where the server "
        "listens: it is passed over."
    ),
    "Add `x-claw.mcp: {path: /mcp}` to the service, or `LABEL claw.mcp=/mcp` to its Dockerfile.",
)
MCP_UNUSED = warning(
    (
        "A service has `x-claw.mcp`, and its descriptor has no `mcp`: its tools are called by "
        "plain HTTP."
    ),
    "Remove the key, or declare `mcp` in the descriptor.",
)
BAD_LOCK = error(
    "`claw.lock` is damaged, was edited by hand, or is of a newer claw; it is not used.",
    "Restore it from version control, or delete it and run `claw lock` after a look at every tool.",
)
LOCK_DRIFT = error(
    "The tools of a service are not those that `claw.lock` has: one was changed, is gone, or is "
    "granted without having been"
    " locked.",
    (
        "Look at the difference; then `claw lock --accept SERVICE`, or `claw lock` for a "
        "service that is new."
    ),
)
LOCK_OUTDATED = warning(
    (
        "`claw.lock` has another descriptor of a service, with the same tools, or a service "
        "that is no longer described."
    ),
    "Run `claw lock`.",
)
UNREADABLE_FILE = error(
    "A file that the pod needs does not exist, is not a regular file, or may not be read.",
    "Correct the path (it is relative to the pod file), or make the file readable.",
)
PATH_ESCAPES_POD = error(
    "A path leads out of the pod's directory, by itself or through a symlink.",
    "Move or copy the file into the pod's directory.",
)
NOT_UTF8 = error("A file is not UTF-8 text.", "Save the file as UTF-8.")
YAML_SYNTAX = error(
    "The pod file is not YAML.", "Correct the indentation or quoting at that place."
)
NOT_A_MAPPING = error(
    "The document is not a mapping.",
    "A pod file is a Compose file: `services:` at the left margin.",
)
DUPLICATE_KEY = error(
    "A mapping holds the same key twice, so that one of the two would be lost.", "Keep one of them."
)
SECOND_DOCUMENT = error(
    "A pod file holds one YAML document.", "Remove the `---` line, or split the file."
)
DOCUMENT_END = error(
    "A line that is just `...` ends a YAML document; everything behind it would be lost.",
    "To splice the pod's defaults write `- ...`, with the dash.",
)
ALIAS_BOMB = error(
    "Anchors refer to themselves, or multiply into a document of unreasonable size.",
    "Write it out.",
)
JSON_SYNTAX = error("A descriptor, or `claw.lock`, is not JSON.", "Correct the text at that place.")
DOTENV_SYNTAX = error(
    "A line of `.env` is not `NAME=value`, or a quote is not closed.",
    "Write `NAME=value`; a value that begins with a quote ends with the same one.",
)
BAD_INTERPOLATION = error(
    "A `${` begins nothing that Compose can interpolate.", "Write `${NAME}`, or `$$` for a `$`."
)
UNSET_VARIABLE = error(
    "A value that the compiler needs names a variable that is not set, and gives no default.",
    "Set it in the environment or in the `.env` beside the pod file, or write `${NAME:-default}`.",
)
UNWRITABLE_OUTPUT = error(
    "The output directory can't be written, or holds files that the compiler did not make.",
    "Choose another directory with `-o`.",
)
BAD_MASTER_SECRET = error(
    "The pod's master secret is shorter than 16 characters, or can't be read.",
    (
        "Set CLAW_MASTER_SECRET, or delete `.claw-master`: the next compile makes a new one "
        "(agents get new tokens)."
    ),
)

# Codes about policy: grants, credentials, networks, and what an agent has beside its tools.

UNKNOWN_SERVICE = error("No service of the pod has that name.", "Correct the name.")
UNKNOWN_AGENT = error(
    "No agent of the pod has that name; with `count` they are `name-0`, `name-1` ….",
    "Correct the name.",
)
UNKNOWN_TOOL = error("The service's descriptor declares no tool of that name.", "Correct the name.")
NO_DESCRIPTOR = error(
    "A service whose tools are granted has no descriptor.",
    "Name one with `x-claw.describe-file`, keep a `.claw-describe.json` in the service's build "
    "context (one outside of the"
    " pod's directory is not looked into), or run `claw discover SERVICE` once.",
)
NO_TOOLS = error(
    "A service whose tools are granted declares none.", "Declare them in its descriptor."
)
PRESENTED_NAME = warning(
    "Models see a tool as `service__tool`, in at most 64 characters of `[A-Za-z0-9_-]`. Where "
    "that is too long, or two tools of"
    " an agent would have one name, it is cut, and 8 hex digits of the tool's full name follow.",
    "Give the service or the tool a shorter name, or one of its own; or leave it: it works.",
)
TOOLS_WITHOUT_CLLAMA = error(
    "An agent has tools, its own or inherited, but no proxy that could run them.",
    "Add `cllama: passthrough`, or suppress the tools with `tools: []`.",
)
WRITE_GRANTED_BY_ALL = warning(
    (
        "`allow: all` grants tools that change things, and will grant those that the service "
        "adds later."
    ),
    "Name the tools, or take some out with `deny: [tool, …]`.",
)
GRANT_BESIDE_SURFACE = warning(
    "The agent reaches the service directly, and can bypass the proxy that governs its tools.",
    "Remove the surface: a grant works without one.",
)
GRANT_WITHOUT_SURFACE = error(
    (
        "The pod has `strict-surfaces: true`, and the agent has a grant on a service without "
        "a surface on it."
    ),
    "Add `service://…` to the agent's `surfaces`, or remove `strict-surfaces`.",
)
TOKEN_VISIBLE_TO_AGENT = error(
    "An agent is given a secret that only the proxy or a service may have (a service's token, a "
    "provider's key, the pod's"
    " master secret, another agent's token), which would let it bypass the proxy.",
    "Take it away from the agent: the proxy holds it, and uses it for the agent.",
)
PROVIDER_KEY_VARIABLE = error(
    "An agent is given a variable that holds a provider's key, or a value that is made of one. "
    "Only the agent's own token may"
    " stand there; what the environment holds now does not count, since Compose fills it in when "
    "the pod is started.",
    (
        "Remove it: the compiler gives the runner its token. The provider's key belongs into "
        "`x-claw.cllama-env`."
    ),
)
PROVIDER_KEY_VALUE = error(
    (
        "Something that an agent is given looks like a provider's key (`sk-…`, `sk-ant-…`, "
        "`sk-or-…`, `AIza…`, `xai-…`, …)."
    ),
    "Remove it; the provider's key belongs into `x-claw.cllama-env`.",
)
PRIVATE_MOUNT = error(
    "An agent is given the compiled tree, the pod's master secret, `.env`, a file with one of "
    "the pod's secrets, or a volume or"
    " secret of its proxy: by a mount, a volume that is bound to a path, `volumes_from`, "
    "`develop.watch`, a build's context,"
    " `secrets` or `configs`.",
    "Mount the files that the agent needs, or a directory that holds only them.",
)
FOLDER_PARTLY_READ = warning(
    "An agent gets a folder, and not all files in it were searched for credentials: there are "
    "more, larger or deeper ones"
    " than the compiler reads.",
    "Mount a smaller folder, or see to it that no credential stands in the rest.",
)
AGENT_NETWORK_MODE = error(
    (
        "An agent with `network_mode` is on a network that the compiler did not derive, and "
        "can bypass its proxy."
    ),
    "Remove `network_mode`, and name what the agent reaches in `surfaces`.",
)
PROVIDER_NETWORK_MODE = error(
    (
        "A service that the proxy calls has `network_mode`, so that it can't be put on a "
        "network with the proxy."
    ),
    "Remove `network_mode`, or say with `x-claw.base-url` where the proxy reaches the service.",
)
COUNTED_REFERENCE = error(
    "A key names the one container of a service, and `count` makes several of it.",
    "Name one of them, as `analyst-0`.",
)
EXTENDS_AGENT = error(
    "A service that extends an agent gets the agent's credential and networks with the rest.",
    "Put what both have into a service of its own, or behind a YAML anchor.",
)
AGENT_ON_OWN_NETWORK = warning(
    (
        "An agent is on a network that the pod file names, and reaches all that is on it "
        "without its proxy."
    ),
    "Remove `networks` from the agent, and name what it reaches in `surfaces`.",
)
PORTS_NOT_PUBLISHED = warning(
    (
        "Docker publishes no port of a container that is on internal networks only, as an "
        "agent without `egress://` is."
    ),
    "Give the agent the surface `egress://`, or remove `ports`.",
)
MANY_NETWORKS = warning(
    "The pod needs more networks than Docker's default address pools hold (about 30).",
    "Raise `default-address-pools` in the Docker daemon's configuration.",
)
AGENT_TAKES_HOST = warning(
    "An agent has something by which it can take over its host: privileges, a capability, "
    "devices, a container engine's socket"
    " or group, or a directory of the host's own. Then nothing that the pod says of the agent "
    "holds.",
    "Remove it, or run what needs it as a service of its own, with a tool for the agent.",
)
UNKNOWN_FEED = error("No service of the pod declares a feed of that name.", "Correct the name.")
AMBIGUOUS_FEED = error(
    "Several services declare a feed of that name.", "Write it in full: `service/feed`."
)
NO_MEMORY = error(
    "The service that an agent's `memory` names declares no `memory`.",
    "Declare it in the service's descriptor.",
)
MEMORY_WITHOUT_CLLAMA = error(
    "An agent has a memory, its own or inherited, but no proxy that could ask it.",
    "Add `cllama: passthrough`, or suppress the memory with `memory: null`.",
)
NEEDS_CLLAMA = warning(
    (
        "An agent has feeds, context blocks or a budget, its own or inherited, but no proxy "
        "that could act on them."
    ),
    "Add `cllama: passthrough`, or suppress them with `null`.",
)
BAD_SKILL = error(
    (
        "The front matter of a skill is not closed, or has no `description`, by which the "
        "agent knows what it is for."
    ),
    "Open the file with `---`, `description: …`, `---`; or leave the front matter out.",
)
SKILL_TWICE = error(
    "Two skills of an agent have the same base name, by which it knows them.",
    "Rename one of the files.",
)
SKILL_HIDDEN = warning(
    "A skill of an agent has the name of one that a service brings, and is read in its place.",
    "Rename the file, or leave it if that is meant.",
)
SKILL_MISSING = warning(
    "A descriptor names a skill, and no such file is beside it or in the build context.",
    "Keep a copy of the skill beside the descriptor, or remove `skill`.",
)
SKILL_TELLS_ENDPOINTS = warning(
    "A skill tells the address or a path of a service that has tools. Agents call tools by name; "
    "the address is no use to them,"
    " and leads round the proxy where they can reach the service.",
    "Describe the tools by their names.",
)
UNKNOWN_SECRET = error(
    "No secret of the pod has that name.",
    "Declare it: `x-claw.secrets: {NAME: {env: VARIABLE}}`, or `{file: ./path}`.",
)
SEVERAL_PROXIES = error(
    "The agents of a pod want proxies of several types, and a pod has one.", "Choose one type."
)
PROXY_ENV_CONFLICT = error(
    "Two agents give one variable of the proxy different values, and the pod has one proxy.",
    "Give it one value, best in `cllama-defaults.env`.",
)
BAD_EGRESS = error(
    (
        "`CLLAMA_EGRESS` is neither `allow` nor `deny`: an empty variable must not decide "
        "what leaves the pod."
    ),
    "Remove it (the default is `deny`), or write `allow` or `deny`.",
)
COUNTED_PROVIDER = error(
    (
        "A service with `count` is used by its name, and no container has that name: there "
        "are `name-0`, `name-1`, …."
    ),
    "Name one of them, or give the provider a service of its own, without `count`.",
)
ORDINAL_COLLISION = error(
    "`count` makes an agent with the name that another service has.",
    "Rename one of the two services.",
)
RESERVED_NAME = error(
    (
        "A service, network, volume or secret has a name that the compiler or the original "
        "system uses for its own."
    ),
    "Rename it.",
)
SAME_HOST = error(
    "Two services have names that differ in capitals only; as host names they are the same.",
    "Rename one of them.",
)
BAD_BASE_URL = error(
    "A base URL is http(s)://host[:port][/path], without user, query or fragment.", "Correct it."
)
BAD_PORT = error(
    "An entry of `expose` or `ports` names no port number.", "Correct it, or set `x-claw.base-url`."
)
PORT_RANGE = error(
    "A range of ports does not say on which one the service listens.", "Set `x-claw.base-url`."
)
SEVERAL_PORTS = warning(
    "The service has several TCP ports; the first is taken.", "Choose with `x-claw.base-url`."
)
NO_PORT = warning(
    "The service has no TCP port; port 80 is taken.", "Add `expose`, or set `x-claw.base-url`."
)
TOKEN_MISSING = error(
    "A service wants a credential, and its environment holds none (missing or empty).",
    "Set the variable in the environment of the service that provides the tools.",
)
BAD_TOKEN = error(
    "A credential holds characters that an HTTP header can't carry.",
    "Use visible ASCII characters.",
)
BAD_FEED = error("A feed's name, path or TTL can't be made into a request.", "Correct the feed.")
BEARER_ONLY = error(
    (
        "A feed or a memory is asked for with a bearer token or with none, and the service "
        "wants another kind of credential."
    ),
    "Give the agent a `service-auth` of its own, or let the service take a bearer token.",
)
UNPINNED_IMAGE = warning(
    (
        "An agent, or a service that one uses, has an image without a tag, or with `latest`: "
        "another image may be run tomorrow."
    ),
    "Name a version (`api:1.4.2`) or a digest (`api@sha256:…`).",
)

# Codes of a compile for Kubernetes.

NOT_CARRIED = warning(
    "A Compose key has no counterpart in the manifests for Kubernetes, and is left out.",
    "Say it with kubectl or kustomize, or remove it.",
)
MADE_BY_HAND = warning(
    "The manifests refer to an object or an image that the compiler does not make.",
    "Create it before you apply them.",
)
SHARED_REACH = warning(
    "A network policy of Kubernetes can't tell an agent from its proxy: on the ports of its "
    "`service://` surfaces the agent"
    " also reaches the other services that its proxy calls.",
    "Give what it needs as tools instead, or see that those services listen on other ports; the "
    "credentials stay with the"
    " proxy in any case.",
)
SURFACE_REDIRECTED = error(
    "In Kubernetes what a transparent agent sends to the ports 80 and 443 goes to its proxy, "
    "which refuses it, and the"
    " service of a surface listens on no other.",
    "Let the service listen on another port, or give the agent another `mode`.",
)
SURFACE_PARTLY_REDIRECTED = warning(
    "In Kubernetes what a transparent agent sends to the ports 80 and 443 goes to its proxy, "
    "which refuses it, also where"
    " a surface says that it reaches them.",
    "Reach what it needs on other ports, or give the agent another `mode`.",
)
DUPLICATE_OBJECT = error(
    (
        "Two things of the pod would be one object in Kubernetes: the one that is applied "
        "last would take the other's place."
    ),
    "Rename one of them.",
)
KUBERNETES_NAME = error(
    "A service is a host, and Kubernetes takes `[a-z]([-a-z0-9]*[a-z0-9])?` of at most 63 "
    "characters for one."
    " `kubernetes` is taken: it is the API of the cluster.",
    "Rename the service.",
)
NO_IMAGE = error("Kubernetes runs images, and the service names none.", "Name one with `image`.")
PROXYS_USER = error(
    (
        "In Kubernetes only the proxy's user may leave an agent's pod, and the agent runs as "
        "that user."
    ),
    "Give it another `user`.",
)
UNSHARED_STATE = error(
    "A fleet (`--topology gateway`) has several proxies, any of which serves a request, and "
    "`CLAW_STATE` is no server that they"
    " share: it is not set, a file, no valid URL, or an address of each proxy's own.",
    "Name a Valkey or Redis in `cllama-defaults`: `env: {CLAW_STATE: 'redis://valkey:6379/0'}`. "
    "In a password, write"
    " `@` as `%40` and `/` as `%2F`.",
)
TRANSPARENT_GATEWAY = error(
    (
        "In a fleet (`--topology gateway`) the proxy is in another pod than its agent, whose "
        "traffic can't be redirected there."
    ),
    "Give the agent `mode: proxy` or `mode: base-url`, or compile with `--topology sidecar`.",
)

CODES = {
    name.lower().replace("_", "-"): code for name, code in vars().items() if isinstance(code, Code)
}
"""Every code by its name."""
for _name, _code in CODES.items():
    _code.name = _name


def page() -> str:
    """Return the text of ``docs/diagnostics.md``."""
    intro = (
        "# Diagnostics\n\n"
        "What `claw check` and `claw compile` report. An error means that nothing is written; a "
        "warning changes nothing.\n"
        "This page is printed from the registry: `python -m claw_compile.codes > "
        "docs/diagnostics.md`.\n"
    )
    parts = (
        f"## {code.name}\n\n*{code.severity}* · {code.meaning}\n\n{code.remedy}\n"
        for _, code in sorted(CODES.items())
    )
    return "\n".join([intro, *parts])


if __name__ == "__main__":
    sys.stdout.write(page())
