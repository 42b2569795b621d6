"""toolhost.yml → ``HostSettings``, or all that is wrong with it
(docs/spec/tools-host.md "toolhost.yml").

Rules. An error is one line with file, line and column, what is wrong, and the remedy; all errors of
a file are told at once.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from claw_contract.toolhost_file import PrincipalSection, Section, ToolHostFile
from claw_tools.config.document import (
    Document,
    DocumentError,
    FileProblem,
    Position,
    ValuePath,
    read_document,
)
from claw_tools.config.machine import LocalMachine
from claw_tools.settings import HostSettings, Principal

DEFAULT_FILE: Final = Path("toolhost.yml")
_KEY_MARK: Final = "[key]"  # In pydantic's path of an error in a key
_VALIDATOR_PREFIX: Final = "Value error, "  # Before the message of a validator


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
