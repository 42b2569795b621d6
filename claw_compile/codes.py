"""Every code that the compiler can report: the one registry, from which ``docs/diagnostics.md`` is printed.

``python -m claw_compile.codes > docs/diagnostics.md`` makes the page again. A code, once published, keeps its name.
"""

from __future__ import annotations

import sys

from claw_compile.diagnostic import Code, Severity

CODES: dict[str, Code] = {}


def _code(severity: Severity, name: str, meaning: str, remedy: str) -> Code:
    code = Code(name, severity, meaning, remedy)
    assert name not in CODES
    CODES[name] = code
    return code


def _error(name: str, meaning: str, remedy: str) -> Code:
    return _code("error", name, meaning, remedy)


def _warning(name: str, meaning: str, remedy: str) -> Code:
    return _code("warning", name, meaning, remedy)


# Files

UNREADABLE_FILE = _error(
    "unreadable-file",
    "A file that the pod needs does not exist, is not a regular file, or may not be read.",
    "Correct the path (it is relative to the pod file), or make the file readable.",
)
PATH_ESCAPES_POD = _error(
    "path-escapes-pod",
    "A path leads out of the pod's directory, by itself or through a symlink.",
    "Move or copy the file into the pod's directory.",
)
NOT_UTF8 = _error("not-utf8", "A file is not UTF-8 text.", "Save the file as UTF-8.")
YAML_SYNTAX = _error("yaml-syntax", "The pod file is not YAML.", "Correct the indentation or quoting at that place.")
NOT_A_MAPPING = _error(
    "not-a-mapping", "The document is not a mapping.", "A pod file is a Compose file: `services:` at the left margin."
)
DUPLICATE_KEY = _error(
    "duplicate-key", "A mapping holds the same key twice, so that one of the two would be lost.", "Keep one of them."
)
SECOND_DOCUMENT = _error(
    "second-document", "A pod file holds one YAML document.", "Remove the `---` line, or split the file."
)
DOCUMENT_END = _error(
    "document-end",
    "A line that is just `...` ends a YAML document; everything behind it would be lost.",
    "To splice the pod's defaults write `- ...`, with the dash.",
)
ALIAS_BOMB = _error(
    "alias-bomb", "Anchors refer to themselves, or multiply into a document of unreasonable size.", "Write it out."
)
JSON_SYNTAX = _error("json-syntax", "A descriptor is not JSON.", "Correct the text at that place.")
DOTENV_SYNTAX = _error(
    "dotenv-syntax",
    "A line of `.env` is not `NAME=value`, or a quote is not closed.",
    "Write `NAME=value`; a value that begins with a quote ends with the same one.",
)
BAD_INTERPOLATION = _error(
    "bad-interpolation", "A `$` begins nothing that Compose can interpolate.", "Write `${NAME}`, or `$$` for a `$`."
)
UNSET_VARIABLE = _error(
    "unset-variable",
    "A value that the compiler needs names a variable that is not set, and gives no default.",
    "Set it in the environment or in the `.env` beside the pod file, or write `${NAME:-default}`.",
)
UNWRITABLE_OUTPUT = _error(
    "unwritable-output",
    "The output directory can't be written, or holds files that the compiler did not make.",
    "Choose another directory with `-o`.",
)
BAD_MASTER_SECRET = _error(
    "bad-master-secret",
    "The pod's master secret is shorter than 16 characters, or can't be read.",
    "Set CLAW_MASTER_SECRET, or delete `.claw-master`: the next compile makes a new one (agents get new tokens).",
)

# Grammar

UNKNOWN_KEY = _error("unknown-key", "A key under `x-claw` is not part of the grammar.", "Correct or remove it.")
MISSING_KEY = _error("missing-key", "A key that is required is not there.", "Add it.")
WRONG_TYPE = _error("wrong-type", "A value has another shape than its key takes.", "Give it the shape that is named.")
BAD_VALUE = _error("bad-value", "A value is not one of those that its key takes.", "Choose one of those named.")
BAD_NAME = _error(
    "bad-name", "A pod's name is `[a-z0-9][a-z0-9_-]*`: it names the Compose project.", "Choose such a name."
)
BAD_AGENT_ID = _error(
    "bad-agent-id",
    "An agent's service name becomes a directory and half of a credential: `[a-z0-9][a-z0-9._-]{0,62}`, no `..`.",
    "Rename the service.",
)
BAD_SERVICE_NAME = _error(
    "bad-service-name",
    "A service that provides tools needs a name that is a host name of at most 63 characters.",
    "Rename the service.",
)
NOT_AN_AGENT = _error(
    "not-an-agent", "A key that only an agent can have is on a service without `agent`.", "Add `agent: ./AGENTS.md`."
)
NO_AGENTS = _warning("no-agents", "The pod has no agent, so nothing is compiled.", "Give a service `x-claw.agent`.")
NOT_ACTED_ON = _warning(
    "not-acted-on",
    "The key belongs to the grammar, but this version does not act on it.",
    "Remove the key, or keep it for a later version: it does no harm.",
)
SPREAD_TWICE = _error("spread-twice", "`...` stands twice in one list.", "Keep one of them.")
SPREAD_WITHOUT_DEFAULTS = _error(
    "spread-without-defaults", "`...` stands for the pod's defaults, but there are none.", "Add them, or remove `...`."
)
UNUSED_DEFAULT = _warning(
    "unused-default",
    "No agent takes the pod's `tools-defaults`.",
    "Splice them with `- ...`, leave `tools` out to inherit them, or remove them.",
)
ALLOW_MISSING = _error(
    "allow-missing",
    "A grant without `allow`, or with an empty one, grants nothing; to grant everything is said in full.",
    "Write `allow: all` or `allow: [tool, …]`; to take a default back write `tools: []`.",
)
ALL_MIXED_WITH_NAMES = _error(
    "all-mixed-with-names", "`all` stands in a list of tool names.", "Write `allow: all`, or only names."
)
BAD_LIMIT = _error("bad-limit", "A limit is a positive integer up to 2147483647.", "Write such a number.")
TOTAL_BELOW_PER_TOOL = _error(
    "total-below-per-tool",
    "`total-timeout-ms` is less than `timeout-per-tool-ms`, so that no tool could use its time.",
    "Raise the one or lower the other; a limit that is left out takes its default.",
)
BAD_SURFACE = _error(
    "bad-surface",
    "A surface is `service://X`, `volume://N [ro|rw]`, `host:///abs [ro|rw]`, `channel://P` or `egress://`.",
    "Write it in one of these forms.",
)

# Authority

UNKNOWN_SERVICE = _error("unknown-service", "No service of the pod has that name.", "Correct the name.")
UNKNOWN_TOOL = _error("unknown-tool", "The service's descriptor declares no tool of that name.", "Correct the name.")
NO_DESCRIPTOR = _error(
    "no-descriptor",
    "A service whose tools are granted has no descriptor.",
    "Name one with `x-claw.describe-file`, or run `claw discover SERVICE` once.",
)
NO_TOOLS = _error("no-tools", "A service whose tools are granted declares none.", "Declare them in its descriptor.")
TOOLS_WITHOUT_CLLAMA = _error(
    "tools-without-cllama",
    "An agent has tools, its own or inherited, but no proxy that could run them.",
    "Add `cllama: passthrough`, or suppress the tools with `tools: []`.",
)
WRITE_GRANTED_BY_ALL = _warning(
    "write-granted-by-all",
    "`allow: all` grants tools that change things, and will grant those that the service adds later.",
    "Name the tools, or take some out with `deny: [tool, …]`.",
)
GRANT_BESIDE_SURFACE = _warning(
    "grant-beside-surface",
    "The agent reaches the service directly, and so can go round the proxy that governs its tools.",
    "Remove the surface: a grant works without one.",
)
GRANT_WITHOUT_SURFACE = _error(
    "grant-without-surface",
    "The pod has `strict-surfaces: true`, and the agent has a grant on a service without a surface on it.",
    "Add `service://…` to the agent's `surfaces`, or remove `strict-surfaces`.",
)

# Providers

BAD_BASE_URL = _error(
    "bad-base-url", "A base URL is http(s)://host[:port][/path], without user, query or fragment.", "Correct it."
)
BAD_PORT = _error("bad-port", "An entry of `expose` or `ports` holds no port.", "Correct it, or set `x-claw.base-url`.")
PORT_RANGE = _error(
    "port-range", "A range of ports does not say on which one the service listens.", "Set `x-claw.base-url`."
)
SEVERAL_PORTS = _warning(
    "several-ports", "The service has several TCP ports; the first is taken.", "Choose with `x-claw.base-url`."
)
NO_PORT = _warning(
    "no-port", "The service has no TCP port; port 80 is taken.", "Add `expose`, or set `x-claw.base-url`."
)
TOKEN_MISSING = _error(
    "token-missing",
    "A service wants a credential, and its environment holds none (missing or empty).",
    "Set the variable in the environment of the service that provides the tools.",
)
BAD_TOKEN = _error(
    "bad-token", "A credential holds characters that an HTTP header can't carry.", "Use visible ASCII characters."
)
TOKEN_VISIBLE_TO_AGENT = _error(
    "token-visible-to-agent",
    "An agent's environment holds a credential of a service, so that the agent can go round the proxy.",
    "Remove the variable from the agent: the proxy holds the credential for it.",
)

# Descriptors

DESCRIPTOR_VERSION = _error("descriptor-version", "A descriptor needs `version`: 1 or 2.", "Add it.")
DESCRIPTOR_NEEDS_V2 = _error(
    "descriptor-needs-v2", "`tools`, `mcp` and `memory` belong to version 2 of the descriptor.", "Set `version` to 2."
)
DESCRIPTOR_SHAPE = _error(
    "descriptor-shape", "A value of a descriptor is missing or has the wrong shape.", "Give it the shape that is named."
)
DESCRIPTOR_UNKNOWN_KEY = _warning(
    "descriptor-unknown-key", "A key of a descriptor is not part of its grammar, and is dropped.", "Correct or remove."
)
BAD_TOOL_NAME = _error("bad-tool-name", "A tool's name is `[A-Za-z0-9_-]{1,48}`.", "Choose such a name.")
DUPLICATE_TOOL = _error("duplicate-tool", "Two tools of one descriptor have the same name.", "Rename one of them.")
BAD_SCHEMA = _error(
    "bad-schema",
    "`inputSchema` is not an object schema, not valid JSON Schema, has a `pattern` that is no regular expression of"
    " ECMA-262, or refers to something outside of it.",
    'Write `{"type": "object", "properties": {…}}`; a `$ref` begins with `#`.',
)
HTTP_REQUIRED = _error("http-required", "A tool says neither how it is called by HTTP nor by MCP.", "Add `http`.")
HTTP_FORBIDDEN = _error("http-forbidden", "A tool has `http` although the service speaks MCP.", "Remove one of them.")
BAD_PATH = _error(
    "bad-path", "A path begins with `/` and holds no blank, `?`, `#`, `\\`, `.` or `..` segment.", "Correct the path."
)
PATH_PARAMETER = _error(
    "path-parameter",
    "A `{parameter}` of a path is not a required property of the tool's schema (`{claw_id}` apart).",
    "Add it to `properties` and to `required`.",
)
BAD_BODY = _error("bad-body", "`body_key` needs a method with a body: POST, PUT or PATCH.", "Remove `body_key`.")
BAD_ANNOTATION = _error("bad-annotation", "An annotation that the proxy acts on is of another type.", "Correct it.")
READ_ONLY_DELETE = _warning(
    "read-only-delete", "A tool says that it only reads, and its method is DELETE; it counts as a write.", "Correct it."
)
LONG_DESCRIPTION = _warning(
    "long-description", "A tool's description is over 1024 characters; every request carries it.", "Shorten it."
)


def page() -> str:
    """``docs/diagnostics.md``, from the registry."""
    intro = (
        "# Diagnostics\n\n"
        "What `claw check` and `claw compile` report. An error means that nothing is written; a warning changes nothing.\n"
        "This page is printed from the registry: `python -m claw_compile.codes > docs/diagnostics.md`.\n"
    )
    parts = [f"## {code.name}\n\n*{code.severity}* · {code.meaning}\n\n{code.remedy}\n" for code in _sorted_codes()]
    return "\n".join([intro, *parts])


def _sorted_codes() -> list[Code]:
    return [CODES[name] for name in sorted(CODES)]


if __name__ == "__main__":
    sys.stdout.write(page())
