"""toolhost.yml: sizes, credentials, and keys that depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from claw_contract.secret import Secret
from claw_contract.toolhost_file import ToolHostFile, parse_size


class Machine:
    """A machine with one variable, one file and one folder."""

    def read_variable(self, name: str) -> str:
        if name != "TOKEN":
            raise ValueError(f"the variable {name} is not set: set it")
        return "in-a-variable"

    def read_file(self, path: str) -> str:
        assert path == "token.txt"
        return "in-a-file"

    def find_folder(self, path: str) -> Path:
        return Path("/workspaces", path)

    def take_token(self, token: Secret) -> None:
        assert token

    def check_url(self, url: str) -> None:
        if not url.startswith("https://"):
            raise ValueError("this URL can't be connected to: write https://")

    def normalize_host(self, host: str) -> str:
        return host.lower()

    def check_namespace(self, name: str) -> None:
        assert name


def document(tools: dict[str, Any] | None = None, token: Any = None) -> dict[str, Any]:
    principal = {"token": token or {"env": "TOKEN"}, "workspace": "a", "tools": ["read_*"]}
    return {"toolhost": {"principals": {"analyst": principal}}, "tools": tools or {}}


def read(tools: dict[str, Any] | None = None, token: Any = None) -> ToolHostFile:
    return ToolHostFile.model_validate(document(tools, token), context=Machine())


@pytest.mark.requirement("host:config")
def test_what_only_the_machine_has_is_read_from_it() -> None:
    principal = read().toolhost.principals["analyst"]
    assert principal.token is not None
    assert (principal.token.secret.reveal(), principal.token.variable) == ("in-a-variable", "TOKEN")
    assert principal.workspace == Path("/workspaces/a")

    from_file = read(token={"file": "token.txt"}).toolhost.principals["analyst"].token
    assert from_file is not None
    assert (from_file.secret.reveal(), from_file.variable) == ("in-a-file", "")

    servers = {"search": {"command": "find", "env": {"AUTH": "Bearer ${TOKEN}"}}}
    server = read({"mcp_servers": servers}).tools.mcp_servers["search"]
    assert server.env["AUTH"].reveal() == "Bearer in-a-variable"


@pytest.mark.requirement("host:config-errors", "host:config-secrets")
@pytest.mark.parametrize(
    ("tools", "token", "reason"),
    [
        ({}, "the-token-itself", "it does not stand in this file itself"),
        ({}, {"env": "TOKEN", "file": "token.txt"}, "it does not stand in this file itself"),
        ({}, {"env": "OTHER"}, "the variable OTHER is not set"),
        ({"mcp_servers": {"a": {"command": "c", "url": "https://a"}}}, None, "and not both"),
        ({"mcp_servers": {"a": {"url": "https://a", "args": ["x"]}}}, None, "goes with 'command'"),
        ({"mcp_servers": {"a_b": {"command": "c"}}}, None, "without '_'"),
        ({"mcp_servers": {"builtin": {"command": "c"}}}, None, "the host's own tools"),
        ({"exec": {"default_timeout_s": 9, "max_timeout_s": 5}}, None, "is above max_timeout_s"),
        ({"web_search": {"endpoint": "ftp://a"}}, None, "can't be connected to"),
        ({"exec": {"enable": True}}, None, "Extra inputs"),
    ],
)
def test_a_wrong_value_is_refused_with_its_remedy(
    tools: dict[str, Any], token: Any, reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason) as caught:
        read(tools, token)
    assert "the-token-itself" not in caught.value.errors()[0]["msg"]


@pytest.mark.requirement("host:config")
@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("7B", 7), ("64KiB", 65_536), ("10 MiB", 10_485_760), ("1GiB", 1 << 30)],
)
def test_a_size_is_a_number_of_bytes_with_or_without_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.requirement("host:config-errors")
@pytest.mark.parametrize("text", ["", "-1", "1.5MiB", "1 MB", "10  MiB", "1" * 13])
def test_other_text_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="a size is a number of bytes"):
        parse_size(text)
