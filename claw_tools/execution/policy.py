"""The programs that may be named: ``allow`` and ``deny`` of the configuration.

See docs/tools-host.md "What is contained, and how".

Rules. This is for order and is no wall: a program that is allowed may start others, and containment
is the kernel's. With ``allow``, what can't be judged is refused: substitutions, redirections,
groups, background, several lines, unbalanced quotes. With ``deny`` alone, names are looked for
wherever a command may begin.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.containment import PATH

_MAX_COMMANDS: Final = 32
_MAX_DEPTH: Final = 4  # Of shells that run shells
_WRAPPERS: Final = frozenset(
    (
        *("command", "doas", "env", "eval", "exec", "ionice", "nice", "nohup"),
        *("setsid", "stdbuf", "sudo", "time", "timeout", "xargs"),
    )
)
_SHELLS: Final = frozenset(("ash", "bash", "busybox", "dash", "sh", "zsh"))
_LEADING_WORDS: Final = frozenset(("!", "do", "elif", "else", "if", "then", "until", "while"))


@dataclass(frozen=True, slots=True)
class CommandPolicy:
    """The names of programs that may, or may not, be run; no names are no policy."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()

    def check_shell(self, command: str) -> None:
        """Refuse a command line of a shell. Raise ``ToolError``."""
        if not self.allow and not self.deny:
            return

        commands = _Scan(command, is_strict=bool(self.allow)).commands()
        if self.allow:
            if len(commands) > _MAX_COMMANDS:
                raise _denied(f"it has more than {_MAX_COMMANDS} commands")
            if not all(commands):
                raise _denied("a command is empty")
        for words in commands:
            self.check_program(words)

    def check_program(self, words: Sequence[str]) -> None:
        """Refuse a program with its arguments. Raise ``ToolError``."""
        if not words:
            return
        if self.allow and not self._is_allowed(words[0]):
            raise _denied(
                f"{words[0][:64]!r} is not one of the allowed programs ({', '.join(self.allow)})"
            )
        for name in _command_names(words, depth=_MAX_DEPTH):
            if name in self.deny:
                raise _denied(f"{name!r} is a program that may not be run")

    def _is_allowed(self, word: str) -> bool:
        folder, _, name = word.rpartition("/")
        is_on_path = "/" not in word or folder in PATH.split(":")
        return name in self.allow and is_on_path


def _command_names(words: Sequence[str], depth: int) -> Iterator[str]:
    """Yield the names of the programs that a command runs.

    Assignments in front are passed over; of a program that runs others, theirs are yielded too.
    """
    rest = list(words)
    while rest and (rest[0] in _LEADING_WORDS or "=" in rest[0].split("/")[0]):
        rest.pop(0)
    if not rest:
        return

    name = rest[0].rpartition("/")[2]
    yield name
    if depth == 0:
        return

    if name in _WRAPPERS:
        # Only the program knows which word is an option's value, so each may be a name
        for word in rest[1:]:
            yield word.rpartition("/")[2]
    if name in _SHELLS or name in _WRAPPERS:
        for word in rest[1:]:
            for inner in _Scan(word, is_strict=False).commands():
                yield from _command_names(inner, depth - 1)


@dataclass(slots=True)
class _Scan:
    """A command line, read once from its beginning.

    ``is_strict``: refuse what can't be judged, else begin a command there.
    """

    text: str
    is_strict: bool
    _commands: list[list[str]] = field(default_factory=lambda: [[]])
    _word: str | None = None
    _at: int = 0

    def commands(self) -> list[list[str]]:
        """Return the words of each command, without quotes. Raise ``ToolError``."""
        if self.is_strict and any(not char.isprintable() and char != "\t" for char in self.text):
            raise _denied("it has a control character, a line break or an unusual space")

        while self._at < len(self.text):
            self._read_one()
        self._end_word()
        return self._commands

    def _read_one(self) -> None:
        char = self.text[self._at]
        self._at += 1
        match char:
            case "'":
                end = self._closed(self.text.find("'", self._at))
                self._add(self.text[self._at : end])
                self._at = end + 1
            case '"':
                self._read_quoted()
            case "\\":
                self._add(self.text[self._at : self._at + 1])
                self._at += 1
            case ";" | "|" | "&":
                self._read_operator(char)
            case " " | "\t":
                self._end_word()
            case "<" | ">" | "(" | ")" | "{" | "}" | "`" | "\n" | "\r" | "$":
                self._read_special(char)
            case _:
                self._add(char)

    def _read_quoted(self) -> None:
        self._add("")  # Empty quotes are a word, too

        while self._at < len(self.text):
            char = self.text[self._at]
            self._at += 1
            if char == '"':
                return
            if char == "\\":
                char = self.text[self._at : self._at + 1]
                self._at += 1
                self._add(char)
            elif char in "`$":
                self._read_special(char)
                if self._word is None:
                    return  # A command began inside the quotes
            else:
                self._add(char)

        self._closed(-1)  # Raises if it is strict

    def _read_operator(self, char: str) -> None:
        is_double = self.text[self._at : self._at + 1] == char
        if is_double and char != ";":
            self._at += 1
        elif char == "&" and self.is_strict:
            raise _denied("it has '&', which leaves a command in the background")
        self._begin_command()

    def _read_special(self, char: str) -> None:
        following = self.text[self._at : self._at + 1]
        is_variable = char == "$" and following not in ("(", "{", "'", '"')

        if is_variable:
            self._add(char)
        elif self.is_strict:
            raise _denied(
                f"it has {char!r} outside single quotes, and what it does can't be judged"
            )
        elif char in "<>":
            self._end_word()
        else:
            is_substitution = self.text.startswith("$(", self._at - 1)
            if is_substitution:
                self._at += 1
            self._begin_command()

    def _closed(self, end: int) -> int:
        """Return the place of a closing quote; -1 for a missing one is the end of the text."""
        if end >= 0:
            return end
        if self.is_strict:
            raise _denied("a quote is not closed")
        return len(self.text)

    def _add(self, part: str) -> None:
        self._word = (self._word or "") + part

    def _end_word(self) -> None:
        if self._word is not None:
            self._commands[-1].append(self._word)
        self._word = None

    def _begin_command(self) -> None:
        self._end_word()
        self._commands.append([])


def _denied(reason: str) -> ToolError:
    return ToolError(ErrorCode.PERMISSION_DENIED, f"the command is not allowed: {reason}.")
