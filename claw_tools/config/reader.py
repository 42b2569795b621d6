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

from claw_tools.config import grammar
from claw_tools.config.document import (
    Document,
    DocumentError,
    FileProblem,
    ValuePath,
    read_document,
)
from claw_tools.config.grammar import ToolHostFile
from claw_tools.config.values import World
from claw_tools.settings import (
    ExecSettings,
    FileSettings,
    HostSettings,
    McpServerSettings,
    MessageChannel,
    Principal,
    SearchSettings,
    StreamChannel,
    UrlPolicy,
    WebhookChannel,
)

DEFAULT_FILE: Final = Path("toolhost.yml")
_KEY_MARK = "[key]"  # In pydantic's path of an error in a key
_PREFIX = "Value error, "


class SettingsError(ValueError):
    """A file that can't be used; ``str()`` has a line for each error."""


def read_settings(
    file: Path, environ: Mapping[str, str], taken: frozenset[str] = frozenset()
) -> HostSettings:
    """Return the settings; ``taken`` are the namespaces of installed providers.

    Raise ``SettingsError``.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        remedy = (
            "name the file by --config"
            if file == DEFAULT_FILE
            else "correct the path after --config"
        )
        raise SettingsError(
            f"{file}: {error.strerror}: {remedy}, or write it (docs/tools-host.md)"
        ) from None
    try:
        document = read_document(content)
    except DocumentError as error:
        raise SettingsError(_lines(file, [error.problem])) from None
    try:
        parsed = ToolHostFile.model_validate(
            document.data, context=World(environ, file.absolute().parent, taken)
        )
    except ValidationError as error:
        raise SettingsError(
            _lines(file, [*document.problems, *_problems(document, error)])
        ) from None
    if document.problems:
        raise SettingsError(_lines(file, document.problems))
    return _settings(parsed)


def _lines(file: Path, problems: Iterable[FileProblem]) -> str:
    return "\n".join(
        f"{file}:{place.line}:{place.column}: {message}" for place, message in sorted(problems)
    )


def _problems(document: Document, error: ValidationError) -> Iterator[FileProblem]:
    for each in error.errors(include_url=False, include_input=False):
        path = tuple(part for part in each["loc"] if part != _KEY_MARK)
        is_of_key = each["type"] in {"extra_forbidden", "missing"} or _KEY_MARK in each["loc"]
        places = {**document.values, **document.keys} if is_of_key else document.values
        known = next(
            path[:length] for length in range(len(path), -1, -1) if path[:length] in places
        )
        message = "".join(sign if sign.isprintable() else "?" for sign in _message(path, each))
        yield FileProblem(places[known], message)


def _message(path: ValuePath, error: ErrorDetails) -> str:
    *above, last = path or ("the file",)
    place = ".".join(map(str, above)) or "the file"
    match error["type"]:
        case "missing":
            return f"{place} has no {str(last)!r}, which it needs"
        case "extra_forbidden":
            keys = _keys_at(tuple(above))
            near = difflib.get_close_matches(str(last), keys, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(keys)}"
            return f"{place} has no key {str(last)[:64]!r}: {remedy}"
        case "bool_type":
            return f"{'.'.join(map(str, path))}: this is no yes or no: write true or false"
        case _:
            return f"{'.'.join(map(str, path)) or 'the file'}: {error['msg'].removeprefix(_PREFIX)}"


def _keys_at(path: ValuePath) -> list[str]:
    """Return the keys of the section at a path."""
    kind: Any = ToolHostFile
    for part in path:
        kind = (
            kind.model_fields[part].annotation
            if hasattr(kind, "model_fields")
            else get_args(kind)[-1]
        )
        if isinstance(kind, UnionType):
            kind = get_args(kind)[0]
    return list(kind.model_fields)


def _settings(file: ToolHostFile) -> HostSettings:
    host, tools = file.toolhost, file.tools
    return HostSettings(
        principals=tuple(_principal(name, each) for name, each in host.principals.items()),
        host=host.listen.host,
        port=host.listen.port,
        path=host.listen.path,
        allowed_hosts=frozenset(each.lower() for each in host.listen.allowed_hosts),
        max_body=host.listen.max_body,
        max_result=host.limits.result_bytes,
        files=FileSettings(
            max_read=host.limits.read_bytes,
            max_write=host.limits.write_bytes,
            max_memory=host.limits.memory_bytes,
            max_page=host.limits.result_bytes
            * 15
            // 16,  # The rest is for what stands around the page
            protected=tuple(host.protected),
        ),
        exec=_exec(tools, host.limits.result_bytes),
        urls=_urls(tools.url_policy),
        search=_search(tools.web_search),
        channels={name: _channel(each) for name, each in tools.message.channels.items()},
        mcp_servers=tuple(_server(name, each) for name, each in tools.mcp_servers.items()),
        audit_arguments=host.audit_arguments,
    )


def _principal(name: str, section: grammar.PrincipalSection) -> Principal:
    return Principal(
        name=name,
        workspace=section.workspace,
        globs=tuple(section.tools),
        token=section.token.secret if section.token else None,
        token_variable=section.token.variable if section.token else "",
        calls_per_minute=section.limits.calls_per_minute,
        max_concurrent=section.limits.concurrent,
    )


def _exec(tools: grammar.Tools, max_result: int) -> ExecSettings:
    return ExecSettings(
        enabled=tools.exec.enabled,
        network=tools.exec.network,
        allow=tuple(tools.exec.allow),
        deny=tuple(tools.exec.deny),
        default_seconds=tools.exec.default_timeout_s,
        max_seconds=tools.exec.max_timeout_s,
        max_spawned=tools.spawn.max_concurrent,
        max_shown=max_result - 512,  # The rest is for what stands around both streams
        environment=tools.exec.environment,
    )


def _urls(section: grammar.Urls) -> UrlPolicy:
    return UrlPolicy(
        ports=tuple(section.ports),
        allow_private=tuple(section.allow_private),
        allowed_domains=tuple(section.allowed_domains),
        blocked_domains=tuple(section.blocked_domains),
    )


def _search(section: grammar.WebSearch | None) -> SearchSettings | None:
    if section is None:
        return None
    return SearchSettings(
        section.endpoint, section.backend, section.api_key.secret if section.api_key else None
    )


def _channel(section: grammar.Channel) -> MessageChannel:
    if section.redis is not None:
        return StreamChannel(section.redis, section.stream or "")
    return WebhookChannel(section.webhook or "", section.token.secret if section.token else None)


def _server(name: str, section: grammar.Server) -> McpServerSettings:
    return McpServerSettings(
        name=name,
        command=(section.command, *section.args) if section.command else (),
        environment=section.env,
        url=section.url or "",
        headers=section.headers,
        internal_only=section.internal_only,
        call_seconds=section.timeout_s,
    )
