"""Which skills an agent has: those that it names, and those of the services that it may use (spec/compile.md "Output").

Rules. A skill is known by its name. An agent's own hides one that a service brings, and that is told. ``SKILL.md``, as every
skill is called in a directory of its own, is named by its service; two services' skills of one name are both named by theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from claw_compile import codes
from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Diagnostic, quoted
from claw_compile.grammar.pod import Skill

_COMMON_NAME = "skill.md"


def agent_skills(
    named: Iterable[Skill],
    read: Mapping[str, SkillFile],
    brought: Iterable[SkillFile],
    found: list[Diagnostic],
) -> tuple[SkillFile, ...]:
    """The agent's own in the order of the file, then those of its services by name. What can't be read is reported already."""
    own: dict[str, Skill] = {}
    for skill in named:
        if skill.path.text in read:
            own.setdefault(skill.path.text, skill)
    files = [read[path] for path in own]
    holders = {read[path].name: skill for path, skill in own.items()}
    for each in _by_service(brought):
        holder = holders.get(each.name)
        if holder is None:
            files.append(each)
        else:
            message = f"{quoted(each.name)} hides the skill of that name that {each.origin} brings"
            found.append(codes.SKILL_HIDDEN.at(holder.path.span, message))
    return tuple(files)


def _by_service(brought: Iterable[SkillFile]) -> list[SkillFile]:
    skills = [
        replace(skill, name=f"{skill.origin}.md") if skill.name.lower() == _COMMON_NAME else skill for skill in brought
    ]
    times = Counter(skill.name for skill in skills)
    distinct = (
        replace(skill, name=f"{skill.origin}-{skill.name}") if times[skill.name] > 1 else skill for skill in skills
    )
    return sorted(distinct, key=lambda skill: skill.name)
