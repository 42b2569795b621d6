"""``claw``: the verbs, put together."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from claw_cli.audit import audit_verbs
from claw_cli.certs import certs_verbs
from claw_cli.check import check
from claw_cli.compile import compile_verb
from claw_cli.explain import explain_verb
from claw_cli.init import init
from claw_cli.inspect import inspect_verb
from claw_cli.lock import lock
from claw_cli.plan import plan
from claw_cli.rotate import rotate
from claw_cli.schema import schema
from claw_cli.state import state_verbs
from claw_cli.up import PassesOn, down, up
from claw_compile.diagnostics.report import plain_streams

app = typer.Typer(
    name="claw",
    help="Governed tools for AI agents: what each agent may do is compiled, and what it does goes through its proxy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # what is printed is read in pipes and logs as well
)
app.command("init")(init)
app.command("check")(check)
app.command("compile")(compile_verb)
app.command("plan")(plan)
app.command("explain")(explain_verb)
app.command("inspect")(inspect_verb)
app.command("lock")(lock)
app.command("rotate")(rotate)
app.command("up", cls=PassesOn)(up)
app.command("down", cls=PassesOn)(down)
app.command("schema")(schema)
app.add_typer(state_verbs)
app.add_typer(audit_verbs)
app.add_typer(certs_verbs)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"claw {version('clawdapus')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Nothing is done before a verb."""


def main() -> None:
    """The entry point of the package. What can't be written or read is one line, and exit 1; a reader that left, none."""
    plain_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _end()
    except OSError as error:
        sys.stderr.write(f"error: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}\n")
        _end()


def _end() -> NoReturn:
    """Exit 1, and do not try again to write what can't be written."""
    with suppress(OSError):
        sys.stdout.close()
    sys.exit(1)
