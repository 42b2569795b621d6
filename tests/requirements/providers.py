"""The choice of provider, model and key, and of the next one after a failure."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "providers:versions": Requirement(
        "docs/spec/contract.md, providers.json",
        "Versions 1 and 2 are read; dead keys are not used.",
    ),
    "providers:environment": Requirement(
        "docs/spec/contract.md, providers.json",
        "Keys of the environment fill what the file does not key; base URLs override.",
    ),
    "providers:broken-file": Requirement(
        "docs/spec/contract.md, providers.json",
        "A broken file keeps the last good state, with one event.",
    ),
    "providers:routing": Requirement(
        "docs/spec/mediation.md section 1",
        "The model's prefix picks the provider, else the default.",
    ),
    "providers:hosts": Requirement(
        "docs/spec/mediation.md section 1",
        "Known hosts stay governed wherever their provider is configured.",
    ),
    "providers:key-states": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A dead key is out until its trial, a resting one until its time, at most ten minutes ahead; a replaced one is fresh.",
    ),
    "providers:key-verdicts": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A code of a bad key kills it, one about the account lets it rest for a minute, any other 429 for its model only.",
    ),
    "keys:codes": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A code counts only at the places that the provider's errors have for it, whatever else a body holds.",
    ),
    "keys:gateway": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "At a server that may be a gateway, a code counts only if the request holds no credential of its own, "
        "and the key has worked for no other model.",
    ),
    "keys:request-only": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A 401, 402 or 403 that may depend on the request fails that request only, and no other key is tried with it.",
    ),
    "keys:asked": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "After a 401 or 403 without such a code the proxy asks the provider about the key by itself, seldom; "
        "a key that is refused then is dead.",
    ),
    "keys:trial": Requirement(
        "decision 0012",
        "A dead key is tried again after five minutes by one request of all processes; the others go on as if it were dead.",
    ),
    "keys:scopes": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A 429 for one model, a count of tokens or another path lets no key rest for anything else.",
    ),
    "keys:clock": Requirement(
        "decision 0012", "A clock that jumps keeps no key out for longer than a state lasts."
    ),
    "providers:key-states-persist": Requirement(
        "decision 0012",
        "Key states outlive the process, in private files of their own that hold no secret.",
    ),
    "providers:key-states-broken": Requirement(
        "decision 0012", "A state that can't be read or written is one event, never a failure."
    ),
    "providers:operators-word": Requirement(
        "docs/spec/contract.md, providers.json",
        "States in the operator's file hold, and the file is never written.",
    ),
    "providers:ready": Requirement(
        "docs/spec/mediation.md section 1",
        "/ready wants a provider with a key that may be used, now or after a rest, or tried again, or without keys.",
    ),
    "policy:forwarded": Requirement(
        "docs/spec/mediation.md section 8",
        "A forwarded request is clamped too: its model is replaced, and every other byte stays.",
    ),
    "policy:mediated": Requirement(
        "docs/spec/mediation.md section 8; docs/spec/contract.md, history.jsonl",
        "A mediated turn is clamped; history tells the model asked for and the one used.",
    ),
    "policy:other-paths": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A POST of no dialect that names a model is clamped; where an agent's policy can't read it, it is a 403.",
    ),
    "policy:forms": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A form's model is read and replaced; a form that parsers read in several ways is none.",
    ),
    "routing:other-paths": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Wherever a body names a model, its prefix picks the provider, and is stripped.",
    ),
    "policy:spelling": Requirement(
        "docs/spec/mediation.md section 1", "No spelling of a path is a way round the policy."
    ),
    "policy:clamp": Requirement(
        "docs/spec/mediation.md section 8",
        "A model that is not allowed is replaced by the one that is meant, else by the primary.",
    ),
    "policy:candidates": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Behind the chosen model stand the primary and the fallbacks, in order.",
    ),
    "policy:bad-ref": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A bad ref of a policy is left out with a reason; the others work.",
    ),
    "policy:protocol": Requirement(
        "docs/spec/mediation.md section 8",
        "Only providers that speak the request's protocol are asked.",
    ),
    "policy:destination": Requirement(
        "docs/spec/mediation.md section 1",
        "At the entrances with a host its provider is kept: only refs of that provider count.",
    ),
    "keys:other-paths": Requirement(
        "decision 0012",
        "What a path that is no model call answers neither kills a key nor lets it rest for models.",
    ),
    "keys:next-at-once": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A bad or throttled key is followed by the provider's next one at once.",
    ),
    "keys:exhausted": Requirement(
        "decision 0012", "A provider whose keys are spent is followed by the next one."
    ),
    "keys:keyless": Requirement("docs/spec/contract.md, providers.json", "Keyless providers work."),
    "keys:account-headers": Requirement(
        "docs/spec/mediation.md section 2",
        "A runner can't say whose account the key is of, and so kill it with a 401.",
    ),
    "failover:next-candidate": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A provider that fails is followed by the next one, with the same request.",
    ),
    "failover:time": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A silent provider leaves half of the time that is left to the next one.",
    ),
    "failover:final": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A 4xx that is not about the key is passed on, and nobody else is asked.",
    ),
    "failover:sticky": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A candidate that answered stays for the rest of the turn.",
    ),
    "failover:told": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "When all fail, the runner is told the last real answer.",
    ),
    "failover:through-the-proxy": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A runner does not notice that its provider failed and another one answered.",
    ),
    "retry:after-tools": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Once a turn has cost something, a failure that may pass is tried twice more within the turn's time.",
    ),
    "retry:retry-after": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A short Retry-After is honoured, a long one is not.",
    ),
    "retry:told": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A runner is told when it may come again.",
    ),
    "retry:resting-key": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A key that rests for a moment is waited for.",
    ),
    "retry:through-the-proxy": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "Once a tool has run, a throttled only key is waited for and used.",
    ),
    "route:spent-key": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A bad key is dead; the next one is used.",
    ),
    "route:model-prefix": Requirement(
        "docs/spec/mediation.md section 1", "At the base URL the model's prefix picks the provider."
    ),
}
