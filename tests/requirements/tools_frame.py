"""The frame of the tools host: who sees and calls which tool, arguments, results, providers, and the line of each call."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = "docs/spec/tools-host.md"

REQUIREMENTS: dict[str, Requirement] = {
    "tools:globs": Requirement(
        SPEC, "A glob has `*` and `?`, matches a whole name, and takes no long time for any text."
    ),
    "tools:visible-is-callable": Requirement(
        SPEC, "What a principal does not see in the list, it can't call."
    ),
    "tools:hidden-as-unknown": Requirement(
        SPEC, "A hidden tool is answered in the very words of an unknown one."
    ),
    "tools:no-globs-no-tools": Requirement(
        SPEC, "An empty list of globs is no tool, for a principal and for a request."
    ),
    "tools:internal": Requirement(
        SPEC, "Tools of an internal server are there only on a request whose globs name them."
    ),
    "tools:never-wider": Requirement(
        SPEC, "The globs of a request never give what those of the principal do not."
    ),
    "tools:bad-meta": Requirement(
        SPEC, "`claw/allowedTools` that is no list of globs, or too long, is refused."
    ),
    "tools:registration": Requirement(
        SPEC, "A tool replaces one of its name; one with a bad schema is refused."
    ),
    "tools:schemas": Requirement(
        SPEC, "`schemas()` and `schemas_for_tools()` give what can be called, in OpenAI's shape."
    ),
    "tools:own-principal": Requirement(SPEC, "A principal's tools are its own."),
    "tools:arguments": Requirement(
        SPEC, "Arguments that do not fit the schema are refused before the tool runs, in 2 KiB."
    ),
    "tools:strict-json": Requirement(
        SPEC, "Arguments with a repeated key, NaN, deep nesting or half a character are refused."
    ),
    "tools:exact-numbers": Requirement(
        SPEC, "A number keeps its exact value on the way to a tool and back."
    ),
    "tools:timeout": Requirement(
        SPEC, "A tool that hangs past its time is ended, and answered with `timeout`."
    ),
    "tools:faults": Requirement(
        SPEC, "A fault of a tool is answered without its text, which is in the log of the host."
    ),
    "tools:limits": Requirement(
        SPEC, "A principal has so many calls at once and in a minute; one more is `busy`."
    ),
    "tools:cut": Requirement(
        SPEC,
        "A result over 64 KiB is valid JSON within 64 KiB, and says so, whatever it is made of.",
    ),
    "tools:leaves": Requirement(
        SPEC,
        "No tool's result leaves the host with a text of more than 64 KiB, whatever characters it has.",
    ),
    "tools:typed": Requirement(
        SPEC, "Each property of a built-in tool's schema has a type, and each `enum` beside it."
    ),
    "tools:cut-fast": Requirement(
        SPEC, "Cutting takes time in proportion to the result, whatever it is made of."
    ),
    "tools:no-json": Requirement(SPEC, "A result that is no JSON is the tool's failure."),
    "tools:results": Requirement(
        SPEC, "`structuredContent` is an object, and the text block is the same JSON."
    ),
    "tools:errors-capped": Requirement(
        SPEC, "An error's message has at most 2 KiB, whatever characters it has."
    ),
    "tools:audit": Requirement(
        SPEC, "Each call is one line: done, failed, refused, unknown or cancelled."
    ),
    "tools:audit-refusals": Requirement(
        SPEC,
        "Of calls that nobody ran, a principal has 60 lines a minute; the next one says how many were left out.",
    ),
    "tools:audit-arguments": Requirement(
        SPEC, "A line has names and a digest of the arguments; all of them with `full` only."
    ),
    "tools:namespaces": Requirement(
        SPEC, "A namespace is taken once; `builtin`, `__` and other signs are refused."
    ),
    "tools:published-names": Requirement(
        SPEC, "A provider's tool has a name that models and pods take, and no two have one."
    ),
    "tools:bad-definitions": Requirement(
        SPEC, "A provider's tool that can't be offered is left out, and costs no other one."
    ),
    "tools:no-shadowing": Requirement(SPEC, "No provider can take the place of a built-in tool."),
    "tools:refresh": Requirement(
        SPEC,
        "Listing a provider's tools anew never shows half of it; a failure leaves the old list.",
    ),
    "tools:entry-points": Requirement(
        SPEC, "An installed package adds a provider by an entry point; a broken one is told."
    ),
}
