"""compose.generated.yml as a whole, as Docker Compose itself reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compile.composed import agent, compiled


@pytest.mark.requirement("compose:secrets")
def test_a_secret_with_a_dollar_sign_arrives_byte_for_byte(tmp_path: Path) -> None:
    secret = "p$word ${x} $$ 'q' \"r\" #s \\n"
    (tmp_path / "file.txt").write_text(secret, encoding="utf-8")
    pod = agent(
        ", cllama-env: {OPENAI_API_KEY: '${KEY}', ALERTS: '${KEY}'}",
        pod=", secrets: {env: {env: KEY}, file: {file: file.txt}}",
    ).replace(
        "    image: desk\n",
        "    image: desk\n    environment: {TOKEN: '${KEY}', LITERAL: 'p$$word'}\n",
    )
    config = compiled(tmp_path, pod, KEY=secret)
    assert config["services"]["desk"]["environment"] == {"TOKEN": secret, "LITERAL": "p$word"}
    assert config["services"]["cllama"]["environment"]["ALERTS"] == secret
    assert "OPENAI_API_KEY" not in config["services"]["cllama"]["environment"]
    keys = json.loads(
        (tmp_path / ".claw-runtime" / "auth" / "providers.json").read_text(encoding="utf-8")
    )
    assert keys["providers"]["openai"]["keys"][0]["secret"] == secret
    mounted = {
        each["target"]: Path(config["secrets"][each["source"]]["file"])
        for each in config["services"]["cllama"]["secrets"]
    }
    assert {name: path.read_text(encoding="utf-8") for name, path in mounted.items()} == {
        "env": secret,
        "file": secret,
    }
    assert secret not in (tmp_path / "compose.generated.yml").read_text(encoding="utf-8")


@pytest.mark.requirement("compose:proxy")
def test_a_change_of_an_agent_recreates_that_agent_and_no_other(tmp_path: Path) -> None:
    pod = agent(rest="  two: {image: runner, x-claw: {agent: AGENTS2.md, cllama: passthrough}}")
    (tmp_path / "AGENTS2.md").write_text("# Two\n", encoding="utf-8")

    def digests() -> dict[str, str]:
        services = compiled(tmp_path, pod)["services"]
        return {
            name: each["labels"]["claw.digest"]
            for name, each in services.items()
            if "labels" in each
        }

    before = digests()
    (tmp_path / "AGENTS2.md").write_text("# Two, changed\n", encoding="utf-8")
    after = digests()
    assert {name for name in before if before[name] != after[name]} == {"two"}
