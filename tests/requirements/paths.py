"""Which paths are passed, and the members by which a request names other models."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_WHERE = "docs/spec/mediation.md section 1"
REQUIREMENTS = {
    "paths:closed": Requirement(
        _WHERE,
        "A path that is in no table is a 403 that names it and the remedy, in the host's shape, with one line of the log.",
    ),
    "paths:spelling": Requirement(
        _WHERE,
        "No spelling of a path is another path; it is sent in the one that was decided about, below the base path only.",
    ),
    "paths:credentials": Requirement(
        "SECURITY.md, promise 5",
        "What mints or lists credentials is refused, whatever a setting opens; such a setting too.",
    ),
    "paths:opened": Requirement(
        "docs/settings.md, CLLAMA_PATHS",
        "The operator opens paths by METHOD /prefix*; they count in budgets and under policies.",
    ),
    "paths:compiled": Requirement(
        "docs/pod-file.md",
        "cllama: {paths: […]} opens paths at the pod's proxy, in Compose and Kubernetes.",
    ),
    "paths:override": Requirement(
        _WHERE,
        "No header, query or body makes a request one of another method: they are dropped, or the request is refused.",
    ),
    "paths:endpoints": Requirement(
        "docs/attacks.md",
        "Every endpoint of the providers' API references is in a table that says what happens to it.",
    ),
    "paths:families": Requirement(
        _WHERE,
        "A path is looked for at the provider that it goes to; the proxy's own listener sends it to one that has it.",
    ),
    "policy:own-objects": Requirement(
        "docs/spec/mediation.md section 8",
        "A request that names no model, but an object that a provider keeps, is under the policy as any other.",
    ),
    "wire:read-as-json": Requirement(
        _WHERE,
        "A body that was read as JSON is sent as JSON, whatever content type the runner gave it.",
    ),
    "policy:other-names": Requirement(
        "docs/spec/mediation.md section 8",
        "Under a policy each model that another member names must be allowed at the provider, or the request is a 403.",
    ),
}
