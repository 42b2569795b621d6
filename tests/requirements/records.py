"""What is told of a turn: history and the log."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "history:every-dialect": Requirement(
        "contract, history and log", "History and log tell a turn in the same words in every dialect."
    ),
    "history:round-usage": Requirement(
        "contract, history.jsonl", "The usage of each round has the same member names in every dialect."
    ),
    "history:chain": Requirement("contract, history", "Each line holds the hash of the one before; edits show."),
    "history:restart": Requirement("contract, history", "A restart continues the chain, however long the last line."),
    "history:torn-line": Requirement("contract, history", "A torn last line breaks neither chain nor next line."),
    "history:rotation": Requirement("contract, history", "Rotation by size keeps the chain."),
    "history:in-pieces": Requirement(
        "inspect, redaction", "A secret that a stream says in pieces is in no line of history, nor in its transcript."
    ),
    "history:bodies": Requirement("contract, history", "Bodies keep their exact JSON; long ones are cut with a mark."),
    "log:error-code": Requirement(
        "contract, the log", "The error event of a turn that failed says why, in a word of ours, in every dialect."
    ),
    "history:withheld": Requirement(
        "issue 6.4", "Granted tools that a model was not shown are recorded, each with the reason."
    ),
    "log:history-hash": Requirement(
        "issue 6.4",
        "The event that ends a turn names its line of history: a cut at a line's end shows to who has the log.",
    ),
    "log:history-cut": Requirement(
        "issue 6.4", "A file of history that is less than the proxy left is told once; one that was rotated is not."
    ),
    "history:no-file": Requirement(
        "contract, history", "What stands in place of a file of history, and is none, is an error and stops nothing."
    ),
    "log:shape": Requirement("contract, the log", "One JSON object a line, with the common members."),
    "log:json-only": Requirement("contract, the log", "stdout is one JSON object a line, whatever goes wrong."),
    "log:no-chatter": Requirement(
        "issue 3, bench", "What mitmproxy and clients say of each request is not made into records that nobody reads."
    ),
}
