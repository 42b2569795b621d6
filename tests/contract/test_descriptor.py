"""claw.describe: the spellings that are accepted, and the effect of a described tool."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from claw_contract.descriptor import Descriptor, DescriptorTool, DescriptorV1, DescriptorV2

DESCRIPTOR: TypeAdapter[DescriptorV1 | DescriptorV2] = TypeAdapter(Descriptor)
TOOL = {"name": "get", "inputSchema": {"type": "object"}}


@pytest.mark.requirement("contract:published")
def test_a_descriptor_is_read_in_the_version_that_it_names() -> None:
    first = DESCRIPTOR.validate_python({"version": 1, "x-claw-discovery": {"at": "now"}})
    assert type(first) is DescriptorV1
    assert first.discovery == {"at": "now"}

    second = DESCRIPTOR.validate_python({"version": 2, "tools": (TOOL,)})
    assert isinstance(second, DescriptorV2)
    assert [tool.name for tool in second.tools] == ["get"]


@pytest.mark.requirement("contract:published")
@pytest.mark.parametrize("transport", ["", "http", "streamable-http", "streamable_http"])
def test_the_transport_of_mcp_has_four_spellings(transport: str) -> None:
    described = DESCRIPTOR.validate_python({"version": 2, "mcp": {"transport": transport}})
    assert isinstance(described, DescriptorV2)
    assert described.mcp is not None
    assert described.mcp.transport == "streamable_http"


@pytest.mark.requirement("contract:published")
@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 3},
        {"version": "2"},
        {"version": 2, "mcp": {"transport": "stdio"}},
        {"version": 2, "mcp": {"path": "mcp"}},
        {"version": 2, "tools": ({**TOOL, "name": "a.b"},)},
        {"version": 1, "auth": {"type": "bearer", "env": "A-B"}},
        {"version": 1, "feeds": ({"name": "f", "path": "/f", "ttl": 0},)},
    ],
)
def test_a_malformed_descriptor_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DESCRIPTOR.validate_python(wrong)


@pytest.mark.requirement("contract:published")
@pytest.mark.parametrize(
    ("method", "annotations", "effect"),
    [
        ("GET", {"readOnly": True}, "read"),
        ("GET", {"readOnlyHint": False}, "write"),
        ("GET", {}, "unknown"),
        ("DELETE", {"readOnly": True}, "write"),
    ],
)
def test_a_delete_is_a_write_whatever_the_annotations_say(
    method: str, annotations: dict[str, bool], effect: str
) -> None:
    http = {"method": method, "path": "/x"}
    tool = DescriptorTool.model_validate({**TOOL, "http": http, "annotations": annotations})
    assert tool.effect == effect
