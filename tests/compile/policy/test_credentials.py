"""The credential of a service, as the proxy gets it in tools.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compile.granted import ALL, DESCRIPTOR, tools_json


@pytest.mark.requirement("compile:auth")
@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ("", {"type": "none"}),
        (", auth: {type: none}", {"type": "none"}),
        (", auth: {type: bearer, env: KEY}", {"type": "bearer", "token": "p$word-with-dollar"}),
        (", auth: {type: bearer, secret: api}", {"type": "bearer", "token": {"secret": "api"}}),
        (
            ", auth: {type: basic, username: desk, env: KEY}",
            {"type": "basic", "username": "desk", "password": "p$word-with-dollar"},
        ),
        (
            ", auth: {type: header, header: X-Key, env: KEY}",
            {"type": "header", "header": "X-Key", "token": "p$word-with-dollar"},
        ),
    ],
)
def test_a_providers_credential_is_projected_byte_for_byte(
    tmp_path: Path, auth: str, expected: dict[str, Any]
) -> None:
    manifest = tools_json(tmp_path, ALL, provider=auth, API_KEY="p$word-with-dollar")
    assert manifest is not None
    assert manifest["tools"][0]["execution"]["auth"] == expected


@pytest.mark.requirement("compile:auth")
def test_a_descriptors_basic_credential_is_the_providers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DESCRIPTOR, "auth", {"type": "Basic", "username": "desk", "env": "KEY"})
    manifest = tools_json(tmp_path, ALL, API_KEY="p$word-with-dollar")
    assert manifest is not None
    expected = {"type": "basic", "username": "desk", "password": "p$word-with-dollar"}
    assert manifest["tools"][0]["execution"]["auth"] == expected


@pytest.mark.requirement("compile:auth")
def test_what_a_descriptor_asks_for_may_be_a_secret_of_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DESCRIPTOR, "auth", {"type": "bearer", "env": "api"})
    manifest = tools_json(tmp_path, ALL)
    assert manifest is not None
    assert manifest["tools"][0]["execution"]["auth"] == {
        "type": "bearer",
        "token": {"secret": "api"},
    }
