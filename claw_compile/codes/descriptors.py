"""Codes about descriptors: their content, their source, and the files of a pod."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

DESCRIPTOR_VERSION = error("descriptor-version", "A descriptor needs `version`: 1 or 2.", "Add it.")
DESCRIPTOR_NEEDS_V2 = error(
    "descriptor-needs-v2", "`tools`, `mcp` and `memory` belong to version 2 of the descriptor.", "Set `version` to 2."
)
DESCRIPTOR_SHAPE = error(
    "descriptor-shape", "A value of a descriptor is missing or has the wrong shape.", "Give it the shape that is named."
)
DESCRIPTOR_UNKNOWN_KEY = warning(
    "descriptor-unknown-key",
    "A key of a descriptor, or an annotation `x-claw.…`, is not part of the grammar, and does nothing.",
    "Correct or remove it.",
)
BAD_TOOL_NAME = error("bad-tool-name", "A tool's name is `[A-Za-z0-9_-]{1,48}`.", "Choose such a name.")
DUPLICATE_TOOL = error("duplicate-tool", "Two tools of one descriptor have the same name.", "Rename one of them.")
BAD_SCHEMA = error(
    "bad-schema",
    "`inputSchema` is not an object schema, not valid JSON Schema, has a `pattern` that is no regular expression of"
    " ECMA-262, or refers to something outside of it.",
    'Write `{"type": "object", "properties": {…}}`; a `$ref` begins with `#`.',
)
SCHEMA_TOO_LARGE = error(
    "schema-too-large",
    "`inputSchema` has over 65536 characters, or nests more than 24 deep: every request would carry it.",
    "Take fewer parameters, or describe them in fewer words.",
)
HTTP_REQUIRED = error("http-required", "A tool says neither how it is called by HTTP nor by MCP.", "Add `http`.")
HTTP_FORBIDDEN = error("http-forbidden", "A tool has `http` although the service speaks MCP.", "Remove one of them.")
BAD_PATH = error(
    "bad-path",
    "A path begins with `/` and holds no blank, `?`, `#`, `\\`, `.` or `..` segment; a feed's may hold `?`, and of"
    " parameters only `{claw_id}`.",
    "Correct the path.",
)
PATH_PARAMETER = error(
    "path-parameter",
    "A `{parameter}` of a path is not a required single value of the tool's schema (`{claw_id}` apart).",
    "Add it to `properties` and to `required`.",
)
BAD_BODY = error("bad-body", "`body_key` needs a method with a body: POST, PUT or PATCH.", "Remove `body_key`.")
BAD_ANNOTATION = error("bad-annotation", "An annotation that the proxy acts on is of another type.", "Correct it.")
EFFECT_CONFLICT = warning(
    "effect-conflict",
    "Annotations of a tool contradict each other: `readOnly` and `readOnlyHint` differ (`readOnly` wins), or it only reads"
    " and yet is destructive.",
    "Remove one of them.",
)
READ_ONLY_DELETE = warning(
    "read-only-delete", "A tool says that it only reads, and its method is DELETE; it counts as a write.", "Correct it."
)
LONG_DESCRIPTION = warning(
    "long-description", "A tool's description is over 1024 characters; every request carries it.", "Shorten it."
)
MISSING_DESCRIPTION = warning(
    "missing-description",
    "A tool has no description: a model has only the name to go by.",
    "Say in one sentence what it does, and when to use it.",
)
HIDDEN_TEXT = warning(
    "hidden-text",
    "A tool's name, description or schema holds characters that nobody sees (control characters, marks of direction, letters"
    " without a glyph), which can say to a model what a reviewer does not read.",
    "Look at the text with these characters shown, and remove them.",
)


NO_SNAPSHOT = error(
    "no-snapshot",
    "A service wraps a stdio server, and nothing says which tools that server has.",
    "Run `claw discover SERVICE` once and keep what it writes, or name a descriptor with `x-claw.describe-file`.",
)
STALE_SNAPSHOT = warning(
    "stale-snapshot",
    "A snapshot in `.claw-discovered/` was taken from another command or image. That of a stdio server is used all the"
    " same; that of an image is ignored.",
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
    "`claw.lock` is damaged, was edited by hand, or is of a newer claw; it is not used.",
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


UNREADABLE_FILE = error(
    "unreadable-file",
    "A file that the pod needs does not exist, is not a regular file, or may not be read.",
    "Correct the path (it is relative to the pod file), or make the file readable.",
)
PATH_ESCAPES_POD = error(
    "path-escapes-pod",
    "A path leads out of the pod's directory, by itself or through a symlink.",
    "Move or copy the file into the pod's directory.",
)
NOT_UTF8 = error("not-utf8", "A file is not UTF-8 text.", "Save the file as UTF-8.")
YAML_SYNTAX = error("yaml-syntax", "The pod file is not YAML.", "Correct the indentation or quoting at that place.")
NOT_A_MAPPING = error(
    "not-a-mapping", "The document is not a mapping.", "A pod file is a Compose file: `services:` at the left margin."
)
DUPLICATE_KEY = error(
    "duplicate-key", "A mapping holds the same key twice, so that one of the two would be lost.", "Keep one of them."
)
SECOND_DOCUMENT = error(
    "second-document", "A pod file holds one YAML document.", "Remove the `---` line, or split the file."
)
DOCUMENT_END = error(
    "document-end",
    "A line that is just `...` ends a YAML document; everything behind it would be lost.",
    "To splice the pod's defaults write `- ...`, with the dash.",
)
ALIAS_BOMB = error(
    "alias-bomb", "Anchors refer to themselves, or multiply into a document of unreasonable size.", "Write it out."
)
JSON_SYNTAX = error("json-syntax", "A descriptor, or `claw.lock`, is not JSON.", "Correct the text at that place.")
DOTENV_SYNTAX = error(
    "dotenv-syntax",
    "A line of `.env` is not `NAME=value`, or a quote is not closed.",
    "Write `NAME=value`; a value that begins with a quote ends with the same one.",
)
BAD_INTERPOLATION = error(
    "bad-interpolation", "A `${` begins nothing that Compose can interpolate.", "Write `${NAME}`, or `$$` for a `$`."
)
UNSET_VARIABLE = error(
    "unset-variable",
    "A value that the compiler needs names a variable that is not set, and gives no default.",
    "Set it in the environment or in the `.env` beside the pod file, or write `${NAME:-default}`.",
)
UNWRITABLE_OUTPUT = error(
    "unwritable-output",
    "The output directory can't be written, or holds files that the compiler did not make.",
    "Choose another directory with `-o`.",
)
BAD_MASTER_SECRET = error(
    "bad-master-secret",
    "The pod's master secret is shorter than 16 characters, or can't be read.",
    "Set CLAW_MASTER_SECRET, or delete `.claw-master`: the next compile makes a new one (agents get new tokens).",
)
