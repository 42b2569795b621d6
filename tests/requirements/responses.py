"""OpenAI's Responses protocol. A number in parentheses is that of an edge case of the issue's specification."""

from __future__ import annotations

from tests.requirements.requirement import Requirement


def _of(section: int, behavior: str) -> Requirement:
    return Requirement(f"docs/spec/responses.md section {section}", behavior)


REQUIREMENTS: dict[str, Requirement] = {
    "responses:not-mediated": _of(
        1, "What can't be mediated passes under policy and budget, with one event that says why."
    ),
    "responses:injection": _of(
        3, "Managed tools stand behind the runner's, each with `strict: false` (#5)."
    ),
    "responses:text-input": _of(
        3, "An `input` that is a text stays one until a round is put behind it (#1, #2)."
    ),
    "responses:choice": _of(
        3,
        "A forced choice names the alias, and is `auto` after the first managed answer (#26, #27, #28).",
    ),
    "responses:items": _of(
        4,
        "Every form of call is judged in its order, and rejected in its own form (#10, #11, #12, #13); "
        "all else is kept (#14, #16).",
    ),
    "responses:arguments": _of(
        4, "A call's arguments run as they came or not at all (#19, #20, #21)."
    ),
    "responses:members": _of(
        3, "What only the provider acts on stays in every model call (#24, #25, #50, #51)."
    ),
    "responses:names": _of(
        4,
        "A call is the runner's where it may have declared the name, namespaces and late tools included (#6, #7, #8, #9).",
    ),
    "responses:ids": _of(
        4,
        "Missing and repeated ids are minted; no strict client gets an empty one (#17, #18, #53).",
    ),
    "responses:reasoning": _of(
        4, "Reasoning stays with what it led to, and leaves where it can't be sent back."
    ),
    "responses:programmatic": _of(4, "The output of a programmatic call names its caller (#63)."),
    "responses:status": _of(
        5,
        "A response that failed, was filtered or is not done is no answer; a short one is (#22, #23).",
    ),
    "responses:terminal": _of(
        5, "A turn that a tool ended is answered with the model's words, or with `Done.`."
    ),
    "responses:echo": _of(
        6,
        "The response repeats the runner's own tools, choice and instructions, and no more (#62).",
    ),
    "responses:no-managed-byte": _of(
        6, "No byte of an answer has a managed tool, or a call of one."
    ),
    "responses:errors": _of(6, "An error names no managed tool."),
    "responses:stream": _of(
        7,
        "Items of every type are one well-formed stream, which the strict SDKs assemble (#52, #54).",
    ),
    "responses:keepalive": _of(
        7, "A stream of comments gets events too, for clients that count nothing else (#55)."
    ),
    "responses:stream-error": _of(
        7, "An error in a stream begins and ends it as strict clients expect."
    ),
    "responses:anchors": _of(
        8, "An answer is known again in every form in which runners send it back (#38, #40, #41)."
    ),
    "responses:item-ids": _of(
        8,
        "An answer is known by the id of any of its items, a reference too (#37), but never by an id alone.",
    ),
    "responses:two-answers": _of(
        8, "Two answers in a row have their own rounds, each before its own first item (#43)."
    ),
    "responses:reordered": _of(
        8, "Any call id of a handoff finds it, and its rounds are woven once (#39)."
    ),
    "responses:joined": _of(
        8, "An answer of several messages is known by them together and by the last one (#42)."
    ),
    "responses:hidden-images": _of(
        8, "An image of a hidden round is neither shown nor kept for later turns (#15)."
    ),
    "responses:shrunk": _of(
        8, "A shortened round keeps its calls, without ids, reasoning and hosted items."
    ),
    "responses:reasoning-include": _of(
        4, "Encrypted reasoning is asked for where it was missing, until that is refused (#47)."
    ),
    "responses:reasoning-maker": _of(
        4, "Reasoning goes back to the provider and model that made it only (#48)."
    ),
    "responses:reasoning-runners": _of(
        4, "An error about the runner's own encrypted items is passed on (#49)."
    ),
    "responses:headers": _of(
        6,
        "The runner gets the headers that support, limits and Codex need; a turn state goes back.",
    ),
    "responses:resent-items": _of(
        11,
        "A request with the items of an answer that was cut off gets the rest of it, and nothing runs twice.",
    ),
    "responses:context": _of(
        8,
        "Hidden rounds from before a compaction stay out (#44); one in a hidden reply stays (#45).",
    ),
    "responses:codex": _of(
        8, "The real Codex gets a managed tool, and its next turn remembers the hidden round."
    ),
    "responses:clients": _of(
        8,
        "Every real client gets the answer of a turn with hidden rounds, and its next turn remembers them.",
    ),
    "responses:clients-fail": _of(
        8, "A real client that repeats a failed turn gets its answer, and no write runs twice."
    ),
    "responses:conversation": _of(
        10, "A conversation holds input, calls, outputs and answer once each (#35)."
    ),
    "responses:conversation-resumes": _of(
        10, "A failed turn in a conversation goes on with what is missing (#36)."
    ),
    "responses:conversation-moved-on": _of(
        11, "A retry behind another turn of its conversation repeats no write."
    ),
    "responses:conversation-rejects": _of(
        10, "What a conversation keeps is answered: native suffixes and rejected calls too."
    ),
    "responses:conversation-unanswerable": _of(
        10,
        "In a conversation, a call of ours beside one that only the runner can answer ends the turn.",
    ),
    "responses:conversation-owner": _of(
        10, "A conversation of another agent, or of nobody, is not found."
    ),
    "responses:owed": _of(
        10, "What a turn left unanswered in a conversation stands first in the next request (#66)."
    ),
    "responses:bounded": _of(
        1, "Items of any kind cost work and memory in proportion to their number (#61)."
    ),
    "responses:packed": _of(1, "A compressed request is read, and mediated unpacked (#59)."),
    "responses:duplicates": _of(1, "A member that is read and stands twice is refused."),
    "responses:any-request": _of(
        1, "Items and members that nobody knows reach the provider as they came."
    ),
    "responses:governed": _of(
        1,
        "Policy, prefix (#60), budget, history, audit, the Turn view and metrics are as for other protocols.",
    ),
    "responses:owned-ids": _of(
        10, "An id that a provider keeps is its agent's alone, also through another proxy."
    ),
    "responses:chain": _of(
        10, "A chain goes on without weaving: the provider has its hidden rounds (#29)."
    ),
    "responses:chain-without-input": _of(
        1, "Without `input`, rounds add one of hidden items only (#3)."
    ),
    "responses:no-input": _of(
        1, "An empty or missing `input` without a chain is the provider's to refuse (#4)."
    ),
    "responses:early-id": _of(
        10, "An id that went out early is mapped, in the request and in what repeats it (#30)."
    ),
    "responses:owner-only": _of(
        10, "What another agent owns is refused before anything is sent (#31)."
    ),
    "responses:chain-unkept": _of(10, "A response that was not to be kept can't be named (#32)."),
    "responses:chain-and-history": _of(
        10, "Turns that the named response holds are not woven beside it (#33)."
    ),
    "responses:chain-and-conversation": _of(
        10, "A chain and a conversation at once are the provider's to refuse (#34)."
    ),
    "responses:terminal-owes": _of(
        10, "What a tool that ended the turn answered stands first in the next `input` (#65)."
    ),
    "responses:pinned": _of(
        10, "What names an id goes to the provider and key that keep it, without failover (#67)."
    ),
    "responses:named-once": _of(
        10, "An id that two readers could read differently is a bad request."
    ),
    "responses:state-down": _of(
        10, "While the state can't be read, only what names an id is refused."
    ),
    "responses:chain-retries": _of(
        11, "Equal words behind two responses are two turns; a retry finds its own."
    ),
    "responses:chain-reasoning": _of(
        4, "Reasoning that the provider keeps stays with its call, without encrypted content."
    ),
    "responses:chain-names": _of(4, "A name that the chain may have declared is the runner's."),
    "responses:paths-owner": _of(
        10, "What another agent owns is not found by any path, in any spelling; nothing is sent."
    ),
    "responses:paths-read": _of(
        10, "A kept response is read as it was delivered: no managed tool, no text of the proxy's."
    ),
    "responses:paths-items": _of(
        10, "`input_items` has no managed name, argument or result, in pages of what is left (#57)."
    ),
    "responses:paths-delete": _of(
        10, "A deleted response takes its row and the hidden responses of its turn along (#58)."
    ),
    "responses:paths-conversation": _of(
        10, "A conversation is its maker's, and is listed without hidden items."
    ),
    "responses:batches": _of(
        10, "A batch of Responses requests is refused: what its entries name can't be checked."
    ),
    "responses:paths-rows": _of(
        10, "What is forwarded is its agent's before the runner has its id (#56)."
    ),
    "responses:compact": _of(
        9, "`…/responses/compact` gets the hidden rounds and no tools, under policy and budget."
    ),
    "responses:input-tokens": _of(
        1, "`…/responses/input_tokens` counts managed tools and hidden rounds."
    ),
    "responses:side-requests": _of(9, "A runner's compaction (#46) and titles (#64) get no tools."),
}
