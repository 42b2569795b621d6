"""Reading one key: the shape it takes, its variables filled in, and what is wrong with it.

Rules. Each method reports what it does not like and gives None, so that reading goes on and every mistake is found in
one run. What is read here is interpolated; what is not read is left to Compose.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, did_you_mean, quoted
from claw_compile.parsing.interpolation import Lookup, Malformed, Problem, interpolate
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, kind

LARGEST_LIMIT = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass
class Reading:
    """One reading of a pod file: where variables come from, and what was found."""

    lookup: Lookup
    found: list[Diagnostic] = field(default_factory=list)
    carried: dict[str, list[Span]] = field(default_factory=dict)

    def keys(self, node: Node, what: str, known: Collection[str]) -> dict[str, Entry]:
        """The entries of a mapping by key; those that are not known are reported."""
        mapping = self.mapping(node, what)
        entries: dict[str, Entry] = {}
        for entry in mapping.entries if mapping is not None else ():
            name = entry.key.text
            if name in known:
                entries[name] = entry
            else:
                message, hint = f"{what} takes no key {quoted(name)}", did_you_mean(name, known)
                self.found.append(codes.UNKNOWN_KEY.at(entry.key.span, message, hint=hint))
        return entries

    def members(self, node: Node, what: str, known: Collection[str]) -> dict[str, Entry] | None:
        """The entries of a mapping that must be one: what is null would be lost without a word."""
        if isinstance(node, MapNode):
            return self.keys(node, what, known)
        self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a mapping, and this is {kind(node)}"))
        return None

    def mapping(self, node: Node, what: str) -> MapNode | None:
        """A mapping; ``null`` is none, and nothing is said of it."""
        if isinstance(node, MapNode):
            return node
        if not (isinstance(node, ScalarNode) and node.is_null):
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a mapping, and this is {kind(node)}"))
        return None

    def require(self, entries: Mapping[str, Entry], at: Span, what: str, *names: str) -> bool:
        """Whether all of the keys are there."""
        missing = [name for name in names if name not in entries]
        self.found.extend(codes.MISSING_KEY.at(at, f"{what} needs {quoted(name)}") for name in missing)
        return not missing

    def one_of(self, entries: Mapping[str, Entry], at: Span, what: str, *names: str) -> bool:
        """Whether exactly one of the keys is there."""
        if sum(name in entries for name in names) == 1:
            return True
        either = " or ".join(quoted(name) for name in names)
        self.found.append(codes.MISSING_KEY.at(at, f"{what} needs either {either}"))
        return False

    def carry(self, key: ScalarNode, name: str | None = None) -> None:
        """The key is carried and not acted on: one warning for each name, at its first place."""
        self.carried.setdefault(name or key.text, []).append(key.span)

    def warnings(self) -> list[Diagnostic]:
        """The warnings for all that is only carried."""
        found = []
        for name, spans in self.carried.items():
            first, *others = sorted(set(spans))
            notes = [Note(span, "and here") for span in others]
            message = f"{quoted(name)} is carried into pod-manifest.json, and not acted on"
            found.append(codes.NOT_ACTED_ON.at(first, message, notes=notes))
        return found

    def filled(self, node: ScalarNode, allowed: str = "") -> ScalarNode | None:
        """The scalar with its variables filled in; it still shows as it is written. ``allowed``: which control characters."""
        result = interpolate(node.text, self.lookup)
        self.found.extend(problem_at(node, problem) for problem in result.problems)
        if result.problems:
            return None
        if any((char < " " and char not in allowed) or "\ud800" <= char <= "\udfff" for char in result.text):
            self.found.append(codes.BAD_VALUE.at(node.span, "a value with control characters"))
            return None
        return ScalarNode(result.text, node.span, plain=node.plain, raw=node.text)

    def text(self, node: Node, what: str) -> ScalarNode | None:
        """A single value that is not empty, as it is spelled."""
        if not isinstance(node, ScalarNode) or node.is_null:
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a single value, and this is {kind(node)}"))
            return None
        filled = self.filled(node)
        if filled is not None and not filled.text.strip():
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} must not be empty"))
            return None
        return filled

    def prose(self, node: Node, what: str) -> str | None:
        """A text of any number of lines."""
        if not isinstance(node, ScalarNode) or node.is_null:
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a text, and this is {kind(node)}"))
            return None
        filled = self.filled(node, allowed="\n\t")
        return filled.text if filled else None

    def optional_text(self, entry: Entry | None) -> ScalarNode | None:
        return self.text(entry.value, quoted(entry.key.text)) if entry else None

    def choice[W: str](self, node: Node, what: str, options: Sequence[W]) -> W | None:
        """One word of a closed set."""
        word = self.text(node, what)
        if word is None or word.text in options:
            return next(option for option in options if option == word.text) if word else None
        message = f"{what} is one of {', '.join(options)}"
        self.found.append(codes.BAD_VALUE.at(node.span, message, hint=did_you_mean(word.shown, options)))
        return None

    def flag(self, node: Node, what: str) -> bool:
        word = self.text(node, what)
        if word is not None and word.text not in {"true", "false"}:
            self.found.append(codes.BAD_VALUE.at(node.span, f"{what} is true or false"))
        return word is not None and word.text == "true"

    def limit(self, node: Node, what: str) -> int | None:
        """A positive integer."""
        number = self.text(node, what)
        if number is None:
            return None
        if _NUMBER.fullmatch(number.text) and 0 < int(number.text) <= LARGEST_LIMIT:
            return int(number.text)
        self.found.append(codes.BAD_LIMIT.at(node.span, f"{what} is a positive integer"))
        return None

    def items(self, node: Node, what: str) -> tuple[Node, ...]:
        """The items of a list; ``null`` is an empty one."""
        if isinstance(node, ListNode):
            return node.items
        if not (isinstance(node, ScalarNode) and node.is_null):
            hint = "a spread is an entry of the list: '- ...'" if is_spread(node) else None
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a list, and this is {kind(node)}", hint=hint))
        return ()

    def texts(self, node: Node, what: str) -> tuple[ScalarNode, ...]:
        """A list of single values."""
        each = (self.text(item, f"an entry of {what}") for item in self.items(node, what))
        return tuple(item for item in each if item is not None)


def is_spread(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.text == "..."


def problem_at(node: ScalarNode, problem: Problem) -> Diagnostic:
    """A problem of interpolation at its scalar, in words of the file only."""
    if isinstance(problem, Malformed):
        return codes.BAD_INTERPOLATION.at(
            node.span, "a '${' that begins no variable", help_text="a literal '$' is '$$'"
        )
    why = f": {quoted(problem.message)[1:-1]}" if problem.message else ""
    return codes.UNSET_VARIABLE.at(node.span, f"{problem.name} is not set{why}")
