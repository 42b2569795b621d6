"""The channels of an item's events, and the types of those events in the Responses API.

docs/spec/responses.md section 7. The channels:

    channel              events
    ───────────────────  ───────────────────────────────────────────────────────────
    added, done          response.output_item.added, .done
    part.N.added, .done  response.content_part.added, .done
    part.N.text          the deltas of output_text or reasoning_text
    part.N.refusal       the deltas of refusal
    part.N.annotation    response.output_text.annotation.added
    summary.N.…          the same of a part of a summary: added, text, done
    arguments, input     the deltas of function_call_arguments, custom_tool_call_input
    ….text.done, …       the last event of a text
    any other            events of types that a body does not tell of, by their type
"""

from typing import Final, NamedTuple

ADDED: Final = "added"
DONE: Final = "done"
ITEM_ADDED: Final = "response.output_item.added"
ITEM_DONE: Final = "response.output_item.done"
PLACES: Final = ("content_index", "summary_index")
"""The members of an event that say which part it belongs to."""
PART_PREFIXES: Final = ("part.", "summary.")
"""The beginnings of the channels of a part."""


class Form(NamedTuple):
    """A type of event of an item's parts and texts."""

    prefix: str  # Of the channel: "part", "summary", or "" for the item itself
    suffix: str  # Of the channel
    text: str = ""  # The member with the text: of a delta, or of the end of a text


FORMS: Final = {
    "response.content_part.added": Form("part", "added"),
    "response.content_part.done": Form("part", "done"),
    "response.output_text.delta": Form("part", "text", "delta"),
    "response.output_text.done": Form("part", "text.done", "text"),
    "response.output_text.annotation.added": Form("part", "annotation"),
    "response.refusal.delta": Form("part", "refusal", "delta"),
    "response.refusal.done": Form("part", "refusal.done", "refusal"),
    "response.reasoning_text.delta": Form("part", "text", "delta"),
    "response.reasoning_text.done": Form("part", "text.done", "text"),
    "response.reasoning_summary_part.added": Form("summary", "added"),
    "response.reasoning_summary_part.done": Form("summary", "done"),
    "response.reasoning_summary_text.delta": Form("summary", "text", "delta"),
    "response.reasoning_summary_text.done": Form("summary", "text.done", "text"),
    "response.function_call_arguments.delta": Form("", "arguments", "delta"),
    "response.function_call_arguments.done": Form("", "arguments.done", "arguments"),
    "response.custom_tool_call_input.delta": Form("", "input", "delta"),
    "response.custom_tool_call_input.done": Form("", "input.done", "input"),
}


def is_closing(channel: str) -> bool:
    """Return True if the events of a channel end the item, or a part of it."""
    return channel == DONE or channel.endswith(".done")
