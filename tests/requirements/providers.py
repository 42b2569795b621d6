"""Which provider, model and key answers, and what follows when one fails."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
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
    "providers:ready": Requirement(
        "mediation 1", "/ready wants a provider with a key that is not dead, or without keys."
    ),
    "policy:forwarded": Requirement(
        "mediation 8", "A forwarded request is clamped too: its model is replaced, and every other byte stays."
    ),
    "policy:mediated": Requirement(
        "mediation 8; contract, history",
        "A mediated turn is clamped; history tells the model asked for and the one used.",
    ),
    "policy:other-paths": Requirement(
        "issue 11, part 1",
        "A POST of no dialect that names a model is clamped; where an agent's policy can't read it, it is a 403.",
    ),
    "policy:forms": Requirement(
        "issue 11, part 1", "A form's model is read and replaced; a form that parsers read in several ways is none."
    ),
    "routing:other-paths": Requirement(
        "issue 11, part 1", "Wherever a body names a model, its prefix picks the provider, and is stripped."
    ),
    "policy:spelling": Requirement("mediation 1", "No spelling of a path is a way round the policy."),
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
    "keys:other-paths": Requirement(
        "weakness E12", "What a path that is no model call answers kills no key: an agent could kill them all with it."
    ),
    "keys:next-at-once": Requirement(
        "mediation 4, the model's side", "A refused or throttled key is followed by the provider's next one at once."
    ),
    "keys:exhausted": Requirement("issue 3, providers", "A provider whose keys are spent is followed by the next one."),
    "keys:keyless": Requirement("contract, providers.json; weakness B15", "Keyless providers work."),
    "keys:account-headers": Requirement(
        "mediation 2; weakness E12", "A runner can't say whose account the key is of, and so kill it with a 401."
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
    "failover:through-the-proxy": Requirement(
        "issue 3, providers", "A runner does not notice that its provider failed and another one answered."
    ),
    "retry:after-tools": Requirement(
        "mediation 4, the model's side",
        "Once a turn has cost something, a failure that may pass is tried twice more within the turn's time.",
    ),
    "retry:retry-after": Requirement(
        "mediation 4, the model's side", "A short Retry-After is honoured, a long one is not."
    ),
    "retry:told": Requirement("mediation 4, the model's side", "A runner is told when it may come again."),
    "retry:resting-key": Requirement("weakness D6", "A key that rests for a moment is waited for."),
    "retry:through-the-proxy": Requirement(
        "mediation 4, the model's side", "Once a tool has run, a throttled only key is waited for and used."
    ),
    "route:spent-key": Requirement(
        "mediation 4, the model's side", "A key that was refused is dead; the next one is used."
    ),
    "route:model-prefix": Requirement("mediation 1", "At the base URL the model's prefix picks the provider."),
}
