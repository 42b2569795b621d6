"""The values of toolhost.yml that need more than a type: sizes, credentials, folders, names
(docs/spec/tools-host.md).

Rules. A credential never stands in the file: it is a variable or a file that the host has. Relative
paths start at the folder of toolhost.yml. A message names what is wrong and the remedy, and never a
credential.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
)

from claw_contract.secret import Secret
from claw_tools.composite import NAMESPACE, RESERVED
from claw_tools.errors import ToolError
from claw_tools.message.stream import SCHEMES
from claw_tools.web.urls import parse_url, read_host

_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,12}) ?(B|KiB|MiB|GiB|)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOKEN = re.compile(r"[!-~]+")
_URL_PATH = re.compile(r"/[^?#\s]*")


@dataclass
class World:
    """The environment, the folder of the file, and the namespaces of installed
    providers; and the tokens so far.
    """

    environ: Mapping[str, str]
    directory: Path
    taken: frozenset[str] = frozenset()
    tokens: list[Secret] = field(default_factory=list)


class Credential(NamedTuple):
    """A credential, and the variable that it was read from, if it was one."""

    secret: Secret
    variable: str = ""


def _size(value: Any) -> Any:
    if isinstance(value, str):
        if (found := _SIZE.fullmatch(value)) is None:
            raise ValueError(
                "a size is a number of bytes, or a number with KiB, MiB or GiB, such as 10MiB"
            )
        return int(found[1]) * _UNITS[found[2]]
    return value


def _credential(value: Any, info: ValidationInfo) -> Credential:
    match value:
        case {"env": str(name), **rest} if not rest:
            return Credential(Secret(_variable(name, info)), name)
        case {"file": str(path), **rest} if not rest:
            return Credential(Secret(_content(_world(info).directory / path)))
    raise ValueError(
        "a credential is {env: NAME} or {file: PATH}: it does not stand in this file itself"
    )


def _token(value: Any, info: ValidationInfo) -> Credential:
    credential, tokens = _credential(value, info), _world(info).tokens
    if not _TOKEN.fullmatch(credential.secret.reveal()):
        raise ValueError(
            "a token has no spaces, and only the letters, digits and signs of ASCII: make "
            "another one"
        )
    if credential.secret in tokens:
        raise ValueError("another principal has the same token: give each its own")
    tokens.append(credential.secret)
    return credential


def _secret_text(value: Any, info: ValidationInfo) -> Secret:
    if not isinstance(value, str):
        return _credential(value, info).secret
    return Secret(_VARIABLE.sub(lambda found: _variable(found[1], info), value))


def _redis_url(value: Any, info: ValidationInfo) -> Secret:
    url = _secret_text(value, info)
    if not url.reveal().startswith(SCHEMES):
        raise ValueError("this is no redis:// or rediss:// URL: write redis://HOST:PORT/0")
    return url


def _url(value: str) -> str:
    try:
        parse_url(value)
    except ToolError as error:
        reason = error.message.partition(": ")[2].removesuffix(".")
        raise ValueError(
            f"this URL can't be used, since {reason}: write http://HOST/PATH or https://HOST/PATH"
        ) from None
    return value


def _variable(name: str, info: ValidationInfo) -> str:
    value = _world(info).environ.get(name, "")
    if not value:
        raise ValueError(
            f"the variable {name[:64]} is not set: set it in the environment of the host"
        )
    return value


def _content(path: Path) -> str:
    try:
        content = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"the file {path} can't be read: {reason}") from None
    if not content:
        raise ValueError(f"the file {path} is empty: write the credential into it")
    return content


def _folder(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or not value:
        return value
    path = _world(info).directory / value
    if "\0" in value or not path.is_dir():
        raise ValueError(f"there is no folder {str(path)!r}: make it, or name another one")
    return path


def _namespace(name: str, info: ValidationInfo) -> str:
    if not NAMESPACE.fullmatch(name):
        raise ValueError(
            "the name of a server is [a-z0-9][a-z0-9-]{0,31}, without '_': give it another name"
        )
    if name == RESERVED or name in _world(info).taken:
        raise ValueError(
            f"the name {name!r} is taken by the host's own tools or an installed "
            "provider: give it another one"
        )
    return name


def _path(value: str) -> str:
    if not _URL_PATH.fullmatch(value) or value in {"/health", "/healthz"}:
        raise ValueError(
            "the path starts with '/', has no '?', '#' or space, and is not that of the "
            "health: write /mcp"
        )
    return value


def _world(info: ValidationInfo) -> World:
    assert isinstance(info.context, World)
    return info.context


type Word = Annotated[str, StringConstraints(min_length=1)]
type Size = Annotated[int, BeforeValidator(_size), Field(ge=1024)]
type Seconds = Annotated[float, Field(gt=0, le=600)]
type Port = Annotated[int, Field(ge=1, le=65_535)]
type Url = Annotated[str, AfterValidator(_url)]
type Host = Annotated[str, AfterValidator(read_host)]
type UrlPath = Annotated[str, AfterValidator(_path)]
type VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
type HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
type Glob = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?-]{1,64}$")]
type Key = Annotated[Credential, PlainValidator(_credential)]
type Token = Annotated[Credential, PlainValidator(_token)]
type SecretText = Annotated[Secret, PlainValidator(_secret_text)]
type RedisUrl = Annotated[Secret, PlainValidator(_redis_url)]
type Folder = Annotated[Path, BeforeValidator(_folder)]
type Namespace = Annotated[str, AfterValidator(_namespace)]
