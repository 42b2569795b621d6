"""A skill: a text for the agent, known by its base name.

Rules. It may open with front matter (YAML between two lines of ``---``), a mapping whose
``description`` says what the skill is for; without one its first line of text does.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Result
from claw_compile.parsing.node import MapNode, ScalarNode, Source
from claw_compile.parsing.yaml_reader import read_yaml

_MARK = "---"
MAX_DESCRIPTION = 1024


@dataclass(frozen=True)
class SkillFile:
    """A skill as the agent gets it.

    ``origin`` is the file or the service that it is from; ``name`` its base name.
    """

    name: str
    description: str
    content: bytes
    origin: str


def read_skill(path: str, origin: str, source: Source) -> Result[SkillFile]:
    """Return the skill in a file, and what is wrong with its front matter.

    ``origin`` is the same on every machine.
    """
    lines = source.lines
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() == _MARK), None)
    diagnostics: tuple[Diagnostic, ...] = ()
    description = None
    if lines and lines[0].rstrip() == _MARK:
        if end is None:
            at = source.span(0, 0, len(_MARK))
            return Result(
                None,
                (
                    codes.BAD_SKILL.at(
                        at, "the front matter is not closed: a line of '---' ends it"
                    ),
                ),
            )
        # Blank lines in the place of the mark keep the places of all others.
        front = read_yaml(Source(source.file, "\n".join(["", *lines[1:end]])))
        described = _described(front.value) if front.value is not None else Result[str](None)
        diagnostics, description = (*front.diagnostics, *described.diagnostics), described.value
        lines = lines[end + 1 :]
    shown = description or next((text for line in lines if (text := line.strip("# \t*"))), "")
    name, content = PurePosixPath(path).name, source.text.encode()
    return Result(
        SkillFile(name, " ".join(shown.split())[:MAX_DESCRIPTION], content, origin), diagnostics
    )


def _described(front: MapNode) -> Result[str]:
    entry = front.get("description")
    if entry is None:
        return Result(
            None, (codes.BAD_SKILL.at(front.span, "the front matter has no 'description'"),)
        )
    if not isinstance(entry.value, ScalarNode) or not entry.value.text.strip():
        return Result(None, (codes.BAD_SKILL.at(entry.value.span, "'description' is a text"),))
    return Result(entry.value.text)
