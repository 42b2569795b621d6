"""Every behaviour that the specification asks for, as data: id → source and one sentence.

``test_requirements.py`` fails when an entry has no test, or when a test names an entry that is not here.
Read this list to learn what was built.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    source: str
    behavior: str


CONTRACT: dict[str, Requirement] = {
    "contract:published": Requirement(
        "contract", "Every file of the contract has a published JSON Schema, kept current."
    ),
    "contract:quarantine": Requirement("contract, tools.json", "A malformed tool is left out; the others work."),
    "contract:defaults": Requirement("contract, tools.json", "Absent or zero limits take the defaults."),
    "contract:base-url": Requirement(
        "contract, tools.json", "A base URL is scheme, host, port and path, without credentials or oddities."
    ),
    "contract:agent-id": Requirement(
        "contract, layout", "An agent id is checked before any path is built from it; nothing else is one."
    ),
    "contract:token-forms": Requirement(
        "contract, metadata.json", "A token is stored bare, full or as its SHA-256, and admits its own agent only."
    ),
    "contract:secret-dots": Requirement("mediation 2", "A secret prints as dots: text, format, JSON, errors."),
    "contract:redaction": Requirement(
        "contract, history", "Secrets never appear, by value, in any spelling of JSON; what was JSON stays JSON."
    ),
}

COMPILE: dict[str, Requirement] = {
    "compile:diagnostics-on-the-line": Requirement(
        "compile.md, Diagnostics",
        "Each diagnostic has a stable code and the file, line and column that earn it.",
    ),
    "compile:all-errors-in-one-run": Requirement(
        "compile.md, Diagnostics",
        "All mistakes of a pod are reported in one run, sorted by place.",
    ),
    "compile:secrets-never-printed": Requirement(
        "compile.md, Interpolation; contract.md",
        "No value of a variable, token or master secret is printed; files that must hold one are the only ones that do.",
    ),
    "compile:codes-are-documented": Requirement(
        "compile.md, Diagnostics",
        "docs/diagnostics.md is printed from the registry of codes, and current.",
    ),
    "compile:golden-pod": Requirement(
        "design.md, Tests",
        "The trading desk compiles to the bytes of its expected/ directory.",
    ),
    "compile:same-input-same-bytes": Requirement(
        "compile.md",
        "The same input gives the same bytes, on any machine.",
    ),
    "compile:order-of-yaml-is-no-matter": Requirement(
        "compile.md, Tools",
        "No reordering of mappings, grants or names in the pod file changes a byte.",
    ),
    "compile:output-loads": Requirement(
        "contract.md",
        "What the compiler writes is what the proxy's reader accepts, nothing left out.",
    ),
    "compile:digest": Requirement(
        "contract.md, metadata.json",
        "metadata.json carries the SHA-256 of the agent's compiled files.",
    ),
    "compile:agent-page-names-tools-only": Requirement(
        "compile.md, Output",
        "CLAWDAPUS.md names tools as they are presented, and no endpoint, URL or token.",
    ),
    "compile:deny-by-default": Requirement(
        "guide, Subscribing in Pod YAML",
        "An agent has the tools that it was granted, and no others.",
    ),
    "compile:grants": Requirement(
        "compile.md, Tools",
        "Per service `all` wins, else names are united; deny beats allow; the order is the descriptor's.",
    ),
    "compile:defaults": Requirement(
        "compile.md, Defaults",
        "Absent inherits, present replaces, `...` splices, empty and null suppress.",
    ),
    "compile:policy": Requirement(
        "compile.md, Defaults",
        "tool-policy replaces the pod's default whole; what it leaves out takes the contract's default.",
    ),
    "compile:auth": Requirement(
        "compile.md, Auth",
        "A provider's credential comes from its own environment or from a secret, never from the agent.",
    ),
    "compile:discovered-descriptor": Requirement(
        "guide, Wrapping Stdio MCP Servers",
        "A snapshot in .claw-discovered/ describes its service.",
    ),
    "compile:yaml-1-2": Requirement(
        "compile.md, Diagnostics",
        "Scalars are YAML 1.2's: `on` is a name, `4000:22` a string.",
    ),
    "compile:no-traceback": Requirement(
        "compile.md, Diagnostics",
        "Whatever a pod file or a descriptor holds, the answer is diagnostics.",
    ),
    "compile:paths-stay-inside": Requirement(
        "compile.md; origin-compile 2.1",
        "Contracts and descriptors stay in the pod's directory, after symlinks.",
    ),
    "compile:interpolation": Requirement(
        "compile.md, Interpolation",
        "Variables are filled in by Compose's rules; an unset one without a default is an error.",
    ),
    "compile:dotenv": Requirement(
        "compile.md, Interpolation",
        ".env is read in Compose's dialect, under the process's environment.",
    ),
    "compile:base-url": Requirement(
        "compile.md, base_url",
        "A base URL is stated, or made of the first TCP port of expose, then of ports.",
    ),
    "compile:tokens": Requirement(
        "compile.md, Tokens",
        "Agent tokens are derived from the pod's master secret, the agent's id and an epoch.",
    ),
    "compile:master-secret": Requirement(
        "compile.md, Tokens",
        "The first compile makes a master secret, says so, and later ones keep it.",
    ),
    "compile:private-files": Requirement(
        "contract.md, Layout",
        "Compiled directories are 0700 and files 0600.",
    ),
    "compile:atomic": Requirement(
        "compile.md, Verbs",
        "The compiled tree is replaced whole; a kill leaves the old one.",
    ),
    "compile:never-replaces-foreign-files": Requirement(
        "no user loses files to -o",
        "A directory that holds anything the compiler did not make is not replaced.",
    ),
    "cli:compile": Requirement(
        "compile.md, Verbs",
        "`claw compile` writes the tree and prints which agent may call what, and its effect.",
    ),
    "cli:diagnostic-format": Requirement(
        "compile.md, Diagnostics",
        "A diagnostic shows its place, its line with carets, a hint and a help line.",
    ),
    "cli:nothing-written-on-error": Requirement(
        "compile.md, Verbs",
        "With an error nothing is written, and the old tree stays.",
    ),
    "cli:check-writes-nothing": Requirement(
        "compile.md, Verbs",
        "`claw check` prints diagnostics as text or JSON and writes nothing.",
    ),
    "cli:exit-codes": Requirement(
        "compile.md, Verbs",
        "Exit 0, 1 for errors, 2 for wrong usage.",
    ),
}

MEDIATE: dict[str, Requirement] = {
    "loop:terminates": Requirement(
        "mediation 4, budgets",
        "Any sequence of replies ends within max_rounds + 2 model calls, and repeats nothing it may not.",
    ),
    "anthropic:blocks-survive": Requirement(
        "mediation 4, The model's side; issue 3, 1.",
        "Content blocks of every type (thinking with its signature, server tools, citations, unknown types) survive.",
    ),
    "anthropic:pairing": Requirement(
        "mediation 7; issue 3, 1.", "Every tool_use of the transcript is answered in the next message, and no other."
    ),
    "anthropic:roles-alternate": Requirement(
        "mediation 7; issue 3, 1.", "Roles take turns after we insert and drop, also behind a message the runner began."
    ),
    "calls:cut-off": Requirement(
        "mediation 4", "The last call of an answer that ran out of tokens is never run, and the model is told why."
    ),
    "stream:sdks-hear-the-same": Requirement(
        "mediation 6; issue 3",
        "OpenAI's, Anthropic's and Vercel's SDKs, of Python and JavaScript, hear in a stream what the JSON answer says.",
    ),
    "stream:errors-in-sdks": Requirement(
        "mediation 6; issue 3",
        "Each SDK raises its own error, with its status before the headers, and behind them too.",
    ),
    "stream:keepalive-kinds": Requirement(
        "mediation 6; issue 3, build 3",
        "A stream is kept alive by comments, natively or not at all, as it is set for its protocol.",
    ),
    "stream:usage": Requirement("mediation 6", "An OpenAI stream has a usage chunk if include_usage, and else none."),
    "stream:one-id": Requirement("mediation 6", "A stream has one id, also when a keepalive opened it."),
    "stream:anthropic-lifecycle": Requirement(
        "mediation 6", "An Anthropic stream is one lifecycle: one start, block indexes without gaps, delta, stop."
    ),
    "stream:citations": Requirement("mediation 6", "Citations are streamed with deltas of their own."),
    "stream:usage-always": Requirement("mediation 6", "The usage is always in an Anthropic stream."),
    "context:system-end": Requirement(
        "mediation 8", "Context stands at the end of the system prompt; every other byte stays."
    ),
    "transcript:valid": Requirement(
        "mediation 4, 6 and 7; design, Tests",
        "Whatever a model calls, streaming or not: each request is valid for its provider, and dialects draw one picture.",
    ),
    "transcript:odd-arguments": Requirement(
        "mediation 4; gateways 2.8",
        "A call that could not be read goes back to the provider as one that it takes: arguments are an object.",
    ),
    "names:canonical-call": Requirement(
        "README, rulings; mediation 3.2", "A call by the canonical name is managed; its provider sees the alias again."
    ),
    "names:case": Requirement("README, rulings", "Names count as they are written: another case is another name."),
    "names:odd-names": Requirement(
        "mediation 4", "An invented name that no provider takes back stands in the transcript in plain characters."
    ),
    "names:every-request": Requirement("README, rulings", "What a runner declares is its own in that request only."),
    "names:grants-of-the-moment": Requirement(
        "contract, layout", "A grant that is gone is unknown, whatever the transcript shows."
    ),
    "injection:foreign-tools": Requirement(
        "mediation 3.6", "Entries of the runner's tools that are no functions stay, and their names are the runner's."
    ),
    "injection:same-bytes": Requirement("mediation 3.1", "The same grants give the same bytes, for prompt caches."),
    "injection:tool-choice-kept": Requirement(
        "mediation 3.3", "A choice stays as the runner made it, until a managed call obeyed a forced one."
    ),
    "injection:tool-choice-none": Requirement("mediation 3.3", "tool_choice none, in any dialect: passed through."),
    "injection:parallel-kept": Requirement(
        "mediation 3.3", "parallel_tool_calls and disable_parallel_tool_use stay as they were, in every round."
    ),
    "injection:without-grants": Requirement("mediation 3", "Without managed tools a request passes unchanged."),
    "injection:whole-response": Requirement(
        "mediation 3.4", "The provider is asked for a whole response, whatever the runner asked for."
    ),
    "calls:duplicate-advice": Requirement(
        "mediation 4, repeats", "A repeat is told with the tool, the first round, the count, and what to do instead."
    ),
    "calls:repeatable": Requirement("mediation 4, repeats", "x-claw.repeatable: an equal call runs again."),
    "calls:order-of-checks": Requirement(
        "mediation 4, before each execution",
        "Arguments, repeat and schema are checked in this order; violations are told, and the service is not called.",
    ),
    "calls:max-parallel": Requirement("mediation 4, order", "At most max_parallel calls run at once."),
    "continuity:same-bytes": Requirement(
        "mediation 7", "What a provider was sent once begins every later request in the same bytes."
    ),
    "continuity:advice-left-out": Requirement(
        "mediation 7", "Rejections, budget and duplicate answers are kept out of what is replayed."
    ),
    "continuity:told-apart": Requirement("mediation 7", "Equal answers of two conversations keep their own rounds."),
    "continuity:dropped-by-the-runner": Requirement(
        "mediation 7", "Hidden rounds of a message that the runner dropped or compacted are not reinjected."
    ),
    "blocks:thought": Requirement(
        "mediation 4, the model's side", "Reasoning and signed thinking stay in the transcript and in the answer."
    ),
    "blocks:end-reason": Requirement(
        "mediation 4, the model's side", "finish_reason and stop_reason are the provider's own."
    ),
    "blocks:images": Requirement("mediation 3.5", "Images and other parts of messages stay where and as they are."),
    "blocks:openai-members": Requirement(
        "mediation 4, the model's side", "Refusals, annotations and unknown members stay, hidden and shown."
    ),
    "anthropic:blank-text": Requirement(
        "mediation 7", "Blank text, which the API gives and does not take, is not given back to it."
    ),
    "budget:rejected-rounds-count": Requirement("mediation 4", "A rejected response is a round, too."),
    "budget:total": Requirement(
        "mediation 4, budgets", "A turn whose time is over asks no more; an answer that is there is delivered."
    ),
    "history:every-dialect": Requirement(
        "contract, history and log", "History and log tell a turn in the same words in every dialect."
    ),
    "loop:no-calls": Requirement("mediation 4, table", "A reply without calls is the answer."),
    "loop:managed-only": Requirement(
        "mediation 4, table",
        "Managed calls are run by the proxy, hidden from the runner, and the model is asked again.",
    ),
    "loop:native-only": Requirement("mediation 4, table", "A reply of native calls only goes to the runner unchanged."),
    "loop:managed-first-native-behind": Requirement(
        "mediation 4, table", "A native suffix is dropped, the managed prefix is run, and the model is asked again."
    ),
    "loop:native-before-managed": Requirement(
        "mediation 4, table; README, rulings",
        "Native before managed, or interleaved: nothing runs, every call is answered managed_tools_first.",
    ),
    "loop:unknown-tool": Requirement(
        "README, rulings",
        "A name that is neither declared nor granted is answered unknown_tool, and goes nowhere else.",
    ),
    "loop:handoff-continuity": Requirement(
        "mediation 7",
        "Hidden rounds before a native handoff are reinjected on the follow-up and on every later request.",
    ),
    "loop:answer-continuity": Requirement(
        "mediation 7", "Hidden rounds behind an answer are there again when the conversation goes on."
    ),
    "loop:usage-summed": Requirement(
        "mediation 4, the runner's side", "Usage is the sum over all model calls of the turn."
    ),
    "names:aliases": Requirement(
        "README, rulings", "Aliases are unique, provider-safe, 64 characters at most, and never the runner's names."
    ),
    "names:owner": Requirement(
        "README, rulings", "Alias and canonical name are managed, declared names native, all others unknown."
    ),
    "names:room": Requirement("mediation 3.7", "Managed tools without room are left out from the end."),
    "wire:byte-fidelity": Requirement(
        "mediation 3.5", "Everything that is not ours stays byte for byte, whatever the document looks like."
    ),
    "wire:large-bodies": Requirement("issue 3, item 4", "To read a request, nothing is made of its images."),
    "wire:odd-content": Requirement("mediation 3.5", "A content of a form that we do not know passes as it is."),
    "wire:repeated-member": Requirement(
        "mediation 3.5", "A member that we must read or change and that stands twice is refused."
    ),
    "calls:path-segment": Requirement(
        "mediation 4, executing over HTTP", "A path argument stays one segment, encoded once, whatever it is."
    ),
    "calls:exact-numbers": Requirement(
        "mediation 4, executing over HTTP", "Numbers keep their spelling in path, query, body and result."
    ),
    "calls:claw-id": Requirement(
        "mediation 4, executing over HTTP", "claw_id is the authenticated agent, whatever the model sends for it."
    ),
    "calls:signature": Requirement(
        "mediation 4, repeats",
        "Equal arguments are equal by value: key order, 1 and 1.0, never 2^53 and its neighbour.",
    ),
    "calls:schema-keywords": Requirement("mediation 4", "The usual keywords of JSON Schema hold, in every draft."),
    "calls:schema-no-fetch": Requirement("mediation 4", "A remote $ref is never fetched."),
    "calls:schema-eight": Requirement("mediation 4", "At most eight violations are told, in a stable order."),
    "calls:schema-hostile": Requirement("mediation 4", "A value that cannot be checked is not valid, and no fault."),
    "calls:schema-bounded": Requirement(
        "issue 3", "No schema and no value makes a check work for long; a pattern that can't be used is known at load."
    ),
    "calls:schema-patterns": Requirement("issue 3", "Patterns are ECMA-262's, wherever a draft has them."),
    "calls:schema-exact": Requirement("mediation 4", "Numbers compare exactly: above 2^53, and decimals."),
    "results:truncation": Requirement(
        "mediation 4, results", "Over the limit: the first bytes, cut at a character, and the true size."
    ),
    "results:body-kinds": Requirement("mediation 4, results", "JSON is data in its own bytes; all else is text."),
    "results:redirect": Requirement("mediation 4, executing over HTTP", "Redirects are refused."),
    "results:envelope": Requirement("mediation 4, results", "Every failure has the one shape."),
    "continuity:evidence": Requirement(
        "mediation 7",
        "Equal answers are told apart by the session, by what was said before, and by order; none of it is required.",
    ),
    "continuity:bounds": Requirement(
        "mediation 7",
        "8 MiB are kept of an agent and 256 KiB reinjected in a request: older rounds shrink to a line a call, the oldest go.",
    ),
    "journal:paid-once": Requirement("mediation 5", "What an earlier attempt of a turn used is paid for once."),
    "journal:altered": Requirement(
        "mediation 5, OpenClaw",
        "After a failed turn a request whose last words begin with the failed one's resumes it.",
    ),
    "journal:not-yet-handed": Requirement(
        "mediation 5",
        "A turn is done when its whole answer was handed over; until then the same request gets that answer.",
    ),
    "journal:cut-off": Requirement(
        "mediation 5", "A turn that its runner left is resumed, and what is still on its way is waited for."
    ),
    "journal:idempotency-key": Requirement("issue 4, 2.", "A call has one key, also when its turn is resumed."),
    "journal:rounds-count": Requirement("mediation 5 and 4, budgets", "The rounds of an earlier attempt count."),
    "journal:revoked": Requirement(
        "mediation 5", "A tool that was revoked in between runs no more; the call that was made stays history."
    ),
    "journal:unwritable": Requirement(
        "issue 4, 3.", "A journal that can't be kept stops writes; reads and plain chat go on, and one event says so."
    ),
    "journal:expiry": Requirement("mediation 5", "After 10 minutes the same request is a new turn."),
    "continuity:session": Requirement(
        "mediation 7; gateways 2.2",
        "A session that a runner names, in a header or a member, is evidence; most name none.",
    ),
    "continuity:regenerated": Requirement(
        "issue 4, 1.", "An answer that a runner had made again has the rounds of its own making."
    ),
    "continuity:edited": Requirement("issue 4, 1.", "An edit of an earlier message costs no later message its rounds."),
    "continuity:compacted": Requirement(
        "issue 4, 1.", "A summary in the place of earlier messages leaves a kept message its rounds."
    ),
    "continuity:restart": Requirement("issue 4, 1.", "A restart between any two requests is not noticed."),
    "continuity:two-dialects": Requirement(
        "issue 4, 1.", "Hidden rounds are found in their own dialect; a conversation in another one stays sound."
    ),
    "continuity:calls-anchor": Requirement(
        "mediation 7", "A handoff is found by its call ids, in any order, by their alphanumerics."
    ),
    "continuity:text-anchor": Requirement(
        "mediation 7", "An answer is found by its text and the user's words before it, white space aside."
    ),
    "continuity:runners": Requirement(
        "mediation 7, first bullet; reference/runners.md",
        "A message is found again as runners send it: nulls, parts, added members, other ids' signs, arguments written anew.",
    ),
    "injection:tools-appended": Requirement(
        "mediation 3.1", "The runner's tools stay first and untouched; the managed ones stand behind them."
    ),
    "failure:bad-request": Requirement("issue 2, bad input", "A body that is no request is a 400 in one sentence."),
    "calls:ids": Requirement(
        "mediation 6", "Call ids that are repeated or missing are minted, of letters and digits, and answered."
    ),
    "legacy:functions": Requirement(
        "mediation 3.1", "functions and function_call become tools and tool_choice; none of them reaches the provider."
    ),
    "legacy:history": Requirement(
        "issue 3, item 1",
        "Calls of functions with their answers become those of tools: the same ids in every request, other bytes untouched.",
    ),
    "legacy:reply": Requirement(
        "issue 3, item 1", "A runner that speaks of functions is handed a function_call, one a reply, also in a stream."
    ),
    "legacy:anchor": Requirement(
        "mediation 7", "A handoff without ids is found by name, canonical arguments, what was said, and order."
    ),
    "legacy:provider": Requirement(
        "issue 3, item 1", "A provider's function_call is read as a tool call, so that none goes round the rules."
    ),
    "stream:sdk-accepts": Requirement(
        "mediation 6", "A stream is one well-formed lifecycle; the real SDK makes the same message of it."
    ),
    "stream:same-as-json": Requirement(
        "mediation 4 and 6", "Put together as a client does, a stream is the response, in the same spellings."
    ),
    "stream:unknown-fields": Requirement("mediation 4, the model's side", "Unknown fields are kept in a stream."),
    "stream:keepalive-is-skipped": Requirement("mediation 6", "A keepalive is never a token: SDKs read over it."),
    "service:request": Requirement(
        "mediation 4, executing over HTTP", "A call says who asks and in which turn; a write has a stable key."
    ),
    "service:credentials": Requirement(
        "contract, tools.json", "Bearer, header and basic credentials, inline or from the secrets directory."
    ),
    "service:no-echo": Requirement(
        "mediation 2", "A credential that a service says back never reaches the result, nor half of it."
    ),
    "service:unreachable": Requirement("mediation 4, results", "A service that is down was certainly not reached."),
    "service:broken-off": Requirement(
        "mediation 4, results", "A service that breaks off leaves a write's outcome unknown."
    ),
    "service:too-large": Requirement("mediation 4, results", "A body that is too large is given up, zip bombs too."),
    "service:own-host-only": Requirement(
        "mediation 4, executing over HTTP", "The host is the manifest's and no other, whatever the environment says."
    ),
    "agents:found": Requirement("contract, layout", "An agent is its context directory, with or without tools."),
    "agents:reload": Requirement(
        "contract, layout", "A changed file, or a swapped tree, takes effect at the next request."
    ),
    "agents:broken": Requirement(
        "contract, layout", "A broken file fails that agent closed, with one event until it changes, and no other."
    ),
    "identity:forms": Requirement("mediation 2", "Both header forms work for every dialect."),
    "identity:refused": Requirement(
        "mediation 2", "401 for missing, malformed or disagreeing credentials; one 403 for all that are wrong."
    ),
    "identity:shapes": Requirement("mediation 2", "A refusal has the shape of its dialect."),
    "providers:versions": Requirement("contract, providers.json", "Versions 1 and 2 are read; dead keys are not used."),
    "providers:environment": Requirement(
        "contract, providers.json", "Keys of the environment fill what the file does not key; base URLs override."
    ),
    "providers:broken-file": Requirement(
        "contract, providers.json", "A broken file keeps the last good state, with one event."
    ),
    "providers:routing": Requirement("mediation 1", "The model's prefix picks the provider, else the default."),
    "providers:hosts": Requirement("mediation 1", "Known hosts stay governed wherever their provider is configured."),
    "providers:key-states": Requirement(
        "mediation 4, the model's side", "A dead key is out, a resting one until its time, a replaced one fresh."
    ),
    "providers:key-verdicts": Requirement(
        "mediation 4, the model's side; weakness E12",
        "401, 402 and 429 for want of quota kill a key, other 429s rest it, and a 403 says nothing of it.",
    ),
    "providers:key-states-persist": Requirement(
        "issue 3, providers", "Key states outlive the process, in private files of their own that hold no secret."
    ),
    "providers:key-states-broken": Requirement(
        "issue 3, providers", "A state that can't be read or written is one event, never a failure."
    ),
    "providers:operators-word": Requirement(
        "contract, providers.json", "States in the operator's file hold, and the file is never written."
    ),
    "policy:forwarded": Requirement(
        "mediation 8", "A forwarded request is clamped too: its model is replaced, and every other byte stays."
    ),
    "policy:mediated": Requirement(
        "mediation 8; contract, history",
        "A mediated turn is clamped; history tells the model asked for and the one used.",
    ),
    "policy:other-paths": Requirement("mediation 8", "On other paths a model is not the policy's."),
    "policy:spelling": Requirement("mediation 1", "No spelling of a path is a way round the policy."),
    "keys:other-paths": Requirement(
        "weakness E12", "What a path that is no model call answers kills no key: an agent could kill them all with it."
    ),
    "failover:next-candidate": Requirement(
        "mediation 4, the model's side", "A provider that fails is followed by the next one, with the same request."
    ),
    "failover:time": Requirement(
        "weakness D3", "A silent provider leaves half of the time that is left to the next one."
    ),
    "failover:final": Requirement(
        "mediation 4, the model's side", "403 and any other 4xx are passed on, ask nobody else and kill no key."
    ),
    "failover:sticky": Requirement(
        "mediation 4, the model's side", "A candidate that answered stays for the rest of the turn."
    ),
    "failover:told": Requirement("issue 3, providers", "When all fail, the runner is told the last real answer."),
    "retry:after-tools": Requirement(
        "mediation 4, the model's side",
        "Once a turn has cost something, a failure that may pass is tried twice more within the turn's time.",
    ),
    "retry:retry-after": Requirement(
        "mediation 4, the model's side", "A short Retry-After is honoured, a long one is not."
    ),
    "retry:told": Requirement("mediation 4, the model's side", "A runner is told when it may come again."),
    "retry:resting-key": Requirement("weakness D6", "A key that rests for a moment is waited for."),
    "keys:next-at-once": Requirement(
        "mediation 4, the model's side", "A refused or throttled key is followed by the provider's next one at once."
    ),
    "keys:exhausted": Requirement("issue 3, providers", "A provider whose keys are spent is followed by the next one."),
    "keys:keyless": Requirement("contract, providers.json; weakness B15", "Keyless providers work."),
    "policy:clamp": Requirement(
        "mediation 8; original 8.6",
        "A model that is not allowed is replaced by the one that is meant, else by the primary.",
    ),
    "policy:candidates": Requirement(
        "mediation 4, the model's side", "Behind the chosen model stand the primary and the fallbacks, in order."
    ),
    "policy:bad-ref": Requirement("weakness B16", "A bad ref of a policy is left out with a reason; the others work."),
    "policy:protocol": Requirement("mediation 8", "Only providers that speak the request's protocol are asked."),
    "policy:destination": Requirement(
        "mediation 1", "At the entrances with a host its provider is kept: only refs of that provider count."
    ),
    "providers:ready": Requirement(
        "mediation 1", "/ready wants a provider with a key that is not dead, or without keys."
    ),
    "history:chain": Requirement("contract, history", "Each line holds the hash of the one before; edits show."),
    "history:restart": Requirement("contract, history", "A restart continues the chain, however long the last line."),
    "history:torn-line": Requirement("contract, history", "A torn last line breaks neither chain nor next line."),
    "history:rotation": Requirement("contract, history", "Rotation by size keeps the chain."),
    "history:bodies": Requirement("contract, history", "Bodies keep their exact JSON; long ones are cut with a mark."),
    "store:own": Requirement("mediation 7", "Hidden rounds are found by their own agent and anchor only."),
    "store:bounded": Requirement("mediation 7", "Bounded per agent by turns and age, least recently used first out."),
    "store:durable": Requirement("mediation 7", "A file survives a crash, and is private."),
    "settings:defaults": Requirement("contract, layout", "Settings have the contract's names and defaults."),
    "settings:documented": Requirement(
        "CONTRIBUTING, how to add", "The README names every setting, with its option and its default."
    ),
    "settings:wrong": Requirement("issue 2, build 5", "A wrong setting is one line that names it."),
    "log:error-code": Requirement(
        "contract, the log", "The error event of a turn that failed says why, in a word of ours, in every dialect."
    ),
    "log:shape": Requirement("contract, the log", "One JSON object a line, with the common members."),
    "names:native-wins": Requirement(
        "README, rulings", "A name that the runner declared in this request is the runner's."
    ),
    "calls:invalid-arguments": Requirement(
        "mediation 4", "Arguments that do not parse are never run and never taken for an empty object."
    ),
    "calls:schema-validation": Requirement(
        "mediation 4", "Arguments are held to the tool's schema before the service is called."
    ),
    "calls:duplicate": Requirement("mediation 4, repeats", "An equal call in one turn is not run again."),
    "calls:duplicate-exceptions": Requirement(
        "mediation 4, repeats", "A read may be repeated after it failed, and after a write in its service."
    ),
    "calls:idle-rounds": Requirement("mediation 4, repeats", "Three rounds of repeats in a row lead to finalization."),
    "calls:parallel": Requirement(
        "mediation 4, order", "Neighbouring reads run together; results keep the calls' order."
    ),
    "calls:idempotency-key": Requirement("mediation 4, executing over HTTP", "Each call of a turn has its own key."),
    "calls:error-results": Requirement("mediation 4, results", "A service's error is a result; the turn goes on."),
    "budget:per-tool": Requirement(
        "mediation 4, budgets", "A call has its tool's time, else the agent's, and never more than the turn."
    ),
    "calls:query-and-body": Requirement(
        "mediation 4, executing over HTTP",
        "GET and DELETE put the rest in the query, others in a JSON body, under body_key where it is set.",
    ),
    "calls:timeout": Requirement(
        "mediation 4, budgets", "A call cut off by time is timeout; of a write the outcome is said to be unknown."
    ),
    "calls:terminal-on-success": Requirement(
        "mediation 4, terminalOnSuccess",
        "A terminal call that succeeds ends the turn; it must be the last of its reply.",
    ),
    "injection:tool-choice-released": Requirement(
        "mediation 3.3", "A forced choice holds for the first model call, by alias, and is released afterwards."
    ),
    "budget:rounds": Requirement(
        "mediation 4, budgets", "Rounds spent: calls are answered, and one last model call may not use tools."
    ),
    "budget:finalization-fails": Requirement(
        "mediation 4, budgets", "A last word that asks for tools, or fails, is a 502."
    ),
    "budget:on-budget-error": Requirement("README, rulings", "on_budget: error gives the 502 at once."),
    "budget:soft-deadline": Requirement(
        "mediation 4, budgets", "At 90 % of the time pending calls are answered and the model has its last word."
    ),
    "failure:upstream-error-passed-on": Requirement(
        "mediation 4, the model's side", "A provider's 4xx or 5xx is passed on with its status and body."
    ),
    "failure:history-of-failed-turns": Requirement("contract, history", "Failed turns are written too, with what ran."),
    "failure:unreachable": Requirement(
        "mediation 2 and 4, the model's side", "A provider that can't be reached is a 502 in the dialect's shape."
    ),
    "failure:bad-reply": Requirement("mediation 4, the runner's side", "A reply that is no completion is a 502."),
    "failure:matrix": Requirement(
        "issue 3, build 7",
        "Every failure of a provider has one outcome in every phase, dialect and form; history and log tell what ran.",
    ),
    "failure:documented": Requirement("issue 3, build 7", "docs/failures.md is printed from the matrix, and current."),
    "attack:planted-secrets": Requirement(
        "mediation 2; issue 3, prove",
        "No key or token reaches anybody who did not have it, whoever says it and in whatever form.",
    ),
    "attack:documented": Requirement(
        "issue 3, prove", "docs/attacks.md tells of each known attack what holds it off, and is current."
    ),
    "attack:no-credential": Requirement(
        "gateways 4, identity", "Nothing but the credential is one: not a cookie, a Host, an Origin, or half of it."
    ),
    "attack:path-arguments": Requirement(
        "gateways 4, path arguments", "Over the wire a path argument is one segment and a query argument one pair."
    ),
    "attack:injected-results": Requirement(
        "gateways 4, prompt-injected results", "Whatever a service says is one text in its place, and stays data."
    ),
    "attack:names": Requirement(
        "gateways 4, confused ownership", "A name that nearly is a granted tool's runs nothing, and is told so."
    ),
    "attack:double-execution": Requirement(
        "gateways 4, double execution", "In one turn an equal call runs once, also after an error of the provider."
    ),
    "attack:shared-service": Requirement(
        "gateways 4, mix-up", "Agents that share a service share no credential, no identity and no result."
    ),
    "attack:two-protocols": Requirement(
        "mediation 5 and 7", "What was recorded in one protocol is never gone on with in another, whatever is said."
    ),
    "attack:deep-and-huge": Requirement(
        "gateways 4, resource exhaustion", "Deep, wide and huge JSON is sent or told as it is, or refused as a whole."
    ),
    "attack:endless-results": Requirement(
        "gateways 4, resource exhaustion", "A result without an end is given up, and the turn goes on."
    ),
    "stream:any-reply": Requirement(
        "mediation 6; issue 3, prove", "Any response is refused as a whole, or streams so that the real SDK reads it."
    ),
    "loop:terminates-on-the-wire": Requirement(
        "mediation 4, budgets; issue 3, prove",
        "Any bytes of a provider end a turn within its budgets, in either dialect.",
    ),
    "attack:many-calls": Requirement(
        "gateways 4, resource exhaustion",
        "A reply of more calls than a reply may hold runs none of them, and is told so.",
    ),
}

CONTEXT: dict[str, Requirement] = {
    "context:order": Requirement(
        "mediation 8",
        "Memory, blocks, feeds, blocks and time, in this order, behind one sentence that says whose text it is.",
    ),
    "context:fence": Requirement(
        "mediation 8; origin-runtime E10", "What a service says stands in a fence that nothing in it can end."
    ),
    "context:end-to-end": Requirement(
        "mediation 8",
        "A turn knows its feeds and memories, is remembered, and nothing hidden crosses a border with them.",
    ),
    "context:forwarded": Requirement(
        "mediation 8; issue 3.6",
        "Requests that are forwarded or only count tokens get the context, and stay as they are else.",
    ),
    "context:none": Requirement("mediation 8", "An agent without context gets no text, and no service is asked."),
    "context:no-topology": Requirement(
        "mediation 2; origin-runtime E3", "No address of a service is in a prompt or a log."
    ),
    "context:blocks": Requirement("origin-runtime 1.3", "Context blocks are cut to their length, in characters."),
    "context:quarantine": Requirement(
        "origin-runtime 7.1", "A block that can't be placed is left out, with one event."
    ),
    "context:broken-file": Requirement(
        "contract, layout", "A broken context file fails that agent closed, and no other."
    ),
    "context:time-line": Requirement("mediation 8", "The time is told in the agent's zone; an unknown one is UTC."),
    "feeds:fetch": Requirement(
        "mediation 8", "A feed is fetched as the agent, with its credential, and shown as it is."
    ),
    "feeds:ttl": Requirement("mediation 8", "A feed is fetched once in its TTL, for each agent."),
    "feeds:revalidate": Requirement(
        "issue 3.6", "A copy that has just expired is used and refreshed beside the turn; a much older one is not."
    ),
    "feeds:stale-while-error": Requirement("mediation 8", "When the fetch fails the old copy is used, with its age."),
    "feeds:rest": Requirement(
        "issue 3.6", "A feed that failed is left alone for a while: turns do not wait for it again."
    ),
    "feeds:concurrent": Requirement(
        "issue 3.6; origin-runtime D1", "Feeds are fetched side by side; turns share a fetch."
    ),
    "feeds:caps": Requirement(
        "mediation 8", "Each feed is cut with a mark; those beyond the total are left out with a line."
    ),
    "feeds:bounded": Requirement(
        "issue 3.6", "Slow, broken and unreachable services cost no more than the feed's time."
    ),
    "feeds:own-host-only": Requirement("mediation 4", "Redirects are refused, environment proxies unused."),
    "feeds:redaction": Requirement("mediation 2", "No credential that a feed says back reaches the prompt."),
    "feeds:url": Requirement("issue 3.6", "A feed's URL is checked when the file is read."),
    "memory:recall": Requirement("origin-runtime 8.10", "What a service recalls for the request stands in the prompt."),
    "memory:bounds": Requirement(
        "origin-runtime 8.10", "Eight memories, 8 KiB, and none that is the conversation itself."
    ),
    "memory:failure": Requirement(
        "origin-runtime 8.10", "A service that fails costs the memory, and at most its time."
    ),
    "memory:redaction": Requirement("origin-runtime 8.10", "What looks like a credential is blanked out, both ways."),
    "memory:retain": Requirement(
        "origin-runtime 8.10, E7",
        "A turn is retained beside it, redacted with its tool results, bounded, and before the end.",
    ),
    "budget:window": Requirement("mediation 8", "What has left the window does not count, and is deleted."),
    "budget:max-requests": Requirement(
        "mediation 8", "A request too many is 429 in its dialect's shape; each agent has its own."
    ),
    "budget:retry-after": Requirement(
        "mediation 8", "Retry-After is the time until there is room, and at least a second."
    ),
    "budget:admission": Requirement("issue 3.6", "Requests are counted when they are admitted, across processes."),
    "budget:durable": Requirement("origin-runtime D7", "Spending survives a restart without reading history."),
    "budget:soft-alert": Requirement("origin-runtime 8.12", "soft_alert is an event and no refusal."),
    "budget:cost": Requirement(
        "origin-runtime 8.5", "A cost is the provider's, else the price list's, and is never below zero."
    ),
    "budget:cost-unknown": Requirement(
        "origin-runtime 8.5", "Requests of unknown cost are counted, and told once a window."
    ),
    "budget:fail-mode": Requirement("origin-runtime 1.2", "An unreadable table lets pass, or is a 503, as it was set."),
    "budget:end-to-end": Requirement(
        "mediation 8", "Real SDKs see a spent budget as 429, and get through when they wait."
    ),
    "housekeeping:forwarded": Requirement(
        "mediation 8", "A side request gets no tools and no context, is not remembered, and passes byte for byte."
    ),
    "housekeeping:told-apart": Requirement(
        "mediation 8", "A runner's side requests are told by its program's own words, never by a user's text."
    ),
}

PROXY: dict[str, Requirement] = {
    "journal:resume": Requirement(
        "mediation 5", "The same request after a turn that failed resumes it: what ran is played, and not run again."
    ),
    "state:shared": Requirement(
        "issue 4, 1", "Proxies on one Valkey serve one conversation: a retry at another one goes on with the turn."
    ),
    "journal:one-runs": Requirement(
        "mediation 5; issue 4, 1", "Of one request one turn runs, whichever proxy begins it."
    ),
    "journal:lease": Requirement(
        "issue 4, 1",
        "A turn whose process is silent goes on elsewhere; what the first one still wants to write is refused.",
    ),
    "journal:not-entered": Requirement(
        "mediation 5", "A turn that is not entered in the journal begins no call: a retry could not find it."
    ),
    "journal:ten-minutes": Requirement(
        "mediation 5", "After ten minutes a turn is not resumed, and the same request may run again."
    ),
    "journal:kill": Requirement("mediation 5", "A turn survives kill -9: its recorded rounds are played."),
    "journal:unknown": Requirement(
        "mediation 5", "A write whose result was never recorded is answered outcome_unknown, and not run again."
    ),
    "journal:call-in-flight": Requirement(
        "mediation 5", "A call that was in flight when its runner left is awaited, and its answer used by the retry."
    ),
    "crash:at-most-once": Requirement(
        "issue 4, prove", "Killed at any step, a write is made at most once, and the model is told only what is true."
    ),
    "crash:goes-on": Requirement(
        "issue 4, prove", "Killed at any step, the turn is finished, in history, and in every later request."
    ),
    "journal:join": Requirement("mediation 5", "The same request while its turn runs gets the answer of that turn."),
    "journal:retry-of-a-done-turn": Requirement(
        "mediation 5", "A done turn is answered again only where the request says that it is a retry."
    ),
    "anthropic:hidden-loop": Requirement(
        "mediation 4; issue 3, 1.", "The anthropic SDK gets one answer, or stream, of a turn with hidden rounds."
    ),
    "anthropic:native-handed-back": Requirement(
        "mediation 4 and 7; issue 3, 1.", "A native tool_use is handed back, and the follow-up has the hidden rounds."
    ),
    "anthropic:credentials-swapped": Requirement(
        "mediation 2", "Bearer and x-api-key both admit; the provider gets its own key in its own scheme, once."
    ),
    "anthropic:count-tokens": Requirement(
        "mediation 1", "count_tokens counts with the managed tools and the hidden rounds, and is no turn."
    ),
    "anthropic:errors": Requirement(
        "mediation 2 and 4", "Errors have Anthropic's shape, the provider's keep their status."
    ),
    "proxy:hidden-loop": Requirement(
        "mediation 4, table; seed 000", "The runner sees the answer; the managed call and its round stay hidden."
    ),
    "proxy:streaming": Requirement("mediation 6", "A runner that asked for a stream gets one that its SDK accepts."),
    "proxy:native-handed-back": Requirement(
        "mediation 4, table; seed 000, case 4", "The runner gets its native calls, and goes on with them."
    ),
    "proxy:execution-hidden": Requirement(
        "mediation 3.2", "The model sees name, description and schema; nothing of execution."
    ),
    "proxy:credentials-swapped": Requirement(
        "mediation 2", "The agent's credential never goes upstream; provider key and tool token never leave otherwise."
    ),
    "proxy:identity": Requirement(
        "mediation 2", "401 for a missing or malformed credential, 403 for a wrong one, same body."
    ),
    "proxy:agents-live": Requirement(
        "contract, layout", "Agents and grants change at the next request, without a restart."
    ),
    "proxy:broken-agent": Requirement(
        "contract, layout", "A file that does not parse fails that agent alone: 403, and one line in the log."
    ),
    "proxy:two-conversations": Requirement(
        "mediation 7", "Conversations of one agent at once never disturb each other."
    ),
    "stream:keepalive": Requirement("mediation 6", "While the turn waits, the stream is kept alive."),
    "stream:status-until-it-goes-on": Requirement(
        "mediation 6", "Until the turn goes on an error keeps its own status."
    ),
    "stream:error-event": Requirement("mediation 6", "After the headers an error is an event, then [DONE]."),
    "runner:leaves": Requirement("mediation 4, the runner's side", "A runner that disconnects cancels the model call."),
    "runner:leaves-while-writing": Requirement(
        "mediation 4, the runner's side", "A write that was sent may finish, and is recorded."
    ),
    "service:structured-results": Requirement(
        "mediation 4, results",
        "A service that is down, slow, huge or not JSON is a structured result; the turn goes on.",
    ),
    "forward:byte-for-byte": Requirement(
        "mediation 3", "Without managed tools the body is unchanged; with them, all that is not ours is."
    ),
    "forward:unread": Requirement(
        "issue 3, item 4",
        "Of an agent without tools only the model must be readable, once; what its provider takes is not ours to refuse.",
    ),
    "forward:streaming": Requirement("mediation 3", "An unmediated stream passes through; usage is read from a copy."),
    "proxy:no-way-round": Requirement("mediation 1", "A path counts by what a lenient provider would make of it."),
    "proxy:headers-survive": Requirement("mediation 3.5", "Headers that are not ours go through, in any bytes."),
    "hostile:smuggling": Requirement(
        "mediation 2, fail closed", "A body without a length is framed before it goes out."
    ),
    "hostile:large-bodies": Requirement("gateways 4", "A body that is no conversation, or is ambiguous, is a 400."),
    "hostile:cookies": Requirement("mediation 2", "Nothing that an answer sets is part of another request."),
    "hostile:token-elsewhere": Requirement("mediation 2", "The agent's credential goes upstream under no name."),
    "hostile:odd-usage": Requirement(
        "contract, history", "An odd usage costs neither the answer nor the line of history."
    ),
    "stop:answers-end": Requirement(
        "issue 2, review", "A stream under way is sent to its end when the proxy is stopped."
    ),
    "log:json-only": Requirement("contract, the log", "stdout is one JSON object a line, whatever goes wrong."),
    "forward:recorded": Requirement(
        "contract, history and log", "A forwarded completion is recorded like a mediated turn."
    ),
    "route:spent-key": Requirement(
        "mediation 4, the model's side", "A key that was refused is dead; the next one is used."
    ),
    "forward:tool-choice-none": Requirement("mediation 3.3", "tool_choice none: no injection and no loop."),
    "forward:other-paths": Requirement(
        "mediation 1", "Other paths (a thread's messages too) are identified, credential-swapped and passed through."
    ),
    "failover:through-the-proxy": Requirement(
        "issue 3, providers", "A runner does not notice that its provider failed and another one answered."
    ),
    "retry:through-the-proxy": Requirement(
        "mediation 4, the model's side", "Once a tool has run, a throttled only key is waited for and used."
    ),
    "keys:account-headers": Requirement(
        "mediation 2; weakness E12", "A runner can't say whose account the key is of, and so kill it with a 401."
    ),
    "forward:unreachable": Requirement(
        "mediation 2, upstream", "An unreachable provider is a 502 that names no address."
    ),
    "route:model-prefix": Requirement("mediation 1", "At the base URL the model's prefix picks the provider."),
    "own:health-ready": Requirement("mediation 1", "GET /health and GET /ready on the proxy's own port."),
    "own:websocket-426": Requirement("mediation 1", "WebSocket upgrades to a governed host are refused with 426."),
    "entrance:forward-proxy": Requirement("mediation 1", "HTTPS_PROXY and the CA are all that a runner needs."),
    "entrance:by-connection-and-sni": Requirement(
        "design, the guard", "The destination is taken from the connection and SNI, never from the Host header."
    ),
    "failure:sdk-raises": Requirement(
        "issue 3, build 7", "The real SDKs raise their own class for each kind of failure, before and behind headers."
    ),
    "closed:fault-in-a-turn": Requirement(
        "mediation 4, the runner's side",
        "A fault inside a turn is a 502, or an event of its stream, and is in history.",
    ),
    "egress:not-opened": Requirement("mediation 1", "TLS of hosts that are not governed is not opened."),
    "egress:deny": Requirement("mediation 1", "cllama_egress=deny refuses hosts that are not governed."),
    "closed:hook-fails": Requirement("mediation 2, fail closed", "A hook that raises or is cancelled answers 502."),
    "closed:script-broken": Requirement(
        "mediation 2, fail closed", "A script broken by hot reload leaves the guard: 503."
    ),
    "closed:script-deleted": Requirement("mediation 2, fail closed", "A script that is deleted leaves the guard: 503."),
    "closed:good-reload": Requirement("design, the guard", "A good reload goes on working."),
    "closed:stream-large-bodies": Requirement("mediation 2, fail closed", "stream_large_bodies can't be switched on."),
    "closed:body-limit": Requirement("mitmproxy reference 4", "A body over the limit is a 413, and nothing goes out."),
    "start:missing-configuration": Requirement(
        "issue 2, build 5", "What is missing is said in one line; the exit is not 0."
    ),
    "start:unsafe-options": Requirement("design, the guard", "Options that let requests out undecided are refused."),
    "start:no-flags": Requirement("mediation 1", "With no flag: base URL and forward proxy."),
    "start:explicit-mode": Requirement("issue 2, build 5", "Explicit modes are respected."),
    "start:options-over-environment": Requirement(
        "issue 2, build 5", "Options have the environment as their defaults."
    ),
    "connections:http": Requirement(
        "issue 3, failure and bench",
        "What a peer says over HTTP/1.1 is read whole or is one kind of error; no answer is taken for another's.",
    ),
    "connections:apart": Requirement(
        "mediation 4, executing over HTTP", "No two agents share a connection, nor two services of one agent."
    ),
    "bench:alive": Requirement("issue 3, bench", "One command measures every row, and prints a table and JSON."),
    "log:no-chatter": Requirement(
        "issue 3, bench", "What mitmproxy and clients say of each request is not made into records that nobody reads."
    ),
    "dispatch:same": Requirement(
        "issue 3, dispatch", "With the fast dispatch every addon hears what it hears without, also after hot reload."
    ),
    "dispatch:choice": Requirement("issue 3, dispatch", "The fast dispatch is on, and one option turns it off."),
    "dispatch:asserted": Requirement(
        "issue 3, dispatch",
        "On a mitmproxy that is built differently the fast dispatch is off, with one line that says so.",
    ),
    "restart:continuity-and-chain": Requirement("mediation 7; contract, history", "Both survive kill -9."),
}

PODS: dict[str, Requirement] = {
    "pods:service-bearer": Requirement("issue 2, trading-api", "No route is reached without the bearer token."),
    "pods:service-money": Requirement("issue 2, trading-api", "Money is exact: cents inside, two places outside."),
    "pods:service-identity": Requirement(
        "mediation 4, X-Claw-ID",
        "An agent sees and moves its own account only; identity is a header, never an argument.",
    ),
    "pods:service-idempotency": Requirement(
        "mediation 4, Idempotency-Key", "The same key gives the recorded answer: once, at once, and after a kill."
    ),
    "pods:service-concurrency": Requirement("issue 2, trading-api", "Trades at once cannot spend the same money."),
    "pods:service-refusals": Requirement("issue 2, bad input", "A refused request says why and changes nothing."),
    "pods:service-descriptor": Requirement(
        "issue 2, trading-api", "Every tool of the descriptor is served at its path, with its arguments."
    ),
    "pods:service-open-orders": Requirement(
        "issue 2, trading-api", "An open order holds money back until it is cancelled; nothing else can be cancelled."
    ),
    "pods:scripted-model-wire": Requirement(
        "issue 2, embedded scripted model", "The real wire, behind a key, labelled as scripted in every response."
    ),
    "pods:scripted-model-decides": Requirement(
        "issue 2, embedded scripted model", "It decides from the offered tools, the choice and the results alone."
    ),
    "pods:demo": Requirement(
        "issue 2, make demo",
        "Hidden rounds beside what the runner saw, one trade, the denied tool, the audit, no leak.",
    ),
    "pods:demo-stops-clean": Requirement("issue 2, make demo", "A signal leaves no process and no file behind."),
    "pods:demo-fails-clearly": Requirement(
        "issue 2, make demo", "What does not come true is named, and the status is 1."
    ),
}

PASSING: dict[str, Requirement] = {
    "compressed:any-coding": Requirement(
        "issue 3, item 4", "gzip, deflate, br and zstd, and chains of two, are read, cut anywhere."
    ),
    "compressed:refusals": Requirement(
        "issue 3, item 4", "A body that can't be unpacked is 400, an unknown coding 415."
    ),
    "compressed:bombs": Requirement(
        "gateways 4", "What unpacks to too much, or for too long, is given up for little memory."
    ),
    "packed:requests": Requirement(
        "issue 3, item 4",
        "Compressed requests are mediated; forwarded ones keep their bytes, unless they must be edited.",
    ),
    "packed:refusals": Requirement("issue 3, item 4", "Such a refusal has the dialect's shape, and nothing goes out."),
    "packed:responses": Requirement(
        "issue 3, item 4", "The runner's Accept-Encoding goes upstream, and a compressed response through, untouched."
    ),
    "forward:usage-from-a-copy": Requirement(
        "mediation 3", "Usage is found in both dialects, JSON and streams, packed in any way, cut at any byte."
    ),
    "forward:hostile-copy": Requirement(
        "issue 3, item 4",
        "A copy that is garbage, endless or a bomb costs little, and never touches what goes through.",
    ),
    "forward:every-method": Requirement(
        "mediation 1; runners, side traffic", "Every method and path goes through, query and body as they came."
    ),
    "forward:every-status": Requirement(
        "mediation 1", "Responses without a body, and repeated headers, stay as they are, and count as whole."
    ),
    "forward:one-connection": Requirement(
        "RFC 9110, 7.6.1", "Headers of the runner's own connection go no further, and remove nothing behind us."
    ),
    "forward:expect": Requirement(
        "RFC 9110, 10.1.1", "Expect: 100-continue is answered: go on, or the refusal at once."
    ),
    "forward:errors-tell-no-key": Requirement(
        "mediation 2", "An error that says our key back is passed on without it; any other one is not touched."
    ),
    "forward:leaves": Requirement(
        "mediation 4, the runner's side",
        "A runner that leaves ends its request at the provider, and is recorded as 499.",
    ),
    "forward:breaks-off": Requirement(
        "issue 3, item 7",
        "A provider that gives no response is a 502 in the dialect's shape; one that breaks off, a break.",
    ),
    "large:streams": Requirement(
        "issue 3, item 4", "Uploads and downloads of any size stream through, and the proxy's memory stays flat."
    ),
    "large:back-pressure": Requirement(
        "mitmproxy reference 1", "A peer of HTTP/2 that gives no window slows the other side down; nothing piles up."
    ),
    "large:mediated": Requirement("issue 3, item 4", "A chat with 30 MB of images is read, mediated and forwarded."),
    "large:limit": Requirement(
        "issue 3, item 4",
        "A chat beyond body_size_limit is a 413 in the dialect's shape, at once; nothing of it is kept.",
    ),
    "odd:trailers": Requirement("RFC 9110, 6.5.1", "Trailers are dropped, in every version of HTTP, and harm nothing."),
    "odd:endless": Requirement(
        "mitmproxy reference 7", "Heads, chunks and trailers that never end are closed, and not kept."
    ),
    "odd:heads": Requirement(
        "RFC 9112, 5.2", "Folded lines, line breaks and null bytes in a head are refused, and other transfer codings."
    ),
    "entrance:any-spelling": Requirement(
        "design, the guard", "No spelling of a governed host or address is a way round."
    ),
    "egress:untouched": Requirement(
        "mediation 1", "What goes to a host that is not governed streams through, WebSockets too."
    ),
    "start:hangup": Requirement("issue 3, item 7", "A hangup does not end a proxy that has no terminal."),
    "own:head-root": Requirement("gateways 2.5", "HEAD / is answered, with a credential and without."),
}

REQUIREMENTS = CONTRACT | COMPILE | MEDIATE | CONTEXT | PROXY | PASSING | PODS
