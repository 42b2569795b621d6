"""Files, batches, vector stores and the like: what a provider keeps for all agents of one account."""

from __future__ import annotations

from tests.requirements.requirement import Requirement


def _of(behavior: str) -> Requirement:
    return Requirement("docs/spec/mediation.md section 2, What a provider keeps", behavior)


REQUIREMENTS: dict[str, Requirement] = {
    "objects:rows": _of(
        "The state knows of each object its agent, provider and key, for a year after its last use."
    ),
    "objects:paths": _of(
        "A path that names an object, or a part of one, is its owner's; else it is 404, however spelled."
    ),
    "objects:stored-completions": _of(
        "Stored chat completions are 404 for every agent; `store` stays as the runner wrote it."
    ),
    "objects:members": _of(
        "The ids in a body are found in every place that a provider may read, and in no text or data."
    ),
    "objects:bodies": _of(
        "A body, form or query that names another agent's object is refused before anything is sent."
    ),
    "objects:evals": _of(
        "An eval names its agent's own file, and none of the stores that all agents of an account share."
    ),
    "objects:lists": _of("A list has the agent's own objects, and pages of these."),
    "objects:given": _of(
        "What a request makes, and what the model's own tools open and make, is its agent's at once."
    ),
    "objects:first-owner": _of(
        "An id is the first agent's that got it: a provider that repeats it gives it to nobody else."
    ),
    "objects:routing": _of(
        "A request goes to the provider, and with the key, that keep what it names."
    ),
    "objects:setting": _of(
        "With `stored_ids: any` an id that is not known as the agent's own passes."
    ),
    "objects:state-down": _of(
        "While the state can't be read, a request that names an object is 503, and nothing is sent."
    ),
}
