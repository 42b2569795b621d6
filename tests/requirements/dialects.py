"""The protocols of model APIs: bytes that stay, blocks, streams, and runners from before tools."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "anthropic:blocks-survive": Requirement(
        "docs/spec/mediation.md section 4, The model's side",
        "Content blocks of every type (thinking with its signature, server tools, citations, unknown types) survive.",
    ),
    "anthropic:pairing": Requirement(
        "docs/spec/mediation.md section 7",
        "Every tool_use of the transcript is answered in the next message, and no other.",
    ),
    "anthropic:roles-alternate": Requirement(
        "docs/spec/mediation.md section 7",
        "Roles take turns after we insert and drop, also behind a message the runner began.",
    ),
    "anthropic:blank-text": Requirement(
        "docs/spec/mediation.md section 7",
        "Blank text, which the API gives and does not take, is not given back to it.",
    ),
    "anthropic:hidden-loop": Requirement(
        "docs/spec/mediation.md section 4",
        "The anthropic SDK gets one answer, or stream, of a turn with hidden rounds.",
    ),
    "anthropic:native-handed-back": Requirement(
        "docs/spec/mediation.md sections 4 and 7",
        "A native tool_use is handed back, and the follow-up has the hidden rounds.",
    ),
    "anthropic:credentials-swapped": Requirement(
        "docs/spec/mediation.md section 2",
        "Bearer and x-api-key both admit; the provider gets its own key in its own scheme, once.",
    ),
    "anthropic:count-tokens": Requirement(
        "docs/spec/mediation.md section 1",
        "count_tokens counts with the managed tools and the hidden rounds, and is no turn.",
    ),
    "anthropic:errors": Requirement(
        "docs/spec/mediation.md sections 2 and 4",
        "Errors have Anthropic's shape, the provider's keep their status.",
    ),
    "legacy:functions": Requirement(
        "docs/spec/mediation.md section 3, item 1",
        "functions and function_call become tools and tool_choice; none of them reaches the provider.",
    ),
    "legacy:history": Requirement(
        "docs/spec/mediation.md section 3",
        "Calls of functions with their answers become those of tools: the same ids in every request, other bytes untouched.",
    ),
    "legacy:reply": Requirement(
        "docs/spec/mediation.md section 3",
        "A runner that speaks of functions is handed a function_call, one a reply, also in a stream.",
    ),
    "legacy:anchor": Requirement(
        "docs/spec/mediation.md section 7",
        "A handoff without ids is found by name, canonical arguments, what was said, and order.",
    ),
    "legacy:provider": Requirement(
        "docs/spec/mediation.md section 3",
        "A provider's function_call is read as a tool call, so that none goes round the rules.",
    ),
    "blocks:thought": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Reasoning and signed thinking stay in the transcript and in the answer.",
    ),
    "blocks:end-reason": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "finish_reason and stop_reason are the provider's own.",
    ),
    "blocks:images": Requirement(
        "docs/spec/mediation.md section 3, item 5",
        "Images and other parts of messages stay where and as they are.",
    ),
    "blocks:openai-members": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Refusals, annotations and unknown members stay, hidden and shown.",
    ),
    "wire:byte-fidelity": Requirement(
        "docs/spec/mediation.md section 3, item 5",
        "Everything that is not ours stays byte for byte, whatever the document looks like.",
    ),
    "wire:large-bodies": Requirement(
        "decision 0002", "To read a request, nothing is made of its images."
    ),
    "wire:odd-content": Requirement(
        "docs/spec/mediation.md section 3, item 5",
        "A content of a form that we do not know passes as it is.",
    ),
    "wire:repeated-member": Requirement(
        "docs/spec/mediation.md section 3, item 5",
        "A member that we must read or change and that stands twice is refused.",
    ),
    "stream:sdks-hear-the-same": Requirement(
        "docs/spec/mediation.md section 6",
        "OpenAI's, Anthropic's and Vercel's SDKs, of Python and JavaScript, hear in a stream what the JSON answer says.",
    ),
    "stream:written-together": Requirement(
        "docs/spec/mediation.md section 6",
        "The events of an answer that is there are written together, not one by one.",
    ),
    "stream:errors-in-sdks": Requirement(
        "docs/spec/mediation.md section 6",
        "Each SDK raises its own error, with its status before the headers, and behind them too.",
    ),
    "stream:keepalive-kinds": Requirement(
        "docs/spec/mediation.md section 6",
        "A stream is kept alive by comments, natively or not at all, as it is set for its protocol.",
    ),
    "stream:usage": Requirement(
        "docs/spec/mediation.md section 6",
        "An OpenAI stream has a usage chunk if include_usage, and else none.",
    ),
    "stream:one-id": Requirement(
        "docs/spec/mediation.md section 6", "A stream has one id, also when a keepalive opened it."
    ),
    "stream:anthropic-lifecycle": Requirement(
        "docs/spec/mediation.md section 6",
        "An Anthropic stream is one lifecycle: one start, block indexes without gaps, delta, stop.",
    ),
    "stream:citations": Requirement(
        "docs/spec/mediation.md section 6", "Citations are streamed with deltas of their own."
    ),
    "stream:usage-always": Requirement(
        "docs/spec/mediation.md section 6", "The usage is always in an Anthropic stream."
    ),
    "stream:sdk-accepts": Requirement(
        "docs/spec/mediation.md section 6",
        "A stream is one well-formed lifecycle; the real SDK makes the same message of it.",
    ),
    "stream:same-as-json": Requirement(
        "docs/spec/mediation.md sections 4 and 6",
        "Put together as a client does, a stream is the response, in the same spellings.",
    ),
    "stream:unknown-fields": Requirement(
        "docs/spec/mediation.md section 4, the model's side", "Unknown fields are kept in a stream."
    ),
    "stream:keepalive-is-skipped": Requirement(
        "docs/spec/mediation.md section 6", "A keepalive is never a token: SDKs read over it."
    ),
    "stream:any-reply": Requirement(
        "docs/spec/mediation.md section 6",
        "Any response is refused as a whole, or streams so that the real SDK reads it.",
    ),
    "stream:same-verdict": Requirement(
        "docs/spec/mediation.md section 6",
        "A malformed answer is refused before the headers or delivered, streamed as unstreamed, and no retry of it is a fault.",
    ),
    "stream:keepalive": Requirement(
        "docs/spec/mediation.md section 6", "While the turn waits, the stream is kept alive."
    ),
    "stream:status-until-it-goes-on": Requirement(
        "docs/spec/mediation.md section 6", "Until the turn goes on an error keeps its own status."
    ),
    "stream:error-event": Requirement(
        "docs/spec/mediation.md section 6", "After the headers an error is an event, then [DONE]."
    ),
}
