"""``claw discover SERVICE``: ask an MCP server for its tools, and keep them as a snapshot
(docs/spec/mcp.md "Discovery").

Rules. A snapshot that differs is written over only with ``--update``. Nothing that is written or
printed holds a credential: what the server echoes of one is dots.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from claw_cli.arguments import AsJson, pod_file
from claw_cli.screen import count, fail, plain, print_json, print_lines
from claw_compile.descriptors.snapshot import (
    METADATA,
    SnapshotChange,
    UngrantableTool,
    build_snapshot,
    changed_origin,
    changed_tools,
    is_same,
    render_snapshot,
    server_of,
)
from claw_compile.diagnostics.report import as_text
from claw_compile.loading.files import MAX_BYTES
from claw_compile.output.write import replace_file
from claw_compile.snapshot_target import SnapshotTarget, TargetError, find_target
from claw_contract.base import JsonObject
from claw_contract.manifest import Auth, BasicAuth, BearerAuth, HeaderAuth
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mcp.channels import DiscoveryError, ServerCommand
from claw_mcp.discovery import SECONDS, Progress, ServerListing, discover
from claw_mcp.http_channel import HttpServer

_ENDED = 128  # Plus the number of the signal that ended the verb
_MAX_SERVER_TEXT = 200
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
Service = Annotated[str, typer.Argument(metavar="SERVICE", help="A service that is an MCP server.")]
PodFile = Annotated[
    Path | None,
    typer.Option(
        "-f", "--file", "--pod", metavar="POD", help="The pod file; default: claw-pod.yml."
    ),
]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Where the server is reached from here.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="The time for all of it.")
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Write nothing; exit 1 where the snapshot differs, or is missing."
    ),
]
Update = Annotated[bool, typer.Option("--update", help="Write over a snapshot that differs.")]


def discover_verb(  # noqa: PLR0913, PLR0917 - each an option of its own
    service: Service,
    file: PodFile = None,
    url: Url = None,
    timeout: Timeout = SECONDS,
    check: Check = False,
    update: Update = False,
    as_json: AsJson = False,
) -> None:
    """Ask an MCP server for its tools, and keep them as a snapshot.

    Exit 0; 1 for errors and for a snapshot that differs, 2 for an unknown service and for wrong
    usage.
    """
    if check and update:
        raise typer.BadParameter("--check writes nothing, and --update writes: choose one")
    target = _find(pod_file(None, file), service, url)
    is_there, previous = target.previous()
    if check and not is_there:
        fail(f"{service} has no snapshot {target.file}: run: claw discover {service}")
    result = _take(target, timeout, previous)
    status: Literal["new", "same", "changed"] = (
        "new" if not is_there else "same" if is_same(previous, result.document) else "changed"
    )
    is_written = status == "new" or (status == "changed" and update)
    if is_written:
        _write(target, result)
    _warn(service, result)
    if as_json:
        print_json(_data(target, result, previous, status, is_written=is_written), ascii_only=True)
    else:
        print_lines(_lines(target, result, previous, status, is_written=is_written))
    if status == "changed" and not is_written:
        fail(
            f"{service} is not as {target.file} has it: look at the difference, then: "
            f"claw discover {service} --update"
        )


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot before it is written, with warnings for the terminal."""

    document: JsonObject
    ungrantable: tuple[UngrantableTool, ...]
    warnings: tuple[str, ...]


def _find(pod: Path, service: str, url: str | None) -> SnapshotTarget:
    try:
        return find_target(pod, os.environ, service, url)
    except TargetError as error:
        sys.stderr.write(error.diagnostics)
        if str(error):
            fail(str(error), error.code)
        raise typer.Exit(error.code) from None


def _take(target: SnapshotTarget, seconds: float, previous: JsonObject | None) -> _Snapshot:
    headers = tuple(_header(target.auth))
    redactor = Redactor([*target.secrets, *(value for _, value in headers)])
    server = (
        ServerCommand(
            str(target.origin["command"]), target.command, target.environ, target.directory
        )
        if target.command
        else HttpServer(target.shown_url, target.url, headers)
    )
    try:
        with _progress(target.service) as progress:
            listing = asyncio.run(_until_signal(server, redactor, progress, seconds))
    except DiscoveryError as error:
        sys.stderr.write(f"error: {target.service}: {plain(redactor.text(str(error)))}\n")
        sys.stderr.write("".join(f"  | {plain(line)}\n" for line in error.output))
        raise typer.Exit(1) from None
    return _snapshot(target, listing, redactor, previous)


async def _until_signal(
    server: ServerCommand | HttpServer, redactor: Redactor, progress: Progress, seconds: float
) -> ServerListing:
    """Discover. A signal that ends this process ends the server first."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    caught: list[int] = []

    def end(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    client = {"name": "claw", "version": version("clawdapus")}
    try:
        return await discover(server, redactor, progress, client=client, seconds=seconds)
    except asyncio.CancelledError:
        if not caught:
            raise
        raise typer.Exit(_ENDED + caught[0]) from None


@contextmanager
def _progress(service: str) -> Iterator[Progress]:
    """Show on a terminal what is waited for."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda _step: None
        return
    with console.status(f"waiting for {service} to start") as shown:
        yield lambda step: shown.update(f"waiting for {service} {step}")


def _header(auth: Auth | None) -> Iterator[tuple[str, Secret]]:
    match auth:
        case BearerAuth(token=Secret() as token):
            yield "authorization", Secret(f"Bearer {token.reveal()}")
        case HeaderAuth(header=name, token=Secret() as token):
            yield name, token
        case BasicAuth(username=name, password=Secret() as password):
            from base64 import b64encode

            yield (
                "authorization",
                Secret(f"Basic {b64encode(f'{name}:{password.reveal()}'.encode()).decode()}"),
            )


def _snapshot(
    target: SnapshotTarget, listing: ServerListing, redactor: Redactor, previous: JsonObject | None
) -> _Snapshot:
    warnings: list[str] = []
    if listing.skipped_lines:
        warnings.append(
            f"{count(listing.skipped_lines, 'line')} on its standard output answered "
            "nothing, and were skipped"
        )
    tools = [
        _without_secrets(tool, f"the tool {_name(tool)!r}", redactor, warnings)
        for tool in listing.tools
    ]
    server = _without_secrets(listing.server, "the server's name", redactor, warnings)
    origin = _without_secrets(target.origin, "'mcp-stdio' of the pod file", redactor, warnings)
    server = {key: text[:_MAX_SERVER_TEXT] for key, text in server.items()}
    document, ungrantable = build_snapshot(
        tools, target.mcp_path, {**origin, "server": server}, previous
    )
    return _Snapshot(document, ungrantable, tuple(redactor.text(warning) for warning in warnings))


def _without_secrets(document: Any, what: str, redactor: Redactor, warnings: list[str]) -> Any:
    clear = json.loads(redactor.document(json.dumps(document).encode()))
    if clear != document:
        warnings.append(f"{what} holds a credential, or the value of a variable: it is redacted")
    return clear


def _name(tool: Any) -> str:
    return str(tool.get("name"))[:_MAX_SERVER_TEXT] if isinstance(tool, dict) else ""


def _write(target: SnapshotTarget, result: _Snapshot) -> None:
    content = render_snapshot(result.document)
    if len(content) > MAX_BYTES:
        fail(
            f"the snapshot of {target.service} has {len(content)} bytes, and a compile "
            f"reads {MAX_BYTES}: offer fewer tools"
        )
    target.file.parent.mkdir(exist_ok=True)
    if refused := replace_file(target.file, content):
        sys.stderr.write(as_text(refused))
        raise typer.Exit(1)


def _warn(service: str, result: _Snapshot) -> None:
    """Print the warnings, one line for each."""
    left_out = (
        f"the tool '{each.name}' can't be granted: {each.reason}" for each in result.ungrantable
    )
    sys.stderr.write(
        "".join(f"warning: {service}: {plain(text)}\n" for text in (*result.warnings, *left_out))
    )


def _lines(
    target: SnapshotTarget,
    result: _Snapshot,
    previous: JsonObject | None,
    status: str,
    *,
    is_written: bool,
) -> Iterator[str]:
    number, server = len(result.document["tools"]), server_of(result.document)
    of_server = f" of {plain(server)}" if server else ""
    yield f"{target.service}: {count(number, 'tool')}{of_server}"
    if status == "same":
        yield f"nothing has changed since {target.file}"
        return
    changes = changed_tools(previous, result.document)
    width = max((len(change.tool) for change in changes), default=0)
    yield from (_change_line(change, width) for change in changes)
    if status == "changed":
        origin = changed_origin(previous, result.document)
        yield from (_origin_line(name, previous, result.document) for name in origin)
        if not changes and not origin:
            yield "  ~ only the form of the file differs"
    if is_written:
        yield f"wrote {target.file}"


def _change_line(change: SnapshotChange, width: int) -> str:
    effects = " → ".join(
        each for each in dict.fromkeys((change.before, change.after)) if each is not None
    )
    parts = f"  ({', '.join(change.parts)})" if change.parts else ""
    return plain(f"  {_SIGNS[change.kind]} {change.tool:<{width}}  {effects}{parts}")


def _origin_line(name: str, previous: JsonObject | None, document: JsonObject) -> str:
    if name == "server":
        return plain(
            f"  ~ the server was {server_of(previous) or 'unknown'}, and is "
            f"{server_of(document) or 'unknown'}"
        )
    if name == "ungrantable":
        return "  ~ the tools that can't be granted are others"
    return f"  ~ '{plain(name)}' differs"


def _data(
    target: SnapshotTarget,
    result: _Snapshot,
    previous: JsonObject | None,
    status: str,
    *,
    is_written: bool,
) -> JsonObject:
    return {
        "service": target.service,
        "file": str(target.file),
        "status": status,
        "written": is_written,
        "server": result.document[METADATA]["server"],
        "tools": [tool["name"] for tool in result.document["tools"]],
        "changes": [
            {
                "tool": each.tool,
                "change": each.kind,
                "before": each.before,
                "after": each.after,
                "parts": list(each.parts),
            }
            for each in changed_tools(previous, result.document)
        ],
        "origin_changes": list(changed_origin(previous, result.document))
        if status == "changed"
        else [],
        "ungrantable": [{"name": each.name, "reason": each.reason} for each in result.ungrantable],
        "warnings": list(result.warnings),
    }
