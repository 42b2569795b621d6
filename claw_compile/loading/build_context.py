"""The build context of a service and its Dockerfile: the source of its image, as
far as it is in the pod's directory.

Compose may build from anywhere; a context that is an address, or outside of the pod's directory, is
not looked into.

Labels and variables follow Docker's rules: both forms (``LABEL key=value …`` and ``LABEL key
value``), quotes and the escape character, lines that go on, comments among them, heredocs passed
over; the last stage counts, or the target, with the labels of the stages that it is built from.
Variables are not filled in: a label that needs one is reported.
"""

import bisect
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from claw_compile.grammar.pod import ServiceSpec
from claw_compile.loading.files import Files
from claw_compile.parsing.environment import Lookup, interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, Source, child

_ESCAPE = re.compile(r"#\s*escape\s*=\s*(?P<char>[\\`])\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"#\s*[a-z]+\s*=", re.IGNORECASE)
_INSTRUCTION = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>\S.*)", re.DOTALL)
_FROM = re.compile(r"(--\S+\s+)*(?P<base>\S+)(\s+as\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_HEREDOC = re.compile(r"""<<(?P<tabs>-?)(["']?)(?P<end>[A-Za-z_]\w*)\2""")
_TAKES_HEREDOC = {"RUN", "COPY", "ADD"}
type Labels = Mapping[str, ScalarNode]
_ADDRESSES = ("git@", "github.com/")


@dataclass(frozen=True)
class BuildContext:
    """``path`` is relative to the pod's directory; ``labels`` are those of its Dockerfile."""

    path: str
    labels: Labels = field(default_factory=dict)


def candidate_paths(directories: Iterable[str], in_image: str) -> tuple[str, ...]:
    """Return the paths where a file of the image may be before it is built: its own
    path, or copied from the top.
    """
    inside = posixpath.normpath(in_image.strip()).lstrip("/")
    names = (inside, posixpath.basename(inside))
    return tuple(
        dict.fromkeys(
            posixpath.join(directory, name) for directory in directories for name in names
        )
    )


def build_context(service: ServiceSpec, files: Files, lookup: Lookup) -> BuildContext | None:
    """Return the context of ``build: DIR`` or ``build: {context, dockerfile,
    dockerfile_inline, target}``.
    """
    build = child(service.body, "build")
    if build is None or (context := _directory(build, files, lookup)) is None:
        return None
    source = dockerfile(build, files, lookup)
    return BuildContext(
        context,
        labels(source, fill_in(child(build, "target"), lookup)) if source is not None else {},
    )


def dockerfile(build: Node, files: Files, lookup: Lookup, within: str = "") -> Source | None:
    """Return the Dockerfile of a service's ``build``.

    ``within`` is the directory of its Compose file, from the pod's.
    """
    context = _directory(build, files, lookup, within)
    if context is None:
        return None
    parts = build if isinstance(build, MapNode) else None
    inline = child(parts, "dockerfile_inline")
    if isinstance(inline, ScalarNode):
        # Its lines are not lines of the pod file: what is said of them is said of the whole.
        return Source(inline.span.file, interpolate(inline.text, lookup).text)
    name = (fill_in(parts.value("dockerfile"), lookup) if parts else None) or "Dockerfile"
    source = files.read_if_present(posixpath.join(context, name), "the Dockerfile")
    return source.value if source else None


def _directory(build: Node, files: Files, lookup: Lookup, within: str = "") -> str | None:
    """Return the context as a directory of the pod's; None for what is not looked into."""
    if isinstance(build, ScalarNode) and build.is_null:
        return None
    context = (
        fill_in(build.value("context"), lookup) or "."
        if isinstance(build, MapNode)
        else fill_in(build, lookup)
    )
    if context is None or "://" in context or context.startswith(_ADDRESSES):
        return None
    context = posixpath.join(within, context)
    try:
        directory = files.resolve_path(context)
        return context if directory is not None and directory.is_dir() else None
    except (OSError, ValueError):
        return None


def fill_in(node: Node | None, lookup: Lookup) -> str | None:
    """Return a single value with its variables filled in; None when it is absent or
    can't be filled in.
    """
    if not isinstance(node, ScalarNode) or node.is_null:
        return None
    result = interpolate(node.text, lookup)
    return result.text if result.text.strip() and not result.problems else None


def labels(source: Source, target: str | None = None) -> Labels:
    """Return the labels of the image that is built; what is no Dockerfile has none."""
    stages: dict[str, dict[str, ScalarNode]] = {}
    current: dict[str, ScalarNode] = {}
    count = 0
    for line in _logical_lines(source, _escape(source)):
        instruction = _INSTRUCTION.fullmatch(line.text)
        if instruction is None:
            continue
        rest, at = instruction["rest"], instruction.start("rest")
        match instruction["word"].upper():
            case "FROM" if (stage := _FROM.fullmatch(rest)) is not None:
                current = dict(stages.get(stage["base"].lower(), {}))
                for name in (str(count), stage["name"] or str(count)):
                    stages[name.lower()] = current
                count += 1
            case "LABEL":
                current.update(_pairs(line, rest, at))
    return stages.get(target.lower(), {}) if target else current


def declared_variables(source: Source) -> Iterator[tuple[str, ScalarNode]]:
    """Yield every ``ENV``, and every ``ARG`` that has a value, of all stages."""
    for line in _logical_lines(source, _escape(source)):
        instruction = _INSTRUCTION.fullmatch(line.text)
        if instruction is not None and instruction["word"].upper() in {"ENV", "ARG"}:
            yield from _pairs(line, instruction["rest"], instruction.start("rest"))


@dataclass(frozen=True)
class _Line:
    """One instruction, its lines joined; ``starts`` are where each of them begins in ``text``."""

    source: Source
    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    escape: str

    def node(self, value: str, start: int, end: int) -> ScalarNode:
        """Return a value with the place of the word that it stands in."""
        part = bisect.bisect_right(self.starts, start) - 1
        column = start - self.starts[part]
        return ScalarNode(value, self.source.span(self.numbers[part], column, column + end - start))


def _escape(source: Source) -> str:
    for line in source.lines:
        if (directive := _ESCAPE.fullmatch(line.strip())) is not None:
            return directive["char"]
        if not _DIRECTIVE.match(line.strip()):
            break
    return "\\"


def _logical_lines(source: Source, escape: str) -> Iterator[_Line]:
    lines = iter(enumerate(source.lines))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        text, starts, numbers = "", [0], [number]
        part = line
        while (stripped := part.rstrip()).endswith(escape):
            text += stripped[: -len(escape)]
            following = next(
                ((at, each) for at, each in lines if each.strip() and each.lstrip()[0] != "#"), None
            )
            if following is None:
                part = ""
                break
            starts.append(len(text))
            numbers.append(following[0])
            part = following[1]
        text += part
        yield _Line(source, text, tuple(starts), tuple(numbers), escape)
        _pass_heredocs(text, lines)


def _pass_heredocs(text: str, lines: Iterator[tuple[int, str]]) -> None:
    if (instruction := _INSTRUCTION.fullmatch(text)) is None or instruction[
        "word"
    ].upper() not in _TAKES_HEREDOC:
        return
    for heredoc in _HEREDOC.finditer(text):
        for _, line in lines:
            if (line.lstrip("\t") if heredoc["tabs"] else line) == heredoc["end"]:
                break


def _pairs(line: _Line, rest: str, at: int) -> Iterator[tuple[str, ScalarNode]]:
    words = list(_words(rest, line.escape))
    if not words:
        return
    first, start, end = words[0]
    if "=" not in first:
        # The old form: one key, and the rest of the line is its value.
        value = rest[end:].strip()
        if len(words) > 1:
            last = at + len(rest.rstrip())
            yield (
                first,
                line.node(
                    " ".join(text for text, _, _ in _words(value, line.escape)),
                    at + words[1][1],
                    last,
                ),
            )
        return
    for word, start, end in words:
        key, sign, value = word.partition("=")
        if sign:
            yield key, line.node(value, at + start, at + end)


def _words(text: str, escape: str) -> Iterator[tuple[str, int, int]]:
    word, start, quote, at = "", -1, "", 0
    while at < len(text):
        char = text[at]
        if not quote and char.isspace():
            if start >= 0:
                yield word, start, at
            word, start = "", -1
            at += 1
            continue
        start = at if start < 0 else start
        if char == escape and quote != "'" and at + 1 < len(text):
            at += 1
            word += text[at]
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        else:
            word += char
        at += 1
    if start >= 0:
        yield word, start, len(text)
