"""``claw``: the verbs, put together."""

from __future__ import annotations

import typer

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
    help="Governed tools for AI agents: compile pods, and check them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("compile")(compile_verb)
app.command("check")(check)
app.command("lock")(lock)
app.command("rotate")(rotate)
app.add_typer(state_verbs)
app.command("plan")(plan)
app.command("explain")(explain_verb)
app.command("init")(init)
app.command("inspect")(inspect_verb)
app.command("schema")(schema)
app.command("up", cls=PassesOn)(up)
app.command("down", cls=PassesOn)(down)


@app.callback()
def _root() -> None:
    """Governed tools for AI agents."""


def main() -> None:
    """The entry point of the package."""
    plain_streams()
    app()
