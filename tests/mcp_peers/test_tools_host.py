"""The tools host, as the official SDK sees it: both major versions over HTTP, and
one over stdio.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_peers.sdk import ask, job
from tests.tools.hosting import CONFIG, PACKAGE, TOKENS, TOOLS, environ_of, install, serving

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("made__echo", {"text": "Grüße, 世界"}),
    ("made__echo", {"text": 7}),
    ("made__fail", {"text": "hidden"}),
    ("made__none", {}),
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("project") / "made")
    return install(project, tmp_path_factory.mktemp("packages"))


def check(outcome: dict[str, Any], version: str) -> None:
    assert (outcome.get("failure"), outcome["server"], outcome["version"]) == (
        None,
        "claw-tools",
        version,
    )
    assert [tool["name"] for tool in outcome["tools"]][:2] == ["made__echo", "made__environ"]
    echo, wrong, fault, unknown = outcome["results"]
    assert (echo["structuredContent"], echo["isError"]) == ({"text": "Grüße, 世界"}, False)
    codes = [each["structuredContent"]["error"]["code"] for each in (wrong, fault)]
    assert (codes, wrong["isError"]) == (["invalid_args", "execution_failed"], True)
    assert unknown["error"]["code"] == -32602


@pytest.mark.long
@pytest.mark.requirement("host:sdk", "host:eras")
def test_clients_of_the_sdk_list_and_call_the_tools_of_a_host(
    packages: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, packages) as host:
        one = job(f"{host.base}/mcp", *CALLS, bearer=TOKENS["TOKEN_A"])
        stranger = one | {"bearer": "another-token"}
        for sdk, jobs, versions in (
            (1, [one, stranger], [HANDSHAKE]),
            (
                2,
                [one | {"mode": "legacy"}, one | {"mode": "auto"}, stranger],
                [HANDSHAKE, STATELESS],
            ),
        ):
            *outcomes, refused = ask(sdk, *jobs)  # type: ignore[arg-type]
            for outcome, version in zip(outcomes, versions, strict=True):
                check(outcome, version)
            assert "failure" in refused
        assert host.end() == 0


@pytest.mark.long
@pytest.mark.requirement("host:sdk", "host:stdio")
def test_a_client_of_the_sdk_starts_a_host_over_stdio(packages: Path, tmp_path: Path) -> None:
    config = tmp_path / "toolhost.yml"
    config.write_text(CONFIG)
    command = [*TOOLS, "serve", "--stdio", "--principal", "a", "--config", str(config)]
    (outcome,) = ask(1, {"command": command, "env": environ_of(packages), "calls": CALLS})
    check(outcome, HANDSHAKE)
