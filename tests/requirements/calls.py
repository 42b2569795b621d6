"""A managed call: its arguments, its way over HTTP, its result."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "calls:cut-off": Requirement(
        "docs/spec/mediation.md section 4",
        "The last call of an answer that ran out of tokens is never run, and the model is told why.",
    ),
    "calls:duplicate-advice": Requirement(
        "docs/spec/mediation.md section 4, repeats",
        "A repeat is told with the tool, the first round, the count, and what to do instead.",
    ),
    "calls:repeatable": Requirement(
        "docs/spec/mediation.md section 4, repeats", "x-claw.repeatable: an equal call runs again."
    ),
    "calls:order-of-checks": Requirement(
        "docs/spec/mediation.md section 4, before each execution",
        "Arguments, repeat and schema are checked in this order; violations are told, and the service is not called.",
    ),
    "calls:max-parallel": Requirement(
        "docs/spec/mediation.md section 4, order", "At most max_parallel calls run at once."
    ),
    "calls:path-segment": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "A path argument stays one segment, encoded once, whatever it is.",
    ),
    "calls:exact-numbers": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "Numbers keep their spelling in path, query, body and result.",
    ),
    "calls:claw-id": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "claw_id is the authenticated agent, whatever the model sends for it.",
    ),
    "calls:signature": Requirement(
        "docs/spec/mediation.md section 4, repeats",
        "Equal arguments are equal by value: key order, 1 and 1.0, never 2^53 and its neighbour.",
    ),
    "calls:schema-keywords": Requirement(
        "docs/spec/mediation.md section 4",
        "The usual keywords of JSON Schema hold, in every draft.",
    ),
    "calls:schema-no-fetch": Requirement(
        "docs/spec/mediation.md section 4", "A remote $ref is never fetched."
    ),
    "calls:schema-eight": Requirement(
        "docs/spec/mediation.md section 4", "At most eight violations are told, in a stable order."
    ),
    "calls:schema-hostile": Requirement(
        "docs/spec/mediation.md section 4",
        "A value that cannot be checked is not valid, and no fault.",
    ),
    "calls:schema-bounded": Requirement(
        "decision 0010",
        "No schema and no value makes a check work for long; a pattern that can't be used is known at load.",
    ),
    "calls:schema-patterns": Requirement(
        "decision 0010", "Patterns are ECMA-262's, wherever a draft has them."
    ),
    "calls:schema-exact": Requirement(
        "docs/spec/mediation.md section 4", "Numbers compare exactly: above 2^53, and decimals."
    ),
    "calls:ids": Requirement(
        "docs/spec/mediation.md section 6",
        "Call ids that are repeated or missing are minted, of letters and digits, and answered.",
    ),
    "calls:invalid-arguments": Requirement(
        "docs/spec/mediation.md section 4",
        "Arguments that do not parse are never run and never taken for an empty object.",
    ),
    "calls:schema-validation": Requirement(
        "docs/spec/mediation.md section 4",
        "Arguments are held to the tool's schema before the service is called.",
    ),
    "calls:duplicate": Requirement(
        "docs/spec/mediation.md section 4, repeats", "An equal call in one turn is not run again."
    ),
    "calls:duplicate-exceptions": Requirement(
        "docs/spec/mediation.md section 4, repeats",
        "The latest equal call decides: a read runs again after it failed, twice at most, and after a write in its service.",
    ),
    "calls:idle-rounds": Requirement(
        "docs/spec/mediation.md section 4, repeats",
        "Three rounds of repeats in a row lead to finalization.",
    ),
    "calls:parallel": Requirement(
        "docs/spec/mediation.md section 4, order",
        "Neighbouring reads run together; results keep the calls' order.",
    ),
    "calls:idempotency-key": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "Each call of a turn has its own key.",
    ),
    "calls:error-results": Requirement(
        "docs/spec/mediation.md section 4, results",
        "A service's error is a result; the turn goes on.",
    ),
    "calls:query-and-body": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "GET and DELETE put the rest in the query, others in a JSON body, under body_key where it is set.",
    ),
    "calls:timeout": Requirement(
        "docs/spec/mediation.md section 4, budgets",
        "A call cut off by time is timeout; of a write the outcome is said to be unknown.",
    ),
    "calls:terminal-on-success": Requirement(
        "docs/spec/mediation.md section 4, terminalOnSuccess",
        "A terminal call that succeeds ends the turn; it must be the last of its reply.",
    ),
    "results:truncation": Requirement(
        "docs/spec/mediation.md section 4, results",
        "Over the limit: the first bytes, cut at a character, and the true size.",
    ),
    "results:body-kinds": Requirement(
        "docs/spec/mediation.md section 4, results",
        "JSON is data in its own bytes; all else is text.",
    ),
    "results:redirect": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP", "Redirects are refused."
    ),
    "results:envelope": Requirement(
        "docs/spec/mediation.md section 4, results", "Every failure has the one shape."
    ),
    "service:request": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "A call says who asks and in which turn; a write has a stable key.",
    ),
    "service:credentials": Requirement(
        "docs/spec/contract.md, tools.json",
        "Bearer, header and basic credentials, inline or from the secrets directory.",
    ),
    "service:no-echo": Requirement(
        "docs/spec/mediation.md section 2",
        "A credential that a service says back never reaches the result, nor half of it.",
    ),
    "service:unreachable": Requirement(
        "docs/spec/mediation.md section 4, results",
        "A service that is down was certainly not reached.",
    ),
    "service:broken-off": Requirement(
        "docs/spec/mediation.md section 4, results",
        "A service that breaks off leaves a write's outcome unknown.",
    ),
    "service:too-large": Requirement(
        "docs/spec/mediation.md section 4, results",
        "A body that is too large is given up, zip bombs too.",
    ),
    "service:own-host-only": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "The host is the manifest's and no other, whatever the environment says.",
    ),
    "service:structured-results": Requirement(
        "docs/spec/mediation.md section 4, results",
        "A service that is down, slow, huge or not JSON is a structured result; the turn goes on.",
    ),
}
