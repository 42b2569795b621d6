"""The check of log lines: each is one of ``claw_contract.log``, with the members that its type has
there and no others.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from pydantic import ValidationError

from claw_contract.log import COMMON, Event, LogEvent

MODELS: tuple[type[Event], ...] = get_args(LogEvent.__value__)


def known(line: str | bytes) -> dict[str, Any]:
    """Return the line as an event; fail if it is not one of the contract, or has other members."""
    event: dict[str, Any] = json.loads(line)
    assert tuple(event)[: len(COMMON)] == COMMON, event
    problems = [problem for model in MODELS if (problem := _misfit(model, event, line)) is not None]
    assert len(problems) < len(MODELS), f"no line of the log: {event}\n" + "\n".join(
        problem for problem in problems if problem
    )
    return event


def _misfit(model: type[Event], event: dict[str, Any], line: str | bytes) -> str | None:
    """Return why the line is no such event, None if it is one, or "" if it has another type."""
    if event["type"] not in get_args(model.model_fields["type"].annotation):
        return ""
    if unknown := event.keys() - model.model_fields.keys():
        return f"{model.__name__} has no {', '.join(sorted(unknown))}"
    try:
        model.model_validate_json(line)
    except ValidationError as error:
        return str(error)
    return None
