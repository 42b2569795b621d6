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


CONTRACT: dict[str, Requirement] = {}

COMPILE: dict[str, Requirement] = {}

MEDIATE: dict[str, Requirement] = {
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
        "issue 2, bad input", "A provider that can't be reached is a 502 in the dialect's shape."
    ),
    "failure:bad-reply": Requirement("mediation 4, the runner's side", "A reply that is no completion is a 502."),
}

PROXY: dict[str, Requirement] = {}

REQUIREMENTS = CONTRACT | COMPILE | MEDIATE | PROXY
