"""The skills that a pod names: files of its directory."""

from __future__ import annotations

from collections.abc import Mapping

from claw_compile.descriptors.skill import SkillFile, read_skill
from claw_compile.grammar.pod import PodSpec, written
from claw_compile.loading.files import Files
from claw_compile.reading.source import decode


def named_skills(pod: PodSpec, files: Files) -> Mapping[str, SkillFile]:
    """Path → skill; one that can't be read is reported, and left out."""
    skills: dict[str, SkillFile] = {}
    for path in (skill.path for owner in pod.owners for skill in written(owner.skills)):
        if path.text in skills or (data := files.named(path, "the skill")) is None:
            continue
        text = decode(files.shown(path.shown), data)
        skill = read_skill(path.text, path.shown, text.value) if text.value is not None else None
        files.found.extend((*text.diagnostics, *(skill.diagnostics if skill else ())))
        if skill is not None and skill.value is not None:
            skills[path.text] = skill.value
    return skills
