"""The settings of a tools host, or all that is wrong with its ``toolhost.yml``.

Some settings come from the file, and some from the machine. Specification: docs/spec/tools-host.md
"toolhost.yml".

Rules. Each part of the host has the sections of the file that it needs
(``claw_contract.toolhost_file``). Relative paths start at the folder of the file. An error is one
line with file, line and column, what is wrong, and the remedy, and never a credential; all errors
of a file are told at once.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from claw_contract.secret import Secret
from claw_contract.toolhost_file import (
    PROTECTED,
    CallLimitsSection,
    LimitsSection,
    ListenSection,
    PrincipalSection,
    Section,
    ToolHostFile,
    ToolsSection,
)
from claw_tools.document import (
    Document,
    DocumentError,
    FileProblem,
    Position,
    ValuePath,
    read_document,
)
from claw_tools.errors import ToolError
from claw_tools.web.urls import parse_url, read_host

DEFAULT_FILE: Final = Path("toolhost.yml")
_KEY_MARK: Final = "[key]"  # In pydantic's path of an error in a key
_VALIDATOR_PREFIX: Final = "Value error, "  # Before the message of a validator


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: who has this token works in this workspace, with the tools that ``globs`` name."""

    name: str
    workspace: Path
    globs: tuple[str, ...]
    token: Secret | None = None  # None: over stdio only
    token_variable: str = ""  # The variable from which the token was read, if it was one
    limits: CallLimitsSection = field(default_factory=CallLimitsSection)


@dataclass(frozen=True, slots=True)
class HostSettings:
    """A whole ``toolhost.yml``, with its credentials."""

    principals: tuple[Principal, ...]
    listen: ListenSection = field(default_factory=ListenSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    protected: tuple[str, ...] = PROTECTED
    audit_arguments: Literal["digest", "full"] = "digest"
    tools: ToolsSection = field(default_factory=ToolsSection)


class SettingsError(ValueError):
    """A file that can't be used; ``str()`` has a line for each error."""


def read_settings(
    file: Path, environ: Mapping[str, str], taken: frozenset[str] = frozenset()
) -> HostSettings:
    """Return the settings; ``taken`` are the namespaces of installed providers.

    Raise ``SettingsError``.
    """
    content = _read_content(file)
    try:
        document = read_document(content)
    except DocumentError as error:
        raise SettingsError(_lines(file, [error.problem])) from None

    machine = LocalMachine(environ, file.absolute().parent, taken)
    try:
        parsed = ToolHostFile.model_validate(document.data, context=machine)
    except ValidationError as error:
        problems = [*document.problems, *_problems(document, error)]
        raise SettingsError(_lines(file, problems)) from None
    if document.problems:
        raise SettingsError(_lines(file, document.problems))
    return _settings(parsed)


def _read_content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        is_default = file == DEFAULT_FILE
        remedy = "name the file by --config" if is_default else "correct the path after --config"
        raise SettingsError(
            f"{file}: {error.strerror}: {remedy}, or write it (docs/tools-host.md)"
        ) from None


def _lines(file: Path, problems: Iterable[FileProblem]) -> str:
    return "\n".join(
        f"{file}:{position.line}:{position.column}: {message}"
        for position, message in sorted(problems)
    )


def _problems(document: Document, error: ValidationError) -> Iterator[FileProblem]:
    for detail in error.errors(include_url=False, include_input=False):
        path = tuple(part for part in detail["loc"] if part != _KEY_MARK)
        is_of_key = detail["type"] in {"extra_forbidden", "missing"} or _KEY_MARK in detail["loc"]
        message = "".join(sign if sign.isprintable() else "?" for sign in _message(path, detail))
        yield FileProblem(_position(document, path, is_of_key=is_of_key), message)


def _position(document: Document, path: ValuePath, *, is_of_key: bool) -> Position:
    """Return the position of a key or value, or of the nearest section around it that is there."""
    positions = document.values
    if is_of_key:
        positions = {**document.values, **document.keys}

    while path not in positions:
        path = path[:-1]
    return positions[path]


def _message(path: ValuePath, error: ErrorDetails) -> str:
    dotted = ".".join(map(str, path)) or "the file"
    *above, last = path or ("the file",)
    section = ".".join(map(str, above)) or "the file"

    match error["type"]:
        case "missing":
            return f"{section} has no {str(last)!r}, which it needs"
        case "extra_forbidden":
            keys = _keys_at(tuple(above))
            near = difflib.get_close_matches(str(last), keys, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(keys)}"
            return f"{section} has no key {str(last)[:64]!r}: {remedy}"
        case "bool_type":
            return f"{dotted}: this is neither true nor false: write true or false"
        case _:
            return f"{dotted}: {error['msg'].removeprefix(_VALIDATOR_PREFIX)}"


def _keys_at(path: ValuePath) -> list[str]:
    """Return the keys of the section at a path."""
    kind: Any = ToolHostFile
    for part in path:
        is_section = isinstance(kind, type) and issubclass(kind, Section)
        # A key of a section, or any value of a mapping or list
        kind = kind.model_fields[part].annotation if is_section else get_args(kind)[-1]
        if isinstance(kind, UnionType):
            kind = get_args(kind)[0]  # A section, or None
    return list(kind.model_fields)


def _settings(file: ToolHostFile) -> HostSettings:
    host = file.toolhost
    return HostSettings(
        principals=tuple(_principal(name, section) for name, section in host.principals.items()),
        listen=host.listen,
        limits=host.limits,
        protected=tuple(host.protected),
        audit_arguments=host.audit_arguments,
        tools=file.tools,
    )


def _principal(name: str, section: PrincipalSection) -> Principal:
    credential = section.token
    return Principal(
        name=name,
        workspace=section.workspace,
        globs=tuple(section.tools),
        token=credential.secret if credential else None,
        token_variable=credential.variable if credential else "",
        limits=section.limits,
    )


@dataclass
class LocalMachine:
    """The machine of this process, as a ``claw_contract.toolhost_file.HostMachine``.

    ``taken_namespaces`` are those of installed providers.
    """

    environ: Mapping[str, str]
    directory: Path
    taken_namespaces: frozenset[str] = frozenset()
    tokens: list[Secret] = field(default_factory=list)

    def read_variable(self, name: str) -> str:
        value = self.environ.get(name, "")
        if not value:
            raise ValueError(
                f"the variable {name[:64]} is not set: set it in the environment of the host"
            )
        return value

    def read_file(self, path: str) -> str:
        file = self.directory / path
        try:
            content = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(f"the file {file} can't be read: {reason}") from None
        if not content:
            raise ValueError(f"the file {file} is empty: write the credential into it")
        return content

    def find_folder(self, path: str) -> Path:
        folder = self.directory / path
        if "\0" in path or not folder.is_dir():
            raise ValueError(f"there is no folder {str(folder)!r}: make it, or name another one")
        return folder

    def take_token(self, token: Secret) -> None:
        if token in self.tokens:
            raise ValueError("another principal has the same token: give each its own")
        self.tokens.append(token)

    def check_url(self, url: str) -> None:
        try:
            parse_url(url)
        except ToolError as error:
            reason = error.message.partition(": ")[2].removesuffix(".")
            raise ValueError(
                f"this URL can't be used, since {reason}: write http://HOST/PATH or "
                "https://HOST/PATH"
            ) from None

    def normalize_host(self, host: str) -> str:
        return read_host(host)

    def check_namespace(self, name: str) -> None:
        if name in self.taken_namespaces:
            raise ValueError(
                f"the name {name!r} is taken by an installed provider: give it another name"
            )
