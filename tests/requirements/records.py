"""The records of a turn: history and the log."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "history:every-dialect": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "History and log tell a turn in the same words in every dialect.",
    ),
    "history:round-usage": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "The usage of each round has the same member names in every dialect.",
    ),
    "history:chain": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Each line holds the hash of the one before; edits show.",
    ),
    "history:restart": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "A restart continues the chain, however long the last line.",
    ),
    "history:torn-line": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "A torn last line breaks neither chain nor next line.",
    ),
    "history:rotation": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Rotation by size keeps the chain and as many older files as the setting says; a crash within loses nothing.",
    ),
    "history:free-turns-short": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Of a turn that failed and cost nothing, as one that the provider refused, only the beginning of each body is kept.",
    ),
    "history:in-pieces": Requirement(
        "docs/spec/inspect.md, redaction",
        "A secret that a stream says in pieces is in no line of history, nor in its transcript.",
    ),
    "history:bodies": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Bodies keep their exact JSON; long ones are cut with a mark.",
    ),
    "history:results": Requirement(
        "docs/spec/contract.md, history.jsonl", "Results keep their exact JSON, in one line."
    ),
    "log:error-code": Requirement(
        "docs/spec/contract.md, the log",
        "The error event of a turn that failed says why, in a word of ours, in every dialect.",
    ),
    "history:withheld": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "Granted tools that a model was not shown are recorded, each with the reason.",
    ),
    "log:history-hash": Requirement(
        "decision 0027",
        "The event that ends a turn names its line of history: a cut at a line's end shows to who has the log.",
    ),
    "log:history-cut": Requirement(
        "decision 0027",
        "A file of history that is less than the proxy left is told once; one that was rotated is not.",
    ),
    "history:no-file": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "What stands in place of a file of history, and is none, is an error and stops nothing.",
    ),
    "log:shape": Requirement(
        "docs/spec/contract.md, the log", "One JSON object a line, with the common members."
    ),
    "log:unseen": Requirement(
        "docs/spec/contract.md, the log",
        "No name of a model, a tool or a path ends a line for any reader, moves a terminal's cursor or turns text around.",
    ),
    "log:json-only": Requirement(
        "docs/spec/contract.md, the log", "stdout is one JSON object a line, whatever goes wrong."
    ),
    "log:no-chatter": Requirement(
        "docs/spec/contract.md, The log",
        "What mitmproxy and clients say of each request is not made into records that nobody reads.",
    ),
}
