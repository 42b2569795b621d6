"""A skill: a text for the agent, known by its base name.

Rules. It may open with front matter (YAML between two lines of ``---``), a mapping whose
``description`` says what the skill is for. Without front matter its first line of text says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Result
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
    has_front = bool(lines) and lines[0].rstrip() == _MARK
    if has_front:
        end = _find_end(lines)
        if end is None:
            at = source.span(0, 0, len(_MARK))
            message = "the front matter is not closed: a line of '---' ends it"
            return Result(None, (codes.BAD_SKILL.at(at, message),))

        front = _read_front(source, end)
        lines = lines[end + 1 :]
    else:
        front = Result("")

    description = front.value or _first_text(lines)
    skill = SkillFile(
        name=PurePosixPath(path).name,
        description=" ".join(description.split())[:MAX_DESCRIPTION],
        content=source.text.encode(),
        origin=origin,
    )
    return Result(skill, front.diagnostics)


def _find_end(lines: Sequence[str]) -> int | None:
    """Return the index of the line that ends the front matter."""
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _MARK:
            return index
    return None


def _read_front(source: Source, end: int) -> Result[str]:
    """Return the description in the front matter, which ends before the line ``end``."""
    # An empty line replaces the mark, so that the numbers of the lines in reports stay right.
    front = read_yaml(Source(source.file, "\n".join(["", *source.lines[1:end]])))
    if front.value is None:
        return Result(None, front.diagnostics)

    description = _described(front.value)
    return Result(description.value, (*front.diagnostics, *description.diagnostics))


def _first_text(lines: Sequence[str]) -> str:
    """Return the first line that is not only marks of Markdown, without them; "" for none."""
    for line in lines:
        text = line.strip("# \t*")
        if text:
            return text
    return ""


def _described(front: MapNode) -> Result[str]:
    entry = front.get("description")
    if entry is None:
        message = "the front matter has no 'description'"
        return Result(None, (codes.BAD_SKILL.at(front.span, message),))

    value = entry.value
    if not isinstance(value, ScalarNode) or not value.text.strip():
        return Result(None, (codes.BAD_SKILL.at(value.span, "'description' is a text"),))
    return Result(value.text)
