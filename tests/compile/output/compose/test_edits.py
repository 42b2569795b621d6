"""Edits of what the user wrote for Compose, in either form of a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.composed import agent, compiled


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize("form", ["[back, front]", "{back: {aliases: [bot]}, front: null}"])
def test_networks_that_the_user_gave_an_agent_are_kept_in_either_form(
    tmp_path: Path, form: str
) -> None:
    pod = agent(
        compose=f"    networks: {form}",
        rest="networks: {back: {driver: bridge}, front: {internal: true}}",
    )
    config = compiled(tmp_path, pod)
    kept = config["services"]["one"]["networks"]
    assert set(kept) == {"back", "front", "claw-agent-one"}
    assert (kept["back"] or {}).get("aliases") == (["bot"] if "bot" in form else None)
    assert config["networks"]["front"]["internal"] is True


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize("form", ["[back]", "{back: {aliases: [api]}}"])
def test_networks_that_the_user_gave_a_provider_are_kept_in_either_form(
    tmp_path: Path, form: str
) -> None:
    pod = agent(rest="networks: {back: {}}").replace(
        "    image: desk\n", f"    image: desk\n    networks: {form}\n"
    )
    assert set(compiled(tmp_path, pod)["services"]["desk"]["networks"]) == {
        "back",
        "claw-tool-desk",
    }


@pytest.mark.requirement("compose:count")
@pytest.mark.parametrize(
    "form",
    ["[one, desk]", "{one: {condition: service_healthy}, desk: {condition: service_started}}"],
)
def test_who_waits_for_a_counted_agent_waits_for_each_with_its_condition(
    tmp_path: Path, form: str
) -> None:
    pod = agent(
        ", count: 3",
        rest=(
            f"  last: {{image: last, depends_on: {form}, links: ['one'], volumes_from: ['one:ro']}}"
        ),
    )
    config = compiled(tmp_path, pod)
    waits = config["services"]["last"]["depends_on"]
    condition = "service_started" if form.startswith("[") else "service_healthy"
    assert {name: each["condition"] for name, each in waits.items()} == {
        "desk": "service_started",
        **{f"one-{ordinal}": condition for ordinal in range(3)},
    }
    assert config["services"]["last"]["links"] == ["one-0", "one-1", "one-2"]
    assert config["services"]["last"]["volumes_from"] == ["one-0:ro", "one-1:ro", "one-2:ro"]
    assert "one" not in config["services"]


@pytest.mark.requirement("compose:passes-through")
@pytest.mark.parametrize("form", ["{mine: kept, claw.pod: forged}", "[mine=kept, claw.pod=forged]"])
def test_labels_of_the_user_are_kept_and_ours_can_not_be_forged(tmp_path: Path, form: str) -> None:
    labels = compiled(tmp_path, agent(compose=f"    labels: {form}"))["services"]["one"]["labels"]
    assert labels["mine"] == "kept"
    assert labels["claw.pod"] == "desk"
