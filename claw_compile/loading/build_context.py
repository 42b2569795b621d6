"""The build context of a service and its Dockerfile, as far as they are in the pod's directory.

They are the source of the service's image.

Compose may build from anywhere; a context that is an address, or outside of the pod's directory, is
not looked into.

Labels and variables follow Docker's rules: both forms (``LABEL key=value …`` and ``LABEL key
value``), quotes and the escape character, continued lines with comments between them; heredocs are
skipped. The last stage counts, or the target, with the labels of the stages that it is built from.
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
    """Return the paths where a file of the image may be before it is built.

    It may have its own path in the directory, or be copied from the directory's top.
    """
    inside = posixpath.normpath(in_image.strip()).lstrip("/")
    paths: dict[str, None] = {}
    for directory in directories:
        paths[posixpath.join(directory, inside)] = None
        paths[posixpath.join(directory, posixpath.basename(inside))] = None
    return tuple(paths)


def build_context(service: ServiceSpec, files: Files, lookup: Lookup) -> BuildContext | None:
    """Return the build context of a service; None if it has none, or it is not looked into.

    ``build`` is a directory, or a mapping with ``context``, ``dockerfile``, ``dockerfile_inline``
    and ``target``.
    """
    build = child(service.body, "build")
    if build is None:
        return None
    context = _directory(build, files, lookup)
    if context is None:
        return None

    source = dockerfile(build, files, lookup)
    if source is None:
        return BuildContext(context)
    target = fill_in(child(build, "target"), lookup)
    return BuildContext(context, labels(source, target))


def dockerfile(build: Node, files: Files, lookup: Lookup, within: str = "") -> Source | None:
    """Return the Dockerfile of a service's ``build``.

    ``within`` is the directory of its Compose file, from the pod's.
    """
    context = _directory(build, files, lookup, within)
    if context is None:
        return None

    inline = child(build, "dockerfile_inline")
    if isinstance(inline, ScalarNode):
        # Its lines are not lines of the pod file, so reports point at the key as a whole.
        return Source(inline.span.file, interpolate(inline.text, lookup).text)

    name = fill_in(child(build, "dockerfile"), lookup) or "Dockerfile"
    source = files.read_if_present(posixpath.join(context, name), "the Dockerfile")
    return source.value if source else None


def _directory(build: Node, files: Files, lookup: Lookup, within: str = "") -> str | None:
    """Return the context as a directory of the pod's; None for what is not looked into."""
    context = fill_in(build, lookup)
    if isinstance(build, MapNode):
        context = fill_in(build.value("context"), lookup) or "."
    if context is None or "://" in context or context.startswith(_ADDRESSES):
        return None

    context = posixpath.join(within, context)
    try:
        directory = files.resolve_path(context)
        return context if directory is not None and directory.is_dir() else None
    except (OSError, ValueError):
        return None


def fill_in(node: Node | None, lookup: Lookup) -> str | None:
    """Return a single value with its variables filled in.

    Return None when it is absent, blank, or can't be filled in.
    """
    if not isinstance(node, ScalarNode) or node.is_null:
        return None

    value = interpolate(node.text, lookup)
    if value.problems or not value.text.strip():
        return None
    return value.text


def labels(source: Source, target: str | None = None) -> Labels:
    """Return the labels of the image that is built; what is no Dockerfile has none."""
    stages: dict[str, dict[str, ScalarNode]] = {}
    current: dict[str, ScalarNode] = {}
    count = 0
    for line in _logical_lines(source, _escape(source)):
        instruction = _INSTRUCTION.fullmatch(line.text)
        if instruction is None:
            continue

        rest = instruction["rest"]
        match instruction["word"].upper():
            case "FROM" if (stage := _FROM.fullmatch(rest)) is not None:
                # A stage has the labels of the stage that it is built from. It is known by its
                # number, and by its name.
                current = dict(stages.get(stage["base"].lower(), {}))
                stages[str(count)] = current
                if stage["name"]:
                    stages[stage["name"].lower()] = current
                count += 1
            case "LABEL":
                current.update(_pairs(line, rest, instruction.start("rest")))

    return stages.get(target.lower(), {}) if target else current


def declared_variables(source: Source) -> Iterator[tuple[str, ScalarNode]]:
    """Yield every ``ENV``, and every ``ARG`` that has a value, of all stages."""
    for line in _logical_lines(source, _escape(source)):
        instruction = _INSTRUCTION.fullmatch(line.text)
        if instruction is not None and instruction["word"].upper() in {"ENV", "ARG"}:
            yield from _pairs(line, instruction["rest"], instruction.start("rest"))


@dataclass(frozen=True)
class _Line:
    """One instruction, its lines joined.

    ``starts`` are the offsets in ``text`` at which its lines begin, ``numbers`` their numbers in
    the file.
    """

    source: Source
    text: str
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    escape: str

    def node(self, value: str, start: int, end: int) -> ScalarNode:
        """Return a value with the place of ``text[start:end]``, in which it is written."""
        part = bisect.bisect_right(self.starts, start) - 1
        column = start - self.starts[part]
        return ScalarNode(value, self.source.span(self.numbers[part], column, column + end - start))


def _escape(source: Source) -> str:
    r"""Return the escape character: ``\``, unless a directive at the top says another one."""
    for line in source.lines:
        directive = _ESCAPE.fullmatch(line.strip())
        if directive is not None:
            return directive["char"]
        if not _DIRECTIVE.match(line.strip()):
            break
    return "\\"


def _logical_lines(source: Source, escape: str) -> Iterator[_Line]:
    """Yield each instruction, with the lines by which it goes on."""
    lines = iter(enumerate(source.lines))
    for number, line in lines:
        if _is_blank_or_comment(line):
            continue

        text = ""
        starts = [0]
        numbers = [number]
        part = line
        while (stripped := part.rstrip()).endswith(escape):
            text += stripped[: -len(escape)]
            next_line = _next_part(lines)
            if next_line is None:
                part = ""
                break
            starts.append(len(text))
            numbers.append(next_line[0])
            part = next_line[1]
        text += part

        yield _Line(source, text, tuple(starts), tuple(numbers), escape)
        _skip_heredocs(text, lines)


def _is_blank_or_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _next_part(lines: Iterator[tuple[int, str]]) -> tuple[int, str] | None:
    """Return the line by which an instruction goes on, with its number.

    Docker passes over comments and blank lines between them.
    """
    for number, line in lines:
        if not _is_blank_or_comment(line):
            return number, line
    return None


def _skip_heredocs(text: str, lines: Iterator[tuple[int, str]]) -> None:
    """Skip the lines of an instruction's heredocs: a LABEL in one is text of a file or command."""
    instruction = _INSTRUCTION.fullmatch(text)
    if instruction is None or instruction["word"].upper() not in _TAKES_HEREDOC:
        return

    for heredoc in _HEREDOC.finditer(text):
        for _, line in lines:
            content = line.lstrip("\t") if heredoc["tabs"] else line
            if content == heredoc["end"]:
                break


def _pairs(line: _Line, rest: str, at: int) -> Iterator[tuple[str, ScalarNode]]:
    """Yield names and values of an instruction; ``rest`` is what follows its word, at ``at``."""
    words = list(_words(rest, line.escape))
    if not words:
        return

    first, _, first_end = words[0]
    if "=" in first:
        for word, start, end in words:
            name, sign, value = word.partition("=")
            if sign:
                yield name, line.node(value, at + start, at + end)
        return

    # The old form: one name, and the rest of the line is its value.
    if len(words) > 1:
        value_words = [text for text, _, _ in _words(rest[first_end:].strip(), line.escape)]
        value_start = words[1][1]
        value_end = len(rest.rstrip())
        yield first, line.node(" ".join(value_words), at + value_start, at + value_end)


def _words(text: str, escape: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word without its quotes and escapes, and where it begins and ends in the text."""
    word = ""
    start = -1  # Where the current word begins; -1 between words
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if not quote and char.isspace():
            if start >= 0:
                yield word, start, at
            word = ""
            start = -1
            at += 1
            continue

        if start < 0:
            start = at
        if char == escape and quote != "'" and at + 1 < len(text):
            # The next character stands for itself, but not between single quotes.
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
