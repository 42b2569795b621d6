"""``claw lock`` and ``claw rotate``: the lock is written anew, with the epochs of tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod, compile_pod
from claw_compile.lock_update import ImageDescriptor, lock_pod, rotate_pod
from tests.compile.locked_pod import (
    ENVIRON,
    QUOTE,
    TRADE,
    codes,
    describe,
    locked,
)


def test_a_service_that_is_gone_leaves_the_lock_and_an_unknown_one_is_refused(
    tmp_path: Path,
) -> None:
    pod = describe(tmp_path, QUOTE)
    locked(pod)
    result = lock_pod(pod, ENVIRON, ["apy"])
    assert codes(result.diagnostics) == ["unknown-service"]
    pod.write_text(
        "x-claw: {pod: desk}\nservices: {one: {x-claw: {agent: AGENTS.md}}}\n", encoding="utf-8"
    )
    assert codes(check_pod(pod, ENVIRON).diagnostics) == ["lock-outdated"]
    assert locked(pod).removed == ("api",)


@pytest.mark.requirement("compile:lock-image")
def test_an_images_own_descriptor_is_in_the_lock_and_compiles_from_it(tmp_path: Path) -> None:
    pod = describe(tmp_path)
    pod.write_text(
        pod.read_text(encoding="utf-8").replace("x-claw: {describe-file: api.json}", ""),
        encoding="utf-8",
    )
    assert codes(check_pod(pod, ENVIRON).diagnostics) == ["no-descriptor", "no-descriptor"]
    asked: list[str] = []

    def ask(image: str) -> ImageDescriptor:
        asked.append(image)
        return ImageDescriptor(
            "/.claw-describe.json", json.dumps({"version": 2, "tools": [TRADE, QUOTE]}).encode()
        )

    assert lock_pod(pod, ENVIRON, ask=ask).value is not None
    assert asked == ["api:1"]
    result = compile_pod(pod, ENVIRON, tmp_path / "out")
    assert codes(result.diagnostics) == []
    tools = json.loads((tmp_path / "out/context/one/tools.json").read_bytes())["tools"]
    assert [(each["name"], list(each["inputSchema"]["properties"])) for each in tools] == [
        ("api.trade", ["b", "a"]),
        ("api.quote", ["b", "a"]),
    ]
    written = (tmp_path / "claw.lock").read_bytes()
    locked(pod)
    assert (tmp_path / "claw.lock").read_bytes() == written
    pod.write_text(pod.read_text(encoding="utf-8").replace("api:1", "api:2"), encoding="utf-8")
    assert sorted(codes(check_pod(pod, ENVIRON).diagnostics)) == [
        *("lock-outdated", "no-descriptor", "no-descriptor", "stale-snapshot")
    ]


def test_what_an_image_says_is_held_to_the_rules_of_descriptors(tmp_path: Path) -> None:
    pod = describe(tmp_path)
    pod.write_text(
        pod.read_text(encoding="utf-8").replace("x-claw: {describe-file: api.json}", ""),
        encoding="utf-8",
    )
    for data, code in (
        (b"{", "json-syntax"),
        (b"\xff", "not-utf8"),
        (b'{"version": 7}', "descriptor-version"),
    ):
        result = lock_pod(
            pod, ENVIRON, ask=lambda _, data=data: ImageDescriptor("/.claw-describe.json", data)
        )
        assert codes(result.diagnostics) == [code]
        assert not (tmp_path / "claw.lock").exists()


def tokens(directory: Path) -> dict[str, str]:
    return {
        agent: json.loads((directory / "out" / "context" / agent / "metadata.json").read_bytes())[
            "token"
        ]
        for agent in ("one", "two")
    }


@pytest.mark.requirement("compile:rotate")
def test_a_rotated_agent_gets_another_token_and_the_others_keep_theirs(tmp_path: Path) -> None:
    pod = describe(tmp_path, QUOTE)
    compile_pod(pod, ENVIRON, tmp_path / "out")
    first = tokens(tmp_path)
    for epoch in (1, 2):
        rotated = rotate_pod(pod, ENVIRON, "one").value
        assert rotated is not None
        assert rotated.epoch == epoch
    assert codes(compile_pod(pod, ENVIRON, tmp_path / "out").diagnostics) == []
    second = tokens(tmp_path)
    assert second["one"] != first["one"]
    assert second["two"] == first["two"]
    assert second["one"] in (tmp_path / "out/agents/one/env").read_text(encoding="utf-8")
    assert first["one"] not in (tmp_path / "out/agents/one/env").read_text(encoding="utf-8")


def test_rotating_locks_no_tools_and_locking_keeps_the_epochs_also_of_agents_that_are_gone(
    tmp_path: Path,
) -> None:
    pod = describe(tmp_path, QUOTE)
    rotate_pod(pod, ENVIRON, "one")
    rotate_pod(pod, ENVIRON, "two")
    assert json.loads((tmp_path / "claw.lock").read_bytes()) == {
        "version": 1,
        "epochs": {"one": 1, "two": 1},
    }
    assert codes(check_pod(describe(tmp_path, QUOTE, TRADE), ENVIRON).diagnostics) == []
    pod.write_text(pod.read_text(encoding="utf-8").replace("two:", "three:"), encoding="utf-8")
    assert locked(pod).content.epochs == {"one": 1, "two": 1}


@pytest.mark.requirement("compile:rotate")
def test_only_an_agent_can_be_rotated(tmp_path: Path) -> None:
    result = rotate_pod(describe(tmp_path, QUOTE), ENVIRON, "on")
    assert [each.code.name for each in result.diagnostics] == ["unknown-agent"]
    assert result.diagnostics[0].hint == "did you mean 'one'?"
    assert not (tmp_path / "claw.lock").exists()


def test_a_lock_that_can_not_be_written_is_a_diagnostic(tmp_path: Path) -> None:
    pod = describe(tmp_path, QUOTE)
    (tmp_path / "claw.lock").symlink_to(tmp_path / "nowhere" / "claw.lock")
    for result in (lock_pod(pod, ENVIRON), rotate_pod(pod, ENVIRON, "one")):
        assert codes(result.diagnostics) == ["unwritable-output"]
