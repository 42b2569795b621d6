"""The state of one reading of a pod file: where variables come from, and what was reported.

A reader reports a mistake and returns None, so that reading goes on and one run reports every
mistake. A value that is read here is interpolated; all others are left to Compose.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Code, Diagnostic, Note, Span, did_you_mean, quote
from claw_compile.parsing.environment import Lookup, MalformedReference, Problem, interpolate
from claw_compile.parsing.node import Entry, MapNode, Node, ScalarNode, kind


@dataclass
class Reader:
    """One reading of a pod file.

    ``carried`` has the places of each key that is copied to pod-manifest.json and not acted on.
    """

    lookup: Lookup
    diagnostics: list[Diagnostic] = field(default_factory=list)
    carried: dict[str, list[Span]] = field(default_factory=dict)

    def report(
        self,
        code: Code,
        span: Span,
        message: str,
        *,
        hint: str | None = None,
        notes: Collection[Note] = (),
        help_text: str | None = None,
    ) -> None:
        self.diagnostics.append(code.at(span, message, hint=hint, notes=notes, help_text=help_text))

    def keys(self, node: MapNode, what: str, known: Collection[str]) -> dict[str, Entry]:
        """Return the entries of a mapping by key, and report those with an unknown key."""
        entries: dict[str, Entry] = {}
        for entry in node.entries:
            name = entry.key.text
            if name in known:
                entries[name] = entry
            else:
                message = f"{what} takes no key {quote(name)}"
                hint = did_you_mean(name, known)
                self.report(codes.UNKNOWN_KEY, entry.key.span, message, hint=hint)

        return entries

    def mapping(self, node: Node, what: str) -> MapNode | None:
        """Return the node if it is a mapping. Report anything else that is not ``null``."""
        if isinstance(node, MapNode):
            return node

        if not is_null(node):
            message = f"{what} is a mapping, and this is {kind(node)}"
            self.report(codes.WRONG_TYPE, node.span, message)
        return None

    def carry(self, key: ScalarNode, name: str | None = None) -> None:
        """Record a key that is carried and not acted on."""
        self.carried.setdefault(name or key.text, []).append(key.span)

    def carry_warnings(self) -> list[Diagnostic]:
        """Return one warning for each carried key, with a note for each further place."""
        warnings = []
        for name, spans in self.carried.items():
            # An alias brings the same place again.
            first, *others = sorted(set(spans))
            notes = [Note(span, "and here") for span in others]
            message = f"{quote(name)} is carried into pod-manifest.json, and not acted on"
            warnings.append(codes.NOT_ACTED_ON.at(first, message, notes=notes))

        return warnings

    def fill(self, node: ScalarNode, allowed: str = "") -> ScalarNode | None:
        """Fill in the variables of a scalar; diagnostics still show the text of the file.

        Report a value with control characters other than those of ``allowed``: it could break out
        of the line of the file, header or command that it becomes part of.
        """
        interpolation = interpolate(node.text, self.lookup)
        if interpolation.problems:
            self.diagnostics.extend(problem_at(node, problem) for problem in interpolation.problems)
            return None

        for char in interpolation.text:
            is_control = char < " " and char not in allowed
            is_half_a_character = "\ud800" <= char <= "\udfff"
            if is_control or is_half_a_character:
                self.report(codes.BAD_VALUE, node.span, "a value with control characters")
                return None

        return ScalarNode(interpolation.text, node.span, plain=node.plain, raw=node.text)

    def text(self, node: Node, what: str) -> ScalarNode | None:
        """Return a single value that is not empty, with its spelling. Report anything else."""
        if not isinstance(node, ScalarNode) or node.is_null:
            message = f"{what} is a single value, and this is {kind(node)}"
            self.report(codes.WRONG_TYPE, node.span, message)
            return None

        word = self.fill(node)
        if word is not None and not word.text.strip():
            self.report(codes.WRONG_TYPE, node.span, f"{what} must not be empty")
            return None
        return word


def is_null(node: Node) -> bool:
    """Return whether the node is ``null`` or an absent value."""
    return isinstance(node, ScalarNode) and node.is_null


def is_spread(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.text == "..."


def problem_at(node: ScalarNode, problem: Problem) -> Diagnostic:
    """Return the diagnostic of an interpolation problem, which quotes nothing but the file."""
    if isinstance(problem, MalformedReference):
        message = "a '${' that begins no variable"
        return codes.BAD_INTERPOLATION.at(node.span, message, help_text="a literal '$' is '$$'")

    why = f": {quote(problem.message)[1:-1]}" if problem.message else ""
    return codes.UNSET_VARIABLE.at(node.span, f"{problem.name} is not set{why}")
