"""State: hidden rounds, the journal of turns, and both after a crash or at another proxy."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "continuity:same-bytes": Requirement(
        "docs/spec/mediation.md section 7",
        "What a provider was sent once begins every later request in the same bytes.",
    ),
    "continuity:advice-left-out": Requirement(
        "docs/spec/mediation.md section 7",
        "Rejections, budget and duplicate answers are kept out of what is replayed.",
    ),
    "continuity:told-apart": Requirement(
        "docs/spec/mediation.md section 7",
        "Equal answers of two conversations keep their own rounds.",
    ),
    "continuity:any-conversation": Requirement(
        "docs/spec/mediation.md section 7",
        "In any order of asking, forking, editing, failing, trying again and restarting, hidden rounds are where they belong.",
    ),
    "continuity:empty-answers": Requirement(
        "docs/spec/mediation.md section 7",
        "An answer without words, which the runner drops, leaves its rounds in the place where it stood.",
    ),
    "continuity:unanswered": Requirement(
        "docs/spec/mediation.md section 7",
        "What a turn did that failed is in the conversation when its runner goes on behind it.",
    ),
    "continuity:dropped-by-the-runner": Requirement(
        "docs/spec/mediation.md section 7",
        "Hidden rounds of a message that the runner dropped or compacted are not reinjected.",
    ),
    "continuity:evidence": Requirement(
        "docs/spec/mediation.md section 7",
        "Equal answers are told apart by the session, by what was said before, and by order; none of it is required.",
    ),
    "continuity:bounds": Requirement(
        "docs/spec/mediation.md section 7",
        "8 MiB are kept of an agent and 256 KiB reinjected in a request: older rounds shrink to a line a call, the oldest go.",
    ),
    "continuity:session": Requirement(
        "docs/spec/mediation.md section 7",
        "A session that a runner names, in a header or a member, is evidence; most name none.",
    ),
    "continuity:regenerated": Requirement(
        "docs/spec/mediation.md section 7",
        "An answer that a runner had made again has the rounds of its own making.",
    ),
    "continuity:edited": Requirement(
        "docs/spec/mediation.md section 7",
        "An edit of an earlier message costs no later message its rounds.",
    ),
    "continuity:compacted": Requirement(
        "docs/spec/mediation.md section 7",
        "A summary in the place of earlier messages leaves a kept message its rounds.",
    ),
    "continuity:restart": Requirement(
        "docs/spec/mediation.md section 7", "A restart between any two requests is not noticed."
    ),
    "continuity:two-dialects": Requirement(
        "docs/spec/mediation.md section 7",
        "Hidden rounds are found in their own dialect; a conversation in another one stays sound.",
    ),
    "continuity:calls-anchor": Requirement(
        "docs/spec/mediation.md section 7",
        "A handoff is found by its call ids, in any order, by their alphanumerics.",
    ),
    "continuity:text-anchor": Requirement(
        "docs/spec/mediation.md section 7",
        "An answer is found by its text and the user's words before it, white space aside.",
    ),
    "continuity:runners": Requirement(
        "docs/spec/mediation.md section 7, first bullet",
        "A message is found again as runners send it: nulls, parts, added members, other ids' signs, arguments written anew.",
    ),
    "continuity:calls-as-text": Requirement(
        "docs/spec/mediation.md section 7",
        "A message whose runner wrote its calls into the text is found by their ids, behind the same message as before.",
    ),
    "continuity:parts": Requirement(
        "docs/spec/mediation.md section 7",
        "A user's message is known again by most of its parts, where none of the user's words were exchanged.",
    ),
    "journal:paid-once": Requirement(
        "docs/spec/mediation.md section 5",
        "What an earlier attempt of a turn used is paid for once.",
    ),
    "journal:altered": Requirement(
        "docs/spec/mediation.md section 5, OpenClaw",
        "After a failed turn of this conversation a request whose last words go on from the failed one's resumes it.",
    ),
    "journal:altered-and-lost": Requirement(
        "docs/spec/mediation.md section 5, a turn is done when the last byte of its answer has left the process",
        "An answer that its runner did not get is there for the same words in another form: not streamed, or with a note.",
    ),
    "journal:sessions": Requirement(
        "docs/spec/mediation.md sections 5 and 7, sessions",
        "Equal requests of two sessions that their runner names are two turns.",
    ),
    "journal:not-yet-handed": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn is done when its whole answer was handed over; until then the same request gets that answer.",
    ),
    "journal:delivered": Requirement(
        "docs/spec/mediation.md section 5, a turn is done when the last byte of its answer has left the process",
        "An answer is delivered when the kernel has its last byte, and not while any of it waits in the proxy.",
    ),
    "journal:cut-off": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn that its runner left is resumed, and what is still on its way is waited for.",
    ),
    "journal:idempotency-key": Requirement(
        "docs/spec/mediation.md section 5", "A call has one key, also when its turn is resumed."
    ),
    "journal:rounds-count": Requirement(
        "docs/spec/mediation.md sections 5 and 4, budgets",
        "The rounds of an earlier attempt count.",
    ),
    "journal:revoked": Requirement(
        "docs/spec/mediation.md section 5",
        "A tool that was revoked in between runs no more; the call that was made stays history.",
    ),
    "journal:unwritable": Requirement(
        "docs/spec/mediation.md section 5",
        "A journal that can't be kept stops writes; reads and plain chat go on, and one event says so.",
    ),
    "journal:caught-up": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn whose journal is back writes what it missed first, and may write again.",
    ),
    "journal:not-behind-the-models-back": Requirement(
        "docs/spec/mediation.md section 5",
        "A write of which the model was told that it was not made (no time, no journal) is not made when the turn is resumed.",
    ),
    "state:outage": Requirement(
        "docs/state.md",
        "While the state is gone, in whatever way, chat goes on and reads run, writes are refused, one event says so, and one"
        " that it is back.",
    ),
    "state:outage-in-a-turn": Requirement(
        "docs/state.md",
        "A state that goes between a reply, an intent, a result and the answer makes no write happen twice.",
    ),
    "state:own-pause": Requirement(
        "docs/state.md",
        "Time in which the proxy's own event loop stands still does not count as a silence of the server.",
    ),
    "state:outage-at-the-start": Requirement(
        "docs/state.md",
        "A state that is not there yet is no reason not to start: until it is, reads run and writes do not.",
    ),
    "journal:owner": Requirement(
        "docs/spec/mediation.md section 5",
        "Whether a process lives is proved by a lock that it holds or by its lease, never by a host name or a number.",
    ),
    "journal:altered-while-a-write-is-on-its-way": Requirement(
        "docs/spec/mediation.md section 5",
        "An altered retry waits for the write that was on its way when the runner left, at every proxy.",
    ),
    "state:file-outage": Requirement(
        "docs/state.md",
        "A file that is full, locked, deleted or replaced is told of once, and used again by itself when it can be written.",
    ),
    "state:file-shared": Requirement(
        "docs/state.md",
        "While another process writes to the file, writers wait and nobody else does; no event says so.",
    ),
    "state:file-damaged": Requirement(
        "docs/state.md",
        "A file that is damaged under the proxy is used no more; one that is damaged at the start keeps it from starting.",
    ),
    "state:file-at-the-start": Requirement(
        "docs/state.md",
        "A lock passes, and is no reason not to start; what can never be used is, in one line with the remedy.",
    ),
    "journal:clock": Requirement(
        "docs/state.md",
        "A turn in a file is found for 10 minutes, whoever sets the machine's clock, while it runs or between two starts.",
    ),
    "budget:clock": Requirement(
        "docs/state.md",
        "What was spent by a clock that was ahead, and was set back, leaves the budget with its window.",
    ),
    "state:pods-apart": Requirement(
        "docs/spec/mediation.md section 7",
        "A database that a proxy of another pod opened before is one event at the start, with the remedy.",
    ),
    "state:evicts": Requirement(
        "docs/state.md",
        "A server that may forget keys when its memory is full is told in the log at the start, once.",
    ),
    "state:hostile-answers": Requirement(
        "docs/state.md",
        "Whatever a server answers, the state is unusable or a record unreadable; no write is sent without one.",
    ),
    "journal:lease-ahead": Requirement(
        "docs/state.md",
        "A sign of life from more than 10 seconds ahead, of a clock that was set back, holds no turn.",
    ),
    "journal:expiry": Requirement(
        "docs/spec/mediation.md section 5", "After 10 minutes the same request is a new turn."
    ),
    "journal:resume": Requirement(
        "docs/spec/mediation.md section 5",
        "The same request after a turn that failed resumes it: what ran is played, and not run again.",
    ),
    "journal:one-runs": Requirement(
        "docs/spec/mediation.md section 5",
        "Of one request one turn runs, whichever proxy begins it.",
    ),
    "journal:flush": Requirement(
        "docs/spec/mediation.md section 5",
        "An intent outlives a power cut before its call leaves; only calls that write wait for the disk.",
    ),
    "journal:log-begins-anew": Requirement(
        "docs/spec/mediation.md section 5",
        "A log that turns never let rest begins anew while those who write wait, and the loop goes on: a turn costs the same.",
    ),
    "journal:answer-only": Requirement(
        "docs/spec/mediation.md section 5",
        "What led to an answer is kept no longer than the answer is missing, and what failed till it expires.",
    ),
    "journal:lease": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn whose process is silent goes on elsewhere; what the first one still wants to write is refused.",
    ),
    "journal:not-entered": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn that is not entered in the journal begins no call: a retry could not find it.",
    ),
    "journal:ten-minutes": Requirement(
        "docs/spec/mediation.md section 5",
        "After ten minutes a turn is not resumed, and the same request may run again.",
    ),
    "journal:kill": Requirement(
        "docs/spec/mediation.md section 5",
        "A turn survives kill -9: its recorded rounds are played.",
    ),
    "journal:unknown": Requirement(
        "docs/spec/mediation.md section 5",
        "A write whose result was never recorded is answered outcome_unknown, and not run again.",
    ),
    "journal:reads-again": Requirement(
        "docs/spec/mediation.md section 5",
        "A read whose result was never recorded is run again, under the key that it had.",
    ),
    "journal:small-writes": Requirement(
        "docs/decisions/0014-a-turn-is-journaled.md",
        "A step writes few pages, and a file of an earlier version is used as it is.",
    ),
    "journal:call-in-flight": Requirement(
        "docs/spec/mediation.md section 5",
        "A call that was in flight when its runner left is awaited, and its answer used by the retry.",
    ),
    "journal:join": Requirement(
        "docs/spec/mediation.md section 5",
        "The same request while its turn runs gets the answer of that turn.",
    ),
    "journal:retry-of-a-done-turn": Requirement(
        "docs/spec/mediation.md section 5",
        "A done turn is answered again only where the request says that it is a retry.",
    ),
    "state:shared": Requirement(
        "docs/state.md",
        "Proxies on one Valkey serve one conversation: a retry at another one goes on with the turn.",
    ),
    "crash:at-most-once": Requirement(
        "docs/spec/mediation.md section 5",
        "Killed at any step, a write is made at most once, and the model is told only what is true.",
    ),
    "crash:unheard": Requirement(
        "docs/spec/mediation.md section 5; docs/decisions/0015-at-most-once.md",
        "Killed while answers wait in it, the proxy gives them to runners that gave up and ask anew; no write is repeated.",
    ),
    "crash:goes-on": Requirement(
        "docs/spec/mediation.md section 5",
        "Killed at any step, the turn is finished, in history, and in every later request.",
    ),
    "restart:continuity-and-chain": Requirement(
        "docs/spec/mediation.md section 7; docs/spec/contract.md, history.jsonl",
        "Both survive kill -9.",
    ),
    "store:own": Requirement(
        "docs/spec/mediation.md section 7",
        "Hidden rounds are found by their own agent and anchor only.",
    ),
    "store:bounded": Requirement(
        "docs/spec/mediation.md section 7",
        "Bounded per agent by turns and age, least recently used first out.",
    ),
    "store:expires": Requirement(
        "docs/state.md", "On a server every key expires, and none before what belongs to it."
    ),
    "store:durable": Requirement(
        "docs/spec/mediation.md section 7", "A file survives a crash, and is private."
    ),
    "store:whole": Requirement(
        "docs/spec/mediation.md section 7",
        "What a process writes is seen by others and survives, whichever of them come and go meanwhile.",
    ),
    "store:private": Requirement(
        "docs/state.md",
        "The file, its log and its index are 0600, a directory made for them 0700, whatever they were.",
    ),
    "log:continuity": Requirement(
        "docs/spec/contract.md, The log",
        "A request with answers in it tells how many of them got hidden rounds back, and why the others did not.",
    ),
    "log:resume": Requirement(
        "docs/spec/contract.md, The log",
        "A turn that goes on tells what of an earlier attempt was played, in numbers.",
    ),
    "log:join": Requirement(
        "docs/spec/contract.md, The log",
        "A request that gets another one's answer tells whose turn that is, and how it came to it.",
    ),
    "store:names": Requirement(
        "docs/spec/responses.md section 8",
        "Hidden rounds are found by the key of their answer and by names of its parts.",
    ),
    "store:marks": Requirement(
        "docs/spec/mediation.md section 7",
        "An answer before which nothing was hidden is kept as a mark, which takes no room from hidden rounds.",
    ),
    "store:shrinks": Requirement(
        "docs/state.md",
        "What is deleted is given back to the disk while turns go on, and the log is cut.",
    ),
    "state:inventory": Requirement(
        "docs/state.md",
        "What is kept is told by agent, in counts, sizes and times, and reading it changes no file.",
    ),
    "state:forget": Requirement(
        "docs/state.md",
        "Hidden rounds, owned ids and turns are forgotten, but for a turn that a process is at; a proxy that runs goes on.",
    ),
    "state:errors": Requirement(
        "docs/state.md",
        "A state that can't be read or forgotten from is one line: the thing, the place, the remedy.",
    ),
    "state:no-secrets": Requirement(
        "docs/spec/mediation.md section 2",
        "No secret of ours or a runner's is in any byte of the state, in any form that a peer may say it in.",
    ),
    "state:newer": Requirement(
        "docs/state.md", "A state that a newer claw has written is not touched, and said so."
    ),
}
