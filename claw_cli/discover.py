"""``claw discover SERVICE``: ask an MCP server for its tools, and keep them as a snapshot.

Specification: docs/spec/mcp.md "Discovery".

Rules. A snapshot that differs is overwritten only with ``--update``. No credential is written or
printed: if the server echoes one, it becomes dots.
"""

import asyncio
import json
import os
import signal
import sys
from base64 import b64encode
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

_SIGNAL_EXIT = 128  # the exit code is this plus the signal's number, as in a shell
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

    snapshot = _take(target, timeout, previous)
    status = _compare(snapshot, previous, is_there=is_there)
    is_written = status == "new" or (status == "changed" and update)
    if is_written:
        _write(target, snapshot)

    outcome = _Outcome(target, snapshot, previous, status, is_written)
    _warn(service, snapshot)
    if as_json:
        print_json(_data(outcome), ascii_only=True)
    else:
        print_lines(_lines(outcome))

    if status == "changed" and not is_written:
        fail(
            f"{service} is not as {target.file} has it: look at the difference, then: "
            f"claw discover {service} --update"
        )


type _Status = Literal["new", "same", "changed"]


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot before it is written, with warnings for the terminal."""

    document: JsonObject
    ungrantable: tuple[UngrantableTool, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Outcome:
    """All that the verb reports."""

    target: SnapshotTarget
    snapshot: _Snapshot
    previous: JsonObject | None
    """The snapshot on disk; None if there is none, or none that can be read."""
    status: _Status
    is_written: bool


def _compare(snapshot: _Snapshot, previous: JsonObject | None, *, is_there: bool) -> _Status:
    if not is_there:
        return "new"
    return "same" if is_same(previous, snapshot.document) else "changed"


def _find(pod: Path, service: str, url: str | None) -> SnapshotTarget:
    try:
        return find_target(pod, os.environ, service, url)
    except TargetError as error:
        sys.stderr.write(error.diagnostics)
        if str(error):
            fail(str(error), error.code)

        raise typer.Exit(error.code) from None


def _take(target: SnapshotTarget, seconds: float, previous: JsonObject | None) -> _Snapshot:
    """Ask the server; exit 1 with its last output if it does not list its tools."""
    headers = tuple(_header(target.auth))
    redactor = Redactor([*target.secrets, *(value for _, value in headers)])

    server: ServerCommand | HttpServer
    if target.command:
        shown_command = str(target.origin["command"])
        server = ServerCommand(shown_command, target.command, target.environ, target.directory)
    else:
        server = HttpServer(target.shown_url, target.url, headers)

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
    """Discover the server's tools. A signal that ends this process ends the server first."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    caught: list[int] = []

    def end(number: int) -> None:
        caught.append(number)
        task.cancel()

    # SIGINT needs no handler: asyncio.run cancels the task for it.
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)

    client = {"name": "claw", "version": version("clawdapus")}
    try:
        return await discover(server, redactor, progress, client=client, seconds=seconds)
    except asyncio.CancelledError:
        if not caught:
            raise
        raise typer.Exit(_SIGNAL_EXIT + caught[0]) from None


@contextmanager
def _progress(service: str) -> Iterator[Progress]:
    """Show on a terminal what the verb waits for."""
    from rich.console import Console  # slow to import

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda _step: None
        return

    with console.status(f"waiting for {service} to start") as shown:
        yield lambda step: shown.update(f"waiting for {service} {step}")


def _header(auth: Auth | None) -> Iterator[tuple[str, Secret]]:
    """Yield the header that authenticates us, name and value; nothing without ``auth``."""
    match auth:
        case BearerAuth(token=Secret() as token):
            yield "authorization", Secret(f"Bearer {token.reveal()}")
        case HeaderAuth(header=name, token=Secret() as token):
            yield name, token
        case BasicAuth(username=name, password=Secret() as password):
            credentials = f"{name}:{password.reveal()}".encode()
            yield "authorization", Secret(f"Basic {b64encode(credentials).decode()}")


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

    # Cut only now: the beginning of a secret would not be recognized as one.
    short_server = {key: text[:_MAX_SERVER_TEXT] for key, text in server.items()}
    document, ungrantable = build_snapshot(
        tools, target.mcp_path, {**origin, "server": short_server}, previous
    )
    return _Snapshot(document, ungrantable, tuple(redactor.text(warning) for warning in warnings))


def _without_secrets(document: Any, what: str, redactor: Redactor, warnings: list[str]) -> Any:
    """Return a JSON document with dots for secrets; add a warning about ``what`` if it had one."""
    clear = json.loads(redactor.document(json.dumps(document).encode()))
    if clear != document:
        warnings.append(f"{what} holds a credential, or the value of a variable: it is redacted")
    return clear


def _name(tool: Any) -> str:
    return str(tool.get("name"))[:_MAX_SERVER_TEXT] if isinstance(tool, dict) else ""


def _write(target: SnapshotTarget, snapshot: _Snapshot) -> None:
    content = render_snapshot(snapshot.document)
    if len(content) > MAX_BYTES:
        fail(
            f"the snapshot of {target.service} has {len(content)} bytes, and a compile "
            f"reads {MAX_BYTES}: offer fewer tools"
        )

    target.file.parent.mkdir(exist_ok=True)
    refused = replace_file(target.file, content)
    if refused:
        sys.stderr.write(as_text(refused))
        raise typer.Exit(1)


def _warn(service: str, snapshot: _Snapshot) -> None:
    """Print the warnings, one line for each."""
    for warning in snapshot.warnings:
        sys.stderr.write(f"warning: {service}: {plain(warning)}\n")
    for tool in snapshot.ungrantable:
        reason = f"the tool '{tool.name}' can't be granted: {tool.reason}"
        sys.stderr.write(f"warning: {service}: {plain(reason)}\n")


def _lines(outcome: _Outcome) -> Iterator[str]:
    document = outcome.snapshot.document
    server = server_of(document)
    of_server = f" of {plain(server)}" if server else ""
    yield f"{outcome.target.service}: {count(len(document['tools']), 'tool')}{of_server}"

    if outcome.status == "same":
        yield f"nothing has changed since {outcome.target.file}"
        return

    changes = changed_tools(outcome.previous, document)
    width = max((len(change.tool) for change in changes), default=0)
    for change in changes:
        yield _change_line(change, width)

    if outcome.status == "changed":
        origin = changed_origin(outcome.previous, document)
        for name in origin:
            yield _origin_line(name, outcome.previous, document)
        if not changes and not origin:
            yield "  ~ only the form of the file differs"

    if outcome.is_written:
        yield f"wrote {outcome.target.file}"


def _change_line(change: SnapshotChange, width: int) -> str:
    # "read → write", or one effect alone: an added tool has none before, a removed tool has none
    # after, and an effect that stayed is printed once.
    effects = dict.fromkeys((change.before, change.after))
    arrow = " → ".join(effect for effect in effects if effect is not None)
    parts = f"  ({', '.join(change.parts)})" if change.parts else ""
    return plain(f"  {_SIGNS[change.kind]} {change.tool:<{width}}  {arrow}{parts}")


def _origin_line(name: str, previous: JsonObject | None, document: JsonObject) -> str:
    if name == "server":
        before = server_of(previous) or "unknown"
        after = server_of(document) or "unknown"
        return plain(f"  ~ the server was {before}, and is {after}")
    if name == "ungrantable":
        return "  ~ the tools that can't be granted are others"
    return f"  ~ '{plain(name)}' differs"


def _data(outcome: _Outcome) -> JsonObject:
    document = outcome.snapshot.document
    origin_changes: list[str] = []
    if outcome.status == "changed":
        origin_changes += changed_origin(outcome.previous, document)

    return {
        "service": outcome.target.service,
        "file": str(outcome.target.file),
        "status": outcome.status,
        "written": outcome.is_written,
        "server": document[METADATA]["server"],
        "tools": [tool["name"] for tool in document["tools"]],
        "changes": [
            {
                "tool": change.tool,
                "change": change.kind,
                "before": change.before,
                "after": change.after,
                "parts": list(change.parts),
            }
            for change in changed_tools(outcome.previous, document)
        ],
        "origin_changes": origin_changes,
        "ungrantable": [
            {"name": tool.name, "reason": tool.reason} for tool in outcome.snapshot.ungrantable
        ],
        "warnings": list(outcome.snapshot.warnings),
    }
