"""What a service says of itself."""

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
    "A tool has no description: a model has only the name to tell what it is for.",
    "Say in one sentence what it does, and when to use it.",
)
HIDDEN_TEXT = warning(
    "hidden-text",
    "A tool's name, description or schema holds characters that nobody sees (control characters, marks of direction, letters"
    " without a glyph), by which a model can be told what a reviewer does not read.",
    "Look at the text with these characters shown, and remove them.",
)
