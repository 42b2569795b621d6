"""The published lines of the log and those that the code writes.

Every test of the proxy checks the lines that it reads (``tests/events.py``).
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from claw_contract.log import EventType, Fault
from claw_contract.published import schemas
from tests.events import MODELS, known

CODE = Path(__file__).parent.parent.parent / "claw_mediate"
COMMON = {"ts": "2027-01-15T08:00:00.000Z", "claw_id": "analyst", "turn_id": None, "model": None}
STATE = {
    **COMMON,
    "type": "state",
    "intervention": None,
    "digest": None,
    "state": "usable",
    "place": "state.db",
}


@pytest.mark.requirement("log:contract")
def test_every_type_has_a_line_and_every_line_a_type() -> None:
    of_models = {
        name for model in MODELS for name in get_args(model.model_fields["type"].annotation)
    }
    assert of_models == set(get_args(EventType.__value__))


@pytest.mark.requirement("log:contract")
def test_the_published_faults_are_those_that_the_code_tells_of() -> None:
    nodes = [
        node
        for file in CODE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    ]
    words = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "error"]
    told = {node.value.value for node in named if isinstance(node.value, ast.Constant)}
    faults = set(get_args(Fault.__value__))
    assert told <= faults <= words


@pytest.mark.requirement("log:contract")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"type": "invented"}, "no line of the log"),
        ({"place": 7}, "place"),
        ({"more": 1}, "StateEvent has no more"),
        ({"type": "error"}, "FaultEvent has no state"),
    ],
)
def test_a_line_that_is_not_published_is_found(wrong: dict[str, Any], why: str) -> None:
    common = ("ts", "type", "claw_id", "turn_id", "model", "intervention", "digest")
    event = STATE | wrong
    ordered = {
        name: event[name] for name in (*common, *(name for name in event if name not in common))
    }
    with pytest.raises(AssertionError, match=why):
        known(json.dumps(ordered))
    schema = Draft202012Validator(schemas()["log.schema.json"])
    assert schema.is_valid(STATE)
    assert schema.is_valid(event) == ("more" in wrong), "readers ignore what they do not know"
