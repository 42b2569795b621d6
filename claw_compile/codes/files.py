"""Files: what can't be read, or written."""

from __future__ import annotations

from claw_compile.codes.registry import error

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
