"""Explanations why an agent may or may not call a tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.policy.explain import Explanation, UnknownName, explain
from claw_compile.policy.project import ProjectedPod

AGENT = "cllama: passthrough, tools: [{service: api, allow: all, deny: [sell]}]"


@pytest.fixture
def pod(tmp_path: Path) -> ProjectedPod:
    """Return a pod in which ``api`` and ``web`` both declare ``look``, and ``one`` may call
    that of ``api``.
    """
    tools = [
        {
            "name": name,
            "description": "Do it.",
            "inputSchema": {"type": "object"},
            "http": {"method": "GET", "path": f"/{name}"},
        }
        for name in ("look", "sell")
    ]
    for service, declared in (("api", tools), ("web", tools[:1])):
        document = json.dumps({"version": 2, "tools": declared})
        (tmp_path / f"{service}.json").write_text(document, encoding="utf-8")
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    (tmp_path / "claw-pod.yml").write_text(
        f"x-claw: {{pod: desk}}\nservices:\n  one: {{x-claw: {{agent: AGENTS.md, {AGENT}}}}}\n"
        "  api: {expose: ['1'], x-claw: {describe-file: api.json}}\n"
        "  web: {expose: ['1'], x-claw: {describe-file: web.json}}\n",
        encoding="utf-8",
    )
    plan = check_pod(tmp_path / "claw-pod.yml", {}).value
    assert plan is not None
    return plan.pod


def only(found: tuple[Explanation, ...] | UnknownName) -> Explanation:
    assert not isinstance(found, UnknownName), found
    (explanation,) = found
    return explanation


@pytest.mark.requirement("cli:explain")
@pytest.mark.parametrize(
    ("word", "allowed"), [("api.look", True), ("api__look", True), ("sell", False)]
)
def test_a_tool_is_known_by_each_of_its_names(
    pod: ProjectedPod, word: str, *, allowed: bool
) -> None:
    explanation = only(explain(pod, "one", word))
    assert explanation.allowed is allowed
    assert [step.at for step in explanation.why if step.at is not None]


@pytest.mark.requirement("cli:explain")
def test_a_denial_is_told_beside_the_grant_that_it_beats(pod: ProjectedPod) -> None:
    explanation = only(explain(pod, "one", "api.sell"))
    words = " ".join(step.text for step in explanation.why)
    assert "deny" in words
    assert "all" in words
    assert explanation.change


@pytest.mark.requirement("cli:explain")
@pytest.mark.parametrize(
    ("agent", "word", "hint"),
    [
        ("on", None, "did you mean 'one'?"),
        ("one", "api.lok", "did you mean 'api.look'?"),
        ("one", "look", "name one of api.look, web.look"),
        ("one", "nothing-like-it-at-all", None),
    ],
)
def test_a_name_of_nothing_or_of_several_is_told_with_a_hint(
    pod: ProjectedPod, agent: str, word: str | None, hint: str | None
) -> None:
    found = explain(pod, agent, word)
    assert isinstance(found, UnknownName)
    assert found.hint == hint


@pytest.mark.requirement("cli:explain")
def test_without_a_word_every_tool_of_the_pod_is_explained(pod: ProjectedPod) -> None:
    found = explain(pod, "one")
    assert not isinstance(found, UnknownName)
    assert [(each.tool, each.allowed) for each in found] == [
        ("api.look", True),
        ("api.sell", False),
        ("web.look", False),
    ]
