"""tools.json: the entries that are accepted, those that are left out, and the
errors that fail the whole agent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from claw_contract.manifest import BaseUrl, HttpExecution, Policy, Tool, read_manifest

HTTP = {
    "transport": "http",
    "service": "desk",
    "base_url": "http://desk:4000",
    "method": "GET",
    "path": "/x",
}


def entry(name: str = "desk.x", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "execution": HTTP, **more}


def manifest(*tools: Any, **more: Any) -> bytes:
    return json.dumps({"version": 1, "tools": tools, **more}).encode()


@pytest.mark.requirement("contract:quarantine")
@pytest.mark.parametrize(
    "bad",
    [
        entry("other.x"),
        entry("desk"),
        entry(inputSchema={"type": "array"}),
        entry(inputSchema=True),
        entry(annotations={"readOnly": "yes"}),
        entry(annotations={"x-claw.timeout_ms": 0}),
        entry(annotations={"x-claw.timeout_ms": 1.5}),
        entry(annotations={"parallel_safe": 1}),
        entry(execution={**HTTP, "path": "x"}),
        entry(execution={**HTTP, "path": "/a/../b"}),
        entry(execution={**HTTP, "path": "/a?b=c"}),
        entry(execution={**HTTP, "method": "get"}),
        entry(execution={**HTTP, "transport": "ftp"}),
        entry(execution={**HTTP, "auth": {"type": "bearer"}}),
        entry(execution={**HTTP, "auth": {"type": "bearer", "token": ""}}),
        entry(execution={**HTTP, "auth": {"type": "bearer", "token": {"secret": "../etc/passwd"}}}),
        entry(execution={**HTTP, "auth": {"type": "header", "header": "X\r\nY", "token": "t"}}),
        {"name": 5},
        "desk.x",
        None,
    ],
)
def test_a_malformed_entry_is_left_out_and_the_others_work(bad: Any) -> None:
    read, left_out = read_manifest(manifest(entry("desk.good"), bad, entry("desk.too")))
    assert [tool.name for tool in read.tools] == ["desk.good", "desk.too"]
    assert len(left_out) == 1
    assert "\n" not in left_out[0].reason


@pytest.mark.requirement("contract:quarantine")
def test_of_two_tools_with_one_name_the_first_stays() -> None:
    read, left_out = read_manifest(
        manifest(entry(description="first"), entry(description="second"))
    )
    assert [tool.description for tool in read.tools] == ["first"]
    assert [quarantined.name for quarantined in left_out] == ["desk.x"]


def test_the_reason_never_holds_the_value_that_was_found() -> None:
    auth = {"type": "bearer", "token": "sup3rs3cret", "extra": 1}
    _, left_out = read_manifest(
        manifest(entry(execution={**HTTP, "auth": auth, "method": "sup3rs3cret"}))
    )
    assert "sup3rs3cret" not in left_out[0].reason


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1,"tools":{}}', b"\xff", b"[" * 9999]
)
def test_a_malformed_document_is_refused_whole(data: bytes) -> None:
    with pytest.raises(ValidationError):
        read_manifest(data)


@pytest.mark.requirement("contract:defaults")
def test_absent_and_zero_limits_take_the_defaults() -> None:
    zeros = dict.fromkeys(
        ("max_rounds", "timeout_per_tool_ms", "total_timeout_ms", "max_tool_result_bytes"), 0
    )
    read, _ = read_manifest(manifest(policy=zeros))
    assert read.policy == Policy() == read_manifest(manifest())[0].policy
    assert (Policy().max_rounds, Policy().timeout_per_tool_ms, Policy().total_timeout_ms) == (
        8,
        30_000,
        120_000,
    )


@pytest.mark.requirement("live:policy")
def test_an_answer_is_buffered_and_its_preamble_shown_unless_the_policy_says_otherwise() -> None:
    older, _ = read_manifest(manifest(policy={"max_rounds": 3}))
    newer, _ = read_manifest(manifest(policy={"stream": "live", "preamble": "hide"}))
    assert (older.policy.stream, older.policy.preamble) == ("buffered", "show")
    assert (newer.policy.stream, newer.policy.preamble) == ("live", "hide")
    for wrong in ({"stream": "Live"}, {"stream": None}, {"preamble": True}):
        with pytest.raises(ValidationError):
            read_manifest(manifest(policy=wrong))


def test_keys_that_are_not_known_are_ignored() -> None:
    read, left_out = read_manifest(manifest(entry(future=1), future=2))
    assert len(read.tools) == 1
    assert left_out == ()


@pytest.mark.parametrize(
    ("method", "annotations", "effect"),
    [
        ("GET", {}, "unknown"),
        ("GET", {"readOnly": True}, "read"),
        ("GET", {"readOnlyHint": True}, "read"),
        ("GET", {"readOnly": False, "readOnlyHint": True}, "write"),
        ("POST", {"readOnly": True}, "read"),
        ("DELETE", {"readOnly": True}, "write"),
    ],
)
def test_the_effect_is_what_is_declared_and_a_delete_is_never_a_read(
    method: str, annotations: dict[str, Any], effect: str
) -> None:
    tool = Tool.model_validate(entry(annotations=annotations, execution={**HTTP, "method": method}))
    assert tool.effect == effect
    assert tool.runs_in_parallel == (effect == "read")


@pytest.mark.requirement("contract:base-url")
@pytest.mark.parametrize(
    "url",
    [
        "ftp://desk",
        "http://",
        "http:///x",
        "desk:4000",
        "http://user@desk",
        "http://:pw@desk",
        "http://desk/?q",
        "http://desk/#f",
        "http://desk?",
        "http://a b/",
        "http://desk\n",
        "http://désk/",
        "http://desk:99999",
        "http://desk:x",
        "http://desk:0",
        "http://[::1",
        "http:\\\\desk",
    ],
)
def test_a_base_url_is_scheme_host_port_and_path_only(url: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(BaseUrl).validate_python(url)


@pytest.mark.parametrize(
    "url",
    ["http://desk", "https://desk:4000/v1/", "http://127.0.0.1:1", "http://[::1]:80", "http://a_b"],
)
def test_ordinary_base_urls_are_taken_as_they_are(url: str) -> None:
    assert HttpExecution.model_validate({**HTTP, "base_url": url}).base_url == url
