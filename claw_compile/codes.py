"""Every code that the compiler can report: its constant, its meaning and its remedy.

A code is named after its constant: ``unknown-key`` for ``UNKNOWN_KEY``. A published name never
changes. ``docs/diagnostics.md`` is generated from this file:
``python -m claw_compile.codes > docs/diagnostics.md``.
"""

import sys

from claw_compile.diagnostics.diagnostic import Code


def error(meaning: str, remedy: str) -> Code:
    """Return an error: the compiler writes nothing."""
    return Code("error", meaning, remedy)


def warning(meaning: str, remedy: str) -> Code:
    """Return a warning: the output stays the same."""
    return Code("warning", meaning, remedy)


# The grammar of ``x-claw``.

UNKNOWN_KEY = error(
    "A key under `x-claw` is not part of the grammar.",
    "Correct or remove it.",
)
MISSING_KEY = error(
    "A required key is missing.",
    "Add it.",
)
WRONG_TYPE = error(
    "A value has the wrong type for its key, such as a list where a single value is needed.",
    "Give it the type that the message names.",
)
BAD_VALUE = error(
    "A key does not take this value.",
    "Choose one of the values that the message names.",
)
BAD_NAME = error(
    "A pod's name must match `[a-z0-9][a-z0-9_-]*`, because it names the Compose project.",
    "Choose a name of that form.",
)
BAD_AGENT_ID = error(
    (
        "An agent's service name becomes a directory and part of its token, so it must match "
        "`[a-z0-9][a-z0-9._-]{0,62}` and contain no `..`."
    ),
    "Rename the service.",
)
BAD_SERVICE_NAME = error(
    "A service that provides tools needs a name that is a host name of at most 63 characters.",
    "Rename the service.",
)
NOT_AN_AGENT = error(
    "A service has a key that only an agent can have, but no `agent`.",
    "Add `agent: ./AGENTS.md`.",
)
NO_AGENTS = warning(
    "The pod has no agent, so nothing is compiled.",
    "Add `x-claw.agent` to a service.",
)
NOT_ACTED_ON = warning(
    (
        "The key belongs to the original system. The compiler copies it to `pod-manifest.json` "
        "and otherwise ignores it."
    ),
    "Keep the key if a program of yours reads that file. Otherwise remove it.",
)
SPREAD_TWICE = error(
    "A list contains `...` more than once.",
    "Keep one of them.",
)
SPREAD_WITHOUT_DEFAULTS = error(
    "`...` inserts the pod's defaults, but the pod has none for this list.",
    "Add the defaults, or remove `...`.",
)
UNUSED_DEFAULT = warning(
    "No agent uses these defaults of the pod.",
    (
        "To inherit them, leave the key out of an agent, or write `- ...` in its list. "
        "Otherwise remove the defaults."
    ),
)
ALLOW_MISSING = error(
    (
        "A grant needs `allow`. An absent or empty `allow` grants nothing; only `allow: all` "
        "grants every tool."
    ),
    (
        "Write `allow: all` or `allow: [tool, …]`. To give an agent none of the pod's default "
        "tools, write `tools: []`."
    ),
)
ALL_MIXED_WITH_NAMES = error(
    "A list of tool names contains `all`.",
    "Write `allow: all`, or list only names.",
)
BAD_LIMIT = error(
    "A limit must be a positive integer of at most 2147483647. Seconds of a tools host may have a "
    "fraction.",
    "Write such a number.",
)
TOTAL_BELOW_PER_TOOL = error(
    (
        "`total-timeout-ms` is less than `timeout-per-tool-ms`, so no tool could use all of its "
        "own time."
    ),
    "Raise the first or lower the second. A limit that is not set has its default.",
)
BAD_SURFACE = error(
    (
        "A surface must be `service://X`, `volume://N [ro|rw]`, `host:///abs [ro|rw]`, "
        "`channel://P` or `egress://`."
    ),
    "Write it in one of these forms.",
)
BAD_MODEL = error(
    (
        "A model is written `provider/model`; for Anthropic's models the name is enough. Each "
        "slot takes one model, and only `fallback` takes a list."
    ),
    "Write `primary: provider/model` and `fallback: [provider/model, …]`.",
)
UNKNOWN_PROVIDER = warning(
    (
        "The proxy does not know the provider of a model, and can't send requests to it without "
        "a definition."
    ),
    "Correct the name, or define the provider in the proxy's `providers.json`.",
)
BAD_BUDGET = error(
    (
        "A budget needs a `window` (a duration such as `24h`) and at least one of `limit-usd` "
        "and `max-requests`."
    ),
    "Add the missing key. To have no budget, write `budget: null`.",
)
BAD_BLOCK = error(
    "A context block has no text, or its `id` is the `id` of another block.",
    "Add the text, or change the `id`.",
)
BLOCK_IS_CUT = warning(
    "The text of a context block is longer than its `max-chars`, so the proxy cuts it.",
    "Shorten the text, or raise `max-chars`.",
)
COUNT_CONFLICT = error(
    (
        "A Compose key of a service contradicts `count`, or would give several containers one "
        "identity."
    ),
    (
        "Remove `container_name`, `scale` or `deploy.replicas`. To have several agents, write "
        "`count: N`."
    ),
)

# Codes about descriptors, about where they come from, and about the files of a pod.

DESCRIPTOR_VERSION = error(
    "A descriptor needs `version`: 1 or 2.",
    "Add it.",
)
DESCRIPTOR_NEEDS_V2 = error(
    "`tools`, `mcp` and `memory` exist only in version 2 of the descriptor.",
    "Set `version` to 2.",
)
DESCRIPTOR_SHAPE = error(
    "A value of a descriptor is missing or has the wrong type.",
    "Give it the type that the message names.",
)
DESCRIPTOR_UNKNOWN_KEY = warning(
    (
        "A key of a descriptor, or an annotation `x-claw.…`, is not part of the grammar and has "
        "no effect."
    ),
    "Correct or remove it.",
)
BAD_TOOL_NAME = error(
    "A tool's name must match `[A-Za-z0-9_-]{1,48}`.",
    "Choose a name of that form.",
)
DUPLICATE_TOOL = error(
    "Two tools of one descriptor have the same name.",
    "Rename one of them.",
)
BAD_SCHEMA = error(
    (
        "`inputSchema` is not valid JSON Schema, does not describe an object, has a `pattern` "
        "that is not an ECMA-262 regular expression, or refers to something outside of itself."
    ),
    'Write `{"type": "object", "properties": {…}}`. A `$ref` begins with `#`.',
)
SCHEMA_TOO_LARGE = error(
    (
        "`inputSchema` has more than 65536 characters or is nested more than 24 levels deep. "
        "Every request to a model would carry it."
    ),
    "Use fewer parameters, or describe them in fewer words.",
)
HTTP_REQUIRED = error(
    "A tool says neither how to call it over HTTP nor that it is called over MCP.",
    "Add `http`.",
)
HTTP_FORBIDDEN = error(
    "A tool has `http`, but its service speaks MCP.",
    "Remove one of them.",
)
BAD_PATH = error(
    (
        "A path has the wrong form. A service's path starts with `/` and contains no space, "
        "`?`, `#`, `\\`, and no segment `.` or `..`; a feed's path may contain a query, and "
        "`{claw_id}` as its only parameter. An entry of `paths` is `METHOD /path`, with `*` at "
        "its end for every path below, and can't open paths that create or list credentials."
    ),
    (
        "Correct the path. The proxy's refusal (`path_not_allowed`) shows the entry of `paths` "
        "to write."
    ),
)
PATH_PARAMETER = error(
    (
        "A `{parameter}` of a tool's path is not a required parameter of the tool's schema, or "
        "not a single value. (`{claw_id}` needs no entry in the schema.)"
    ),
    "Add it to `properties` and to `required`.",
)
BAD_BODY = error(
    "`body_key` needs a method with a body: POST, PUT or PATCH.",
    "Remove `body_key`.",
)
BAD_ANNOTATION = error(
    "An annotation that the proxy uses has the wrong type.",
    "Correct it.",
)
EFFECT_CONFLICT = warning(
    (
        "The annotations of a tool contradict each other: `readOnly` and `readOnlyHint` differ "
        "(then `readOnly` counts), or the tool is both read-only and destructive."
    ),
    "Remove one of them.",
)
READ_ONLY_DELETE = warning(
    "A tool is annotated as read-only, but its method is DELETE, so it counts as a write.",
    "Correct the annotation or the method.",
)
LONG_DESCRIPTION = warning(
    "A tool's description has more than 1024 characters. Every request to a model carries it.",
    "Shorten it.",
)
MISSING_DESCRIPTION = warning(
    "A tool has no description, so a model can judge it by its name only.",
    "Say in one sentence what it does and when to use it.",
)
HIDDEN_TEXT = warning(
    (
        "A tool's name, description or schema contains invisible characters (control "
        "characters, direction marks, letters without a glyph). They can tell a model something "
        "that a reviewer does not see."
    ),
    "Look at the text in an editor that shows these characters, and remove them.",
)
NO_SNAPSHOT = error(
    "A service wraps a stdio server, and no file lists the tools of that server.",
    (
        "Run `claw discover SERVICE` once and keep the file that it writes, or name a "
        "descriptor with `x-claw.describe-file`."
    ),
)
TOOLS_HOST_CONFLICT = error(
    (
        "The pod file sets something that the compiler itself writes for a tools host: `auth`, "
        "`mcp` or `mcp-stdio` of the service, an agent's `service-auth` for it, or a secret "
        "with the name of an agent's token there."
    ),
    "Remove it, or rename the secret. Each agent gets its own token at a tools host.",
)
UNLISTED_SERVER = warning(
    (
        "The tools of an MCP server behind a tools host may be granted (`internal_only: "
        "false`), but no snapshot lists them, so none can be granted."
    ),
    (
        "Where the server can be started, run `claw tools describe --config toolhost.yml > "
        ".claw-discovered/SERVICE.claw-describe.json`, and keep the file."
    ),
)
UNUSED_TOOLS_HOST = warning(
    "No agent may call a tool of the tools host, so it has no principal.",
    (
        "Grant some of its tools with `tools: [{service: NAME, allow: [read_file]}]`, or remove "
        "the service."
    ),
)
STALE_SNAPSHOT = warning(
    (
        "A snapshot in `.claw-discovered/` was made from another command or image than the pod "
        "file now names. A stdio server's snapshot is used nevertheless; an image's snapshot is "
        "ignored."
    ),
    "Run `claw discover SERVICE --update`.",
)
SOURCES_DISAGREE = warning(
    ("Two descriptors of one service declare different tools. The one of higher rank is used."),
    "Update the other one, or remove it.",
)
BAD_DESCRIBE_LABEL = error(
    "`LABEL claw.describe` names a file that is not in the build context or in the image.",
    "Correct the label, or name the descriptor with `x-claw.describe-file`.",
)
BAD_TOOLS_LIST = error(
    "`.claw-tools.json` is not the complete result of MCP's `tools/list`.",
    'Write `{"tools": […]}` with the tools of every page.',
)
TOOL_LEFT_OUT = warning(
    (
        "A tool of `.claw-tools.json` can't be granted: its name does not match "
        "`[A-Za-z0-9_-]{1,48}` or occurs twice, or its schema or an annotation is not valid."
    ),
    "Correct the tool in its server, or do without it.",
)
TOOLS_LIST_WITHOUT_MCP = warning(
    (
        "`.claw-tools.json` lists tools, but nothing says where the MCP server listens, so the "
        "file is ignored."
    ),
    "Add `x-claw.mcp: {path: /mcp}` to the service, or `LABEL claw.mcp=/mcp` to its Dockerfile.",
)
MCP_UNUSED = warning(
    (
        "A service has `x-claw.mcp`, but its descriptor has no `mcp`, so its tools are called "
        "over plain HTTP."
    ),
    "Remove the key, or declare `mcp` in the descriptor.",
)
BAD_LOCK = error(
    "`claw.lock` is damaged, was edited by hand, or was written by a newer claw. It is not used.",
    ("Restore it from version control. Or delete it, review every tool, and run `claw lock`."),
)
LOCK_DRIFT = error(
    (
        "The tools of a service differ from those in `claw.lock`: a tool was changed or "
        "removed, or a granted tool was never locked."
    ),
    (
        "Review the difference, then run `claw lock --accept SERVICE`. For a service that is "
        "new, run `claw lock`."
    ),
)
LOCK_OUTDATED = warning(
    (
        "`claw.lock` has another descriptor of a service, with the same tools, or has a service "
        "that no longer has a descriptor."
    ),
    "Run `claw lock`.",
)
UNREADABLE_FILE = error(
    "A file that the pod needs does not exist, is not a regular file, or can't be read.",
    "Correct the path (it is relative to the pod file), or make the file readable.",
)
PATH_ESCAPES_POD = error(
    "A path leads out of the pod's directory, directly or through a symlink.",
    "Move or copy the file into the pod's directory.",
)
NOT_UTF8 = error(
    "A file is not UTF-8 text.",
    "Save the file as UTF-8.",
)
YAML_SYNTAX = error(
    "The pod file is not YAML.",
    "Correct the indentation or the quotes at that place.",
)
NOT_A_MAPPING = error(
    "The document is not a mapping.",
    "A pod file is a Compose file: write `services:` at the left margin.",
)
DUPLICATE_KEY = error(
    "A mapping contains the same key twice, so one of the two values would be lost.",
    "Keep one of them.",
)
SECOND_DOCUMENT = error(
    "A pod file must contain one YAML document only.",
    "Remove the `---` line, or split the file.",
)
DOCUMENT_END = error(
    "In YAML, a line `...` ends the document, so the lines after it would be lost.",
    "To insert the pod's defaults, write `- ...`, with the dash.",
)
ALIAS_BOMB = error(
    "Aliases contain themselves, or expand to an unreasonably large document.",
    "Write the values out.",
)
JSON_SYNTAX = error(
    "A descriptor, or `claw.lock`, is not JSON.",
    "Correct the text at that place.",
)
DOTENV_SYNTAX = error(
    "A line of `.env` is not `NAME=value`, or a quote is not closed.",
    "Write `NAME=value`. A value that begins with a quote must end with the same quote.",
)
BAD_INTERPOLATION = error(
    "A `${` does not begin a variable that Compose can read.",
    "Write `${NAME}`, or `$$` for a literal `$`.",
)
UNSET_VARIABLE = error(
    "A value that the compiler needs contains a variable that is not set and has no default.",
    (
        "Set the variable in the environment or in the `.env` file next to the pod file, or "
        "write `${NAME:-default}`."
    ),
)
UNWRITABLE_OUTPUT = error(
    "The output directory can't be written, or contains files that the compiler did not write.",
    "Choose another directory with `-o`.",
)
BAD_MASTER_SECRET = error(
    "The pod's master secret has fewer than 16 characters, or can't be read.",
    (
        "Set CLAW_MASTER_SECRET, or delete `.claw-master`. The next compile then makes a new "
        "secret, and every agent gets a new token."
    ),
)

# Codes about what agents may do: grants, credentials, networks, and what an agent reaches directly.

UNKNOWN_SERVICE = error(
    "No service of the pod has that name.",
    "Correct the name.",
)
UNKNOWN_AGENT = error(
    "No agent of the pod has that name. With `count`, the names are `name-0`, `name-1`, ….",
    "Correct the name.",
)
UNKNOWN_TOOL = error(
    "The service's descriptor declares no tool of that name.",
    "Correct the name.",
)
NO_DESCRIPTOR = error(
    "A service whose tools are granted has no descriptor.",
    (
        "Name one with `x-claw.describe-file`, keep a `.claw-describe.json` in the service's "
        "build context (which must be inside the pod's directory), or run `claw discover "
        "SERVICE` once."
    ),
)
NO_TOOLS = error(
    "A service whose tools are granted declares none.",
    "Declare them in its descriptor.",
)
PRESENTED_NAME = warning(
    (
        "Models see a tool as `service__tool`, in at most 64 characters of `[A-Za-z0-9_-]`. "
        "This name would be too long, or two tools of an agent would share it. So it is cut, "
        "and 8 hex digits of a digest of the tool's full name follow."
    ),
    (
        "Give the service or the tool a shorter or a more distinct name. Or leave it: the tool "
        "works."
    ),
)
TOOLS_WITHOUT_CLLAMA = error(
    "An agent has tools, its own or inherited, but no proxy to run them.",
    "Add `cllama: passthrough`, or remove the tools with `tools: []`.",
)
WRITE_GRANTED_BY_ALL = warning(
    (
        "`allow: all` grants tools that change something, and will also grant every tool that "
        "the service adds later."
    ),
    "List the tools by name, or exclude some with `deny: [tool, …]`.",
)
GRANT_BESIDE_SURFACE = warning(
    (
        "The agent has a grant for this service and also reaches it directly, so it can bypass "
        "the proxy that governs its tool calls."
    ),
    "Remove the surface. The grant works without it.",
)
GRANT_WITHOUT_SURFACE = error(
    (
        "The pod has `strict-surfaces: true`, and the agent has a grant for a service but no "
        "surface for it."
    ),
    "Add `service://…` to the agent's `surfaces`, or remove `strict-surfaces`.",
)
TOKEN_VISIBLE_TO_AGENT = error(
    (
        "An agent gets a secret that only the proxy or a service may have: a service's token, a "
        "provider's key, the pod's master secret, or another agent's token. With it, the agent "
        "could bypass the proxy."
    ),
    "Don't give it to the agent. The proxy has it, and uses it on the agent's behalf.",
)
PROVIDER_KEY_VARIABLE = error(
    (
        "An agent gets a variable that holds a provider's key, or a value that contains such a "
        "variable. Only the agent's own token may be there. The variable's present value does "
        "not matter, because Compose reads the variable again when the pod starts."
    ),
    (
        "Remove it: the compiler gives the runner its token. Put the provider's key into "
        "`x-claw.cllama-env`."
    ),
)
PROVIDER_KEY_VALUE = error(
    (
        "An agent gets a value that looks like a provider's key (`sk-…`, `sk-ant-…`, `sk-or-…`, "
        "`AIza…`, `xai-…`, …)."
    ),
    "Remove it. Put the provider's key into `x-claw.cllama-env`.",
)
PRIVATE_MOUNT = error(
    (
        "An agent gets the compiled tree, the pod's master secret, `.env`, a file with one of "
        "the pod's secrets, or a volume or secret of its proxy. It gets it through a mount, a "
        "volume that is bound to a path, `volumes_from`, `develop.watch`, a build context, "
        "`secrets` or `configs`."
    ),
    "Mount only the files that the agent needs, or a directory that contains only them.",
)
FOLDER_PARTLY_READ = warning(
    (
        "An agent gets a folder in which the compiler did not search every file for "
        "credentials, because there are too many files, or some are too large or too deeply "
        "nested."
    ),
    "Mount a smaller folder, or make sure that the other files contain no credential.",
)
AGENT_NETWORK_MODE = error(
    (
        "An agent with `network_mode` is on a network that the compiler did not derive, and can "
        "bypass its proxy."
    ),
    "Remove `network_mode`, and list what the agent reaches in `surfaces`.",
)
PROVIDER_NETWORK_MODE = error(
    (
        "A service that the proxy calls has `network_mode`, so the compiler can't put it on a "
        "network with the proxy."
    ),
    "Remove `network_mode`, or set `x-claw.base-url` to the address where the proxy reaches it.",
)
COUNTED_REFERENCE = error(
    "A key refers to the container of a service, but `count` makes several containers of it.",
    "Name one of them, such as `analyst-0`.",
)
EXTENDS_AGENT = error(
    "A service extends an agent, and so would also get the agent's credential and networks.",
    "Put what both share into a third service, or behind a YAML anchor.",
)
AGENT_ON_OWN_NETWORK = warning(
    (
        "The pod file puts an agent on a network, where the agent reaches every other container "
        "without its proxy."
    ),
    "Remove `networks` from the agent, and list what it reaches in `surfaces`.",
)
PORTS_NOT_PUBLISHED = warning(
    (
        "Docker publishes no ports of a container that is on internal networks only, and an "
        "agent without `egress://` is."
    ),
    "Give the agent the surface `egress://`, or remove `ports`.",
)
MANY_NETWORKS = warning(
    "The pod needs more networks than Docker's default address pools provide (about 30).",
    "Raise `default-address-pools` in the Docker daemon's configuration.",
)
AGENT_TAKES_HOST = warning(
    (
        "An agent could take over its host, because it has privileges, a capability, a device, "
        "the socket or group of a container engine, or a directory of the host itself. Then no "
        "rule of the pod holds for it."
    ),
    (
        "Remove it. Or move what needs it into a service of its own, and give the agent a tool "
        "of that service."
    ),
)
UNKNOWN_FEED = error(
    "No service of the pod declares a feed of that name.",
    "Correct the name.",
)
AMBIGUOUS_FEED = error(
    "Several services declare a feed of that name.",
    "Write it in full: `service/feed`.",
)
NO_MEMORY = error(
    "The service that an agent's `memory` names declares no `memory`.",
    "Declare it in the service's descriptor.",
)
MEMORY_WITHOUT_CLLAMA = error(
    "An agent has a memory, its own or inherited, but no proxy to use it.",
    "Add `cllama: passthrough`, or remove the memory with `memory: null`.",
)
NEEDS_CLLAMA = warning(
    (
        "An agent has feeds, context blocks or a budget, its own or inherited, but no proxy to "
        "apply them."
    ),
    "Add `cllama: passthrough`, or remove them with `null`.",
)
BAD_SKILL = error(
    (
        "The front matter of a skill is not closed, or has no `description`. The agent reads "
        "the description to know when to use the skill."
    ),
    "Begin the file with `---`, `description: …`, `---`, or leave the front matter out.",
)
SKILL_TWICE = error(
    "Two skills of an agent have the same file name. The agent could not tell them apart.",
    "Rename one of the files.",
)
SKILL_HIDDEN = warning(
    "A skill of an agent has the same name as a skill of a service, and replaces it.",
    "Rename the file, or leave it if that is intended.",
)
SKILL_MISSING = warning(
    (
        "A descriptor names a skill, but the file is neither next to the descriptor nor in the "
        "build context."
    ),
    "Keep a copy of the skill next to the descriptor, or remove `skill`.",
)
SKILL_TELLS_ENDPOINTS = warning(
    (
        "A skill contains the address or a path of a service that provides tools. An agent "
        "calls tools by name and has no use for the address. If it can reach the service "
        "directly, the address lets it bypass the proxy."
    ),
    "Describe the tools by their names.",
)
UNKNOWN_SECRET = error(
    "The pod declares no secret of that name.",
    "Declare it: `x-claw.secrets: {NAME: {env: VARIABLE}}`, or `{file: ./path}`.",
)
SEVERAL_PROXIES = error(
    "The agents of a pod ask for proxies of several types, but a pod has one proxy.",
    "Choose one type.",
)
PROXY_ENV_CONFLICT = error(
    "Two agents give one variable of the proxy different values, but a pod has one proxy.",
    "Give it one value, preferably in `cllama-defaults.env`.",
)
BAD_EGRESS = error(
    (
        "`CLLAMA_EGRESS` is neither `allow` nor `deny`. An empty or misspelt value must not "
        "decide which traffic may leave the pod."
    ),
    "Remove it (the default is `deny`), or write `allow` or `deny`.",
)
COUNTED_PROVIDER = error(
    (
        "A service with `count` is used by its own name, but no container has that name: they "
        "are called `name-0`, `name-1`, …."
    ),
    "Name one of them, or move what it provides into a service of its own, without `count`.",
)
ORDINAL_COLLISION = error(
    "`count` makes an agent with the name of another service.",
    "Rename one of the two services.",
)
RESERVED_NAME = error(
    (
        "A service, network, volume or secret has a name that the compiler or the original "
        "system uses itself."
    ),
    "Rename it.",
)
SAME_HOST = error(
    (
        "The names of two services differ in upper and lower case only, and host names do not "
        "distinguish these."
    ),
    "Rename one of them.",
)
BAD_BASE_URL = error(
    "A base URL must be http(s)://host[:port][/path], without user, query or fragment.",
    "Correct it.",
)
BAD_PORT = error(
    "An entry of `expose` or `ports` names no port number.",
    "Correct it, or set `x-claw.base-url`.",
)
PORT_RANGE = error(
    "The service has a range of ports, which does not say on which one it listens.",
    "Set `x-claw.base-url`.",
)
SEVERAL_PORTS = warning(
    "The service has several TCP ports, and the first one is used.",
    "Choose a port with `x-claw.base-url`.",
)
NO_PORT = warning(
    "The service has no TCP port, so port 80 is used.",
    "Add `expose`, or set `x-claw.base-url`.",
)
TOKEN_MISSING = error(
    "A service requires a credential, but the variable for it is missing or empty.",
    "Set the variable in the environment of the service that provides the tools.",
)
BAD_TOKEN = error(
    "A credential contains characters that an HTTP header can't carry.",
    "Use visible ASCII characters.",
)
BAD_FEED = error(
    "The proxy could not make a request from a feed's name, path or TTL.",
    "Correct the feed.",
)
BEARER_ONLY = error(
    (
        "The proxy requests feeds and memories with a bearer token or without a credential, but "
        "the service requires another kind of credential."
    ),
    "Give the agent its own `service-auth`, or let the service accept a bearer token.",
)
UNPINNED_IMAGE = warning(
    (
        "The image of an agent, or of a service that an agent uses, has no tag or the tag "
        "`latest`, so another image may run tomorrow."
    ),
    "Name a version (`api:1.4.2`) or a digest (`api@sha256:…`).",
)

# Codes of a compile for Kubernetes.

NOT_CARRIED = warning(
    "A Compose key has no counterpart in the Kubernetes manifests, and is left out.",
    "Set it with kubectl or kustomize, or remove it.",
)
MADE_BY_HAND = warning(
    "The manifests refer to an object or an image that the compiler does not make.",
    "Create it before you apply them.",
)
SHARED_REACH = warning(
    (
        "A Kubernetes network policy can't distinguish an agent from its proxy. So on the ports "
        "of its `service://` surfaces, the agent also reaches the other services that its proxy "
        "calls."
    ),
    (
        "Provide what the agent needs as tools instead, or let those services listen on other "
        "ports. The credentials stay with the proxy in any case."
    ),
)
SURFACE_REDIRECTED = error(
    (
        "In Kubernetes, what a transparent agent sends to ports 80 and 443 is redirected to its "
        "proxy, which refuses it. The service of a surface listens on no other port."
    ),
    "Let the service listen on another port, or give the agent another `mode`.",
)
SURFACE_PARTLY_REDIRECTED = warning(
    (
        "In Kubernetes, what a transparent agent sends to ports 80 and 443 is redirected to its "
        "proxy, which refuses it, even if a surface allows it."
    ),
    "Use other ports for what the agent needs, or give the agent another `mode`.",
)
DUPLICATE_OBJECT = error(
    (
        "Two parts of the pod would become the same Kubernetes object, and the one that is "
        "applied last would replace the other."
    ),
    "Rename one of them.",
)
KUBERNETES_NAME = error(
    (
        "A service's name becomes a host name, which in Kubernetes matches "
        "`[a-z]([-a-z0-9]*[a-z0-9])?` and has at most 63 characters. `kubernetes` is reserved "
        "for the cluster's API."
    ),
    "Rename the service.",
)
NO_IMAGE = error(
    "Kubernetes runs images, and the service names none.",
    "Name one with `image`.",
)
PROXYS_USER = error(
    (
        "In Kubernetes, only the proxy's user may send traffic out of an agent's pod, and the "
        "agent runs as the same user."
    ),
    "Give the agent another `user`.",
)
UNSHARED_STATE = error(
    (
        "A fleet (`--topology gateway`) has several proxies, and any of them may get a request, "
        "so they need one state server. `CLAW_STATE` names none: it is not set, is a file, is "
        "not a valid URL, or is an address that each proxy has for itself."
    ),
    (
        "Name a Valkey or Redis in `cllama-defaults`: `env: {CLAW_STATE: "
        "'redis://valkey:6379/0'}`. In a password, write `@` as `%40` and `/` as `%2F`."
    ),
)
TRANSPARENT_GATEWAY = error(
    (
        "In a fleet (`--topology gateway`), the proxy is in another pod than its agent, so the "
        "agent's traffic can't be redirected to it."
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
        "What `claw check` and `claw compile` report. After an error nothing is written; a warning "
        "changes nothing.\n"
        "This page is generated from the registry: `python -m claw_compile.codes > "
        "docs/diagnostics.md`.\n"
    )
    parts = (
        f"## {code.name}\n\n*{code.severity}* · {code.meaning}\n\n{code.remedy}\n"
        for _, code in sorted(CODES.items())
    )
    return "\n".join([intro, *parts])


if __name__ == "__main__":
    sys.stdout.write(page())
