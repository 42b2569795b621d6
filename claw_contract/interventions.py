"""Calls that the proxy answers without running them: result codes, and names of interventions.

``claw_mediate.core.tool_result`` is the registry of all result codes; a test compares the two.
"""

from collections.abc import Mapping
from typing import Final

ROUND_INTERVENTIONS: Final[Mapping[str, str]] = {
    "managed_tools_first": "mixed_tool_order_internal_retry",
    "terminal_on_success_order": "managed_tool_terminal_order_rejected",
    "too_many_calls": "managed_tool_calls_over_limit",
    "tool_budget_exhausted": "managed_tool_budget_finalization",
}
"""Names of the log's interventions, by the code with which every call of a round was answered.

They are the original system's names.
"""
CALL_INTERVENTIONS: Final[Mapping[str, str]] = {
    "duplicate_tool_call": "duplicate_managed_tool_call",
    "schema_validation": "managed_tool_schema_rejected",
    "unknown_tool": "unknown_tool_rejected",
}
"""The same by the code with which one call was answered. The log adds the name of the tool."""
CODES_NOT_RUN: Final = frozenset({*ROUND_INTERVENTIONS, *CALL_INTERVENTIONS, "invalid_arguments"})
"""Codes of calls for which no service was called."""
