"""The tools that a choice leaves to the model, in each protocol's form."""

from __future__ import annotations

from typing import Any

import pytest

from claw_mediate.core.tool_choice import chosen_tools

SHELL = {"type": "function", "function": {"name": "shell"}}
EDIT = {"type": "custom", "custom": {"name": "edit"}}


@pytest.mark.requirement("live:early-calls-only-where")
@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (SHELL, {"shell"}),
        (EDIT, {"edit"}),
        ({"type": "allowed_tools", "allowed_tools": {"tools": [SHELL, EDIT]}}, {"shell", "edit"}),
        ({"type": "function", "name": "shell"}, {"shell"}),
        ({"type": "custom", "name": "edit"}, {"edit"}),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "shell"}, {"type": "web_search"}],
            },
            {"shell"},
        ),
        ({"type": "tool", "name": "shell"}, {"shell"}),
        (None, set()),
        ("required", set()),
        ({"type": "any"}, set()),
        ({"type": "auto", "name": "shell"}, set()),
        ({"type": "mcp", "name": "shell"}, set()),
        ({"type": "allowed_tools", "tools": []}, set()),
        ({"type": "allowed_tools", "tools": [SHELL, "edit"]}, set()),
        ({"type": "allowed_tools", "tools": [SHELL, {"type": "function"}]}, set()),
        ({"type": "allowed_tools", "tools": [SHELL, {"name": "edit"}]}, set()),
        ({"type": "allowed_tools", "allowed_tools": {"tools": {"shell": 1}}}, set()),
        ({"type": "allowed_tools"}, set()),
        ({"type": ["function"], "name": "shell"}, set()),
        ({"type": "function", "function": {"name": 7}}, set()),
        ({}, set()),
    ],
)
def test_a_choice_leaves_the_tools_that_it_names(choice: Any, names: set[str]) -> None:
    assert chosen_tools(choice) == names
