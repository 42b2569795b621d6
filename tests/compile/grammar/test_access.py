"""Credentials of services as the grammar reads them; the cases ``auth`` has every mistake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compile.grammar.reading import agent_of, pod_of


@pytest.mark.requirement("compile:auth")
def test_a_services_credential_is_named_and_never_written() -> None:
    pod, codes = pod_of(
        "x-claw: {pod: desk, secrets: {api: {env: KEY}, file: {file: ./token.txt}}}\n"
        "services:\n"
        "  one: {x-claw: {agent: A.md, service-auth: [{service: api, secret: api, principal: me}]}}\n"
        "  api: {x-claw: {auth: {type: basic, username: desk, env: PASSWORD}}}\n",
        KEY="planted-key",
    )
    assert codes == []
    assert [(each.name.text, each.source, each.reference.text) for each in pod.secrets] == [
        ("api", "env", "KEY"),
        ("file", "file", "./token.txt"),
    ]
    one, api = pod.services
    (principal,) = one.principals
    assert (principal.source, principal.reference.text, principal.principal) == (
        "secret",
        "api",
        "me",
    )
    assert api.auth is not None
    assert api.auth.env is not None
    assert api.auth.username is not None
    assert (api.auth.type, api.auth.env.text, api.auth.username.text) == (
        "basic",
        "PASSWORD",
        "desk",
    )
    assert "planted-key" not in repr(pod)


@pytest.mark.requirement("compile:auth")
@pytest.mark.parametrize(
    ("auth", "code"),
    [
        ("{type: bearer}", "missing-key"),
        ("{type: bearer, env: A, secret: b}", "missing-key"),
        ("{type: header, env: A}", "missing-key"),
        ("{type: digest, env: A}", "bad-value"),
        ("bearer", "wrong-type"),
    ],
)
def test_a_credential_that_can_not_be_read_is_none_and_told(auth: str, code: str) -> None:
    pod, codes = pod_of(
        f"x-claw: {{pod: desk}}\nservices:\n  one: {{x-claw: {{agent: A.md}}}}\n  api: {{x-claw: {{auth: {auth}}}}}\n"
    )
    assert pod.services[1].auth is None
    assert codes == [code]


@pytest.mark.requirement("compile:auth")
def test_an_agent_has_one_credential_for_a_service() -> None:
    twice = "[{service: api, env: A}, {service: api, env: B}]"
    spec, codes = agent_of(f", service-auth: {twice}")
    assert codes == ["bad-value"]
    assert [each.reference.text for each in spec.principals] == ["A"]


@pytest.mark.parametrize(
    ("claw", "path", "codes"),
    [
        ("mcp: {path: /rpc}", "/rpc", []),
        ("mcp: null", "/mcp", []),
        ("mcp: {}", "/mcp", []),
        ("mcp: {path: /a/../b}", None, ["bad-path"]),
        ("mcp: {path: '/a?b'}", None, ["bad-path"]),
    ],
)
def test_the_path_of_an_mcp_server_has_a_default(claw: str, path: Any, codes: list[str]) -> None:
    pod, found = pod_of(
        f"x-claw: {{pod: desk}}\nservices:\n  one: {{x-claw: {{agent: A.md}}}}\n  api: {{x-claw: {{{claw}}}}}\n"
    )
    read = pod.services[1].mcp_path
    assert (read.text if read is not None else None) == path
    assert found == codes
