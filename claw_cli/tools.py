"""``claw tools serve|describe|check``: the tools host (docs/spec/tools-host.md)."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from claw_cli.screen import fail, print_lines
from claw_tools.describe import describe, report_tools
from claw_tools.host import Host
from claw_tools.provider import ToolProvider, load_providers
from claw_tools.serve import choose_principal, serve_http, serve_stdio
from claw_tools.settings import DEFAULT_FILE, HostSettings, SettingsError, read_settings

tools_verbs = typer.Typer(
    name="tools", add_completion=False, rich_markup_mode=None, no_args_is_help=True
)
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The configuration.")]
Principal = Annotated[
    str, typer.Option("--principal", metavar="NAME", help="One principal, where there are several.")
]
Seconds = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, metavar="SECONDS", help="Time for servers to list their tools."
    ),
]


@tools_verbs.callback()
def tools() -> None:
    """Serve files, shell, memory and web to agents, over MCP.

    Exit 0; 1 for errors, 2 for wrong usage.
    """


@tools_verbs.command("serve")
def serve(
    config: Config = DEFAULT_FILE,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve one principal over standard input and output.")
    ] = False,
    principal: Principal = "",
) -> None:
    """Serve the tools over HTTP, or over standard input and output.

    Exit 0 when it is stopped; 1 for settings that can't be used, 2 for wrong usage.
    """
    if principal and not stdio:
        raise typer.BadParameter(
            "over HTTP the token says who the principal is: --principal goes with --stdio"
        )

    with _exit_on_error():
        settings, providers = _read(config)
        if stdio:
            serve_stdio(settings, providers, principal)
        else:
            serve_http(settings, providers)


@tools_verbs.command("describe")
def describe_verb(
    config: Config = DEFAULT_FILE,
    principal: Principal = "",
    offline: Annotated[
        bool, typer.Option("--offline", help="Start no MCP server, and leave its tools out.")
    ] = False,
    seconds: Seconds = 60.0,
) -> None:
    """Print the descriptor of the tools, which `claw compile` takes.

    Exit 0; 1 for errors, 2 for wrong usage.
    """
    with _exit_on_error():
        settings, providers = _read(config)
        if principal:
            settings = replace(settings, principals=(choose_principal(settings, principal),))

        async def run() -> str:
            host = Host(settings, _report_failure, providers)
            return await describe(host, seconds, is_offline=offline)

        sys.stdout.write(asyncio.run(run()))


@tools_verbs.command("check")
def check(config: Config = DEFAULT_FILE) -> None:
    """Report every mistake of the configuration, and say of each tool whether it is there.

    Exit 0; 1 for errors, and for a tool that is asked for and can't be had, 2 for wrong usage.
    """
    with _exit_on_error():
        settings, providers = _read(config)

        async def run() -> tuple[list[str], bool]:
            host = Host(settings, _report_failure, providers)
            try:
                await host.list_providers()
                return report_tools(host)
            finally:
                await host.close()

        lines, is_sound = asyncio.run(run())

    print_lines(lines)
    raise typer.Exit(0 if is_sound else 1)


def _read(config: Path) -> tuple[HostSettings, list[ToolProvider]]:
    providers = load_providers()
    namespaces = frozenset(provider.namespace for provider in providers)
    return read_settings(config, os.environ, namespaces), providers


def _report_failure(_kind: str, members: dict[str, object]) -> None:
    """Print why a server can't list its tools; ``members`` are those of an event of the log."""
    if members.get("state") == "failed":
        sys.stderr.write(f"{members.get('server')}: {members.get('reason')}\n")


@contextmanager
def _exit_on_error() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        sys.stderr.writelines(f"error: {line}\n" for line in str(error).splitlines())
        raise typer.Exit(1) from None
    except ValueError as error:
        fail(str(error))
