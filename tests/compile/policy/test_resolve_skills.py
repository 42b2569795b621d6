"""The skills that an agent gets without naming them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claw_compile.diagnostics.diagnostic import has_errors
from claw_compile.loading.load import load
from claw_compile.policy.resolve import resolve


def skills(directory: Path, claw: str) -> dict[str, tuple[str, str]]:
    """Return the skills of an agent whose x-claw has ``claw``: name → origin and description."""
    (directory / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    for service, path in {"api": "/app/SKILL.md", "book": "/guide.md", "desk": "/guide.md"}.items():
        (directory / service).mkdir(exist_ok=True)
        descriptor = {"version": 1, "skill": path}
        (directory / service / ".claw-describe.json").write_text(
            json.dumps(descriptor), encoding="utf-8"
        )
        (directory / service / Path(path).name).write_text(
            f"---\ndescription: Of {service}.\n---\n", encoding="utf-8"
        )
    (directory / "own").mkdir(exist_ok=True)
    (directory / "own" / "guide.md").write_text("# My own\n", encoding="utf-8")
    (directory / "claw-pod.yml").write_text(
        f"x-claw: {{pod: desk}}\nservices:\n  one: {{x-claw: {{agent: AGENTS.md{claw}}}}}\n"
        "  api: {build: api}\n  book: {build: book}\n  desk: {build: desk}\n",
        encoding="utf-8",
    )
    loaded = load(directory / "claw-pod.yml", {})
    assert loaded.value is not None
    assert not has_errors(loaded.diagnostics), loaded.diagnostics
    resolved = resolve(loaded.value).value
    assert resolved is not None
    return {skill.name: (skill.origin, skill.description) for skill in resolved.agents[0].skills}


@pytest.mark.requirement("compile:brought-skills")
@pytest.mark.parametrize(
    ("claw", "expected"),
    [
        ("", {}),
        (", surfaces: [service://api]", {"api.md": ("api", "Of api.")}),
        (", tools: [{service: book, allow: all}]", {"guide.md": ("book", "Of book.")}),
        (
            ", surfaces: [service://desk, service://book]",
            {"book-guide.md": ("book", "Of book."), "desk-guide.md": ("desk", "Of desk.")},
        ),
        (
            ", skills: [own/guide.md], surfaces: [service://desk]",
            {"guide.md": ("own/guide.md", "My own")},
        ),
        (", skills: [own/guide.md, own/guide.md]", {"guide.md": ("own/guide.md", "My own")}),
    ],
)
def test_an_agent_has_its_own_skills_and_those_of_the_services_that_it_may_use(
    tmp_path: Path, claw: str, expected: dict[str, tuple[str, str]]
) -> None:
    assert skills(tmp_path, claw) == expected
