"""A turn: its loop, its budgets, the owners of names, reinjected rounds, and its failures."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "loop:terminates": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "Any sequence of replies ends within max_rounds + 2 model calls, and repeats nothing it may not.",
    ),
    "loop:no-calls": Requirement(
        "docs/spec/mediation.md section 4, table", "A reply without calls is the answer."
    ),
    "loop:managed-only": Requirement(
        "docs/spec/mediation.md section 4, table",
        "Managed calls are run by the proxy, hidden from the runner, and the model is asked again.",
    ),
    "loop:native-only": Requirement(
        "docs/spec/mediation.md section 4, table",
        "A reply of native calls only goes to the runner unchanged.",
    ),
    "loop:managed-first-native-behind": Requirement(
        "docs/spec/mediation.md section 4, table",
        "A native suffix is dropped, the managed prefix is run, and the model is asked again.",
    ),
    "loop:native-before-managed": Requirement(
        "docs/spec/mediation.md section 4, table; docs/spec/README.md, decisions",
        "Native before managed, or interleaved: nothing runs, every call is answered managed_tools_first.",
    ),
    "loop:unknown-tool": Requirement(
        "docs/spec/README.md, decisions",
        "A name that is neither declared nor granted is answered unknown_tool, and goes nowhere else.",
    ),
    "loop:handoff-continuity": Requirement(
        "docs/spec/mediation.md section 7",
        "Hidden rounds before a native handoff are reinjected on the follow-up and on every later request.",
    ),
    "loop:answer-continuity": Requirement(
        "docs/spec/mediation.md section 7",
        "Hidden rounds behind an answer are there again when the conversation goes on.",
    ),
    "loop:usage-summed": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "History, budgets and metrics count the usage of all model calls of the turn.",
    ),
    "loop:usage-for-runner": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "The runner is shown the input tokens of the last model call and the output tokens of all of them.",
    ),
    "loop:terminates-on-the-wire": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "Any bytes of a provider end a turn within its budgets, in either dialect.",
    ),
    "transcript:valid": Requirement(
        "docs/spec/mediation.md sections 4 and 6 and 7",
        "Whatever a model calls, streaming or not: each request is valid for its provider, and dialects draw one picture.",
    ),
    "transcript:odd-arguments": Requirement(
        "docs/spec/mediation.md section 4",
        "A call that could not be read goes back to the provider as one that it takes: arguments are an object.",
    ),
    "budget:rejected-rounds-count": Requirement(
        "docs/spec/mediation.md section 4", "A rejected response is a round, too."
    ),
    "budget:total": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "A turn whose time is over asks no more; an answer that is there is delivered.",
    ),
    "budget:per-tool": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "A call has its tool's time, else the agent's, and never more than the turn.",
    ),
    "budget:rounds": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "Rounds spent: calls are answered, and one last model call may not use tools.",
    ),
    "budget:finalization-fails": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "A last word that asks for tools, or fails, is a 502.",
    ),
    "budget:on-budget-error": Requirement(
        "docs/spec/README.md, decisions", "on_budget: error gives the 502 at once."
    ),
    "budget:soft-deadline": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "At 90 % of the time pending calls are answered and the model has its last word.",
    ),
    "failure:bad-request": Requirement(
        "docs/failures.md", "A body that is no request is a 400 in one sentence."
    ),
    "failure:upstream-error-passed-on": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A provider's 4xx or 5xx is passed on with its status and body.",
    ),
    "failure:history-of-failed-turns": Requirement(
        "docs/spec/contract.md, history.jsonl", "Failed turns are written too, with what ran."
    ),
    "failure:unreachable": Requirement(
        "docs/spec/mediation.md sections 2 and 4, the model's side",
        "A provider that can't be reached is a 502 in the dialect's shape.",
    ),
    "failure:bad-reply": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "A reply that is no completion is a 502.",
    ),
    "failure:matrix": Requirement(
        "docs/failures.md",
        "Every failure of a provider has one outcome in every phase, dialect and form; history and log tell what ran.",
    ),
    "failure:documented": Requirement(
        "docs/failures.md", "docs/failures.md is printed from the matrix, and current."
    ),
    "failure:sdk-raises": Requirement(
        "docs/failures.md",
        "The real SDKs raise their own class for each kind of failure, before and behind headers.",
    ),
    "names:canonical-call": Requirement(
        "docs/spec/README.md, decisions; docs/spec/mediation.md section 3, item 2",
        "A call by the canonical name is managed; its provider sees the alias again.",
    ),
    "names:case": Requirement(
        "docs/spec/README.md, decisions",
        "Names count as they are written: another case is another name.",
    ),
    "names:odd-names": Requirement(
        "docs/spec/mediation.md section 4",
        "An invented name that no provider takes back stands in the transcript in plain characters.",
    ),
    "names:every-request": Requirement(
        "docs/spec/README.md, decisions", "What a runner declares is its own in that request only."
    ),
    "names:grants-of-the-moment": Requirement(
        "docs/spec/contract.md, layout",
        "A grant that is gone is unknown, whatever the transcript shows.",
    ),
    "names:aliases": Requirement(
        "docs/spec/README.md, decisions",
        "Aliases are unique, provider-safe, 64 characters at most, and never the runner's names.",
    ),
    "names:owner": Requirement(
        "docs/spec/README.md, decisions",
        "Alias and canonical name are managed, declared names native, all others unknown.",
    ),
    "names:room": Requirement(
        "docs/spec/mediation.md section 3, item 7",
        "Managed tools without room are left out from the end.",
    ),
    "names:native-wins": Requirement(
        "docs/spec/README.md, decisions",
        "A name that the runner declared in this request is the runner's.",
    ),
    "injection:foreign-tools": Requirement(
        "docs/spec/mediation.md section 3, item 6",
        "Entries of the runner's tools that are no functions stay, and their names are the runner's.",
    ),
    "injection:same-bytes": Requirement(
        "docs/spec/mediation.md section 3, item 1",
        "The same grants give the same bytes, for prompt caches.",
    ),
    "injection:tool-choice-kept": Requirement(
        "docs/spec/mediation.md section 3, item 3",
        "A choice stays as the runner made it, until a managed call obeyed a forced one.",
    ),
    "injection:tool-choice-none": Requirement(
        "docs/spec/mediation.md section 3, item 3",
        "tool_choice none, in any dialect: passed through.",
    ),
    "injection:parallel-kept": Requirement(
        "docs/spec/mediation.md section 3, item 3",
        "parallel_tool_calls and disable_parallel_tool_use stay as they were, in every round.",
    ),
    "injection:without-grants": Requirement(
        "docs/spec/mediation.md section 3", "Without managed tools a request passes unchanged."
    ),
    "injection:whole-response": Requirement(
        "docs/spec/mediation.md section 3, item 4",
        "The provider is asked for a whole response, whatever the runner asked for.",
    ),
    "injection:tools-appended": Requirement(
        "docs/spec/mediation.md section 3, item 1",
        "The runner's tools stay first and untouched; the managed ones stand behind them.",
    ),
    "injection:tool-choice-released": Requirement(
        "docs/spec/mediation.md section 3, item 3",
        "A forced choice holds for the first model call, by alias, and is released afterwards.",
    ),
}
