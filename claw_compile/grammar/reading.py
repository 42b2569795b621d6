"""Reading one key: the shape it takes, its variables filled in, and what is wrong with it.

Rules. Each method reports what it does not like and gives None, so that reading goes on and every mistake is found in
one run. What is read here is interpolated; what is not read is left to Compose.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, did_you_mean, quoted
from claw_compile.reading.interpolation import Lookup, Malformed, Problem, interpolate
from claw_compile.reading.node import Entry, ListNode, MapNode, Node, ScalarNode, kind

LARGEST_LIMIT = 2**31 - 1
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass
class Reading:
    """One reading of a pod file: where variables come from, and what was found."""

    lookup: Lookup
    found: list[Diagnostic] = field(default_factory=list)
    later: dict[str, list[Span]] = field(default_factory=dict)

    def keys(self, node: Node, what: str, known: Collection[str], later: Collection[str] = ()) -> dict[str, Entry]:
        """The entries of a mapping by key; ``later`` are those of the grammar that are not acted on yet."""
        if isinstance(node, ScalarNode) and node.is_null:
            return {}
        if not isinstance(node, MapNode):
            self.found.append(codes.WRONG_TYPE.at(node.span, f"{what} is a mapping, and this is {kind(node)}"))
            return {}
        entries: dict[str, Entry] = {}
        for entry in node.entries:
            name = entry.key.text
            if name in known:
                entries[name] = entry
            elif name not in later:
                hint = did_you_mean(name, {*known, *later})
                self.found.append(
                    codes.UNKNOWN_KEY.at(entry.key.span, f"{what} takes no key {quoted(name)}", hint=hint)
                )
            if name in later:
                self.postpone(entry.key)
        return entries

    def postpone(self, key: ScalarNode, name: str | None = None) -> None:
        """The key is known, and nothing comes of it yet: one warning for each name, at its first place."""
        self.later.setdefault(name or key.text, []).append(key.span)

    def postponed(self) -> list[Diagnostic]:
        """The warnings for all that was postponed."""
        warnings = []
        for name, spans in self.later.items():
            first, *others = sorted(set(spans))
            notes = [Note(span, "and here") for span in others]
            warnings.append(codes.NOT_ACTED_ON.at(first, f"{quoted(name)} is not acted on yet", notes=notes))
        return warnings

    def filled(self, node: ScalarNode) -> ScalarNode | None:
        """The scalar with its variables filled in; it still shows as it is written."""
        result = interpolate(node.text, self.lookup)
        self.found.extend(problem_at(node, problem) for problem in result.problems)
        if result.problems:
            return None
        if any(ord(char) < ord(" ") or "\ud800" <= char <= "\udfff" for char in result.text):
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

    def optional_text(self, entry: Entry | None) -> ScalarNode | None:
        return self.text(entry.value, quoted(entry.key.text)) if entry else None

    def choice(self, node: Node, what: str, options: Collection[str]) -> str | None:
        """One word of a closed set."""
        word = self.text(node, what)
        if word is None or word.text in options:
            return word.text if word else None
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
        return codes.BAD_INTERPOLATION.at(node.span, "a '$' that begins no variable", help_text="a literal '$' is '$$'")
    why = f": {quoted(problem.message)[1:-1]}" if problem.message else ""
    return codes.UNSET_VARIABLE.at(node.span, f"{problem.name} is not set{why}")
