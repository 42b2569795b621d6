"""``claw``: the table of its verbs, and its entry point.

A verb's module is imported only when the verb is called, so that ``claw --help`` is quick.
"""

import io
import sys
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from claw_cli.arguments import REST


class Verb(NamedTuple):
    """A verb as ``claw --help`` lists it."""

    target: str
    """``module:attribute`` below ``claw_cli``: a function, or a group of commands."""
    help: str
    command_class: type[TyperCommand] = TyperCommand
    """The parser of a function's arguments; a group has commands of its own."""


class LazyGroup(TyperGroup):
    """A group that knows its commands by name and help line, and imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        # Typer finds a stub, which knows only the verb's name and help (``VERBS``). It finds None
        # while a shell completes the name.
        name, stub, rest = super().resolve_command(ctx, args)
        command = load(str(name), VERBS[str(name)]) if stub else stub
        return name, command, rest


def load(name: str, verb: Verb) -> Any:
    """Import a verb, and return its command."""
    module, _, attribute = verb.target.partition(":")
    target = getattr(import_module(f"claw_cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)

    # Typer makes commands of the functions of an app only, so the function gets one.
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=verb.command_class)(target)
    return typer.main.get_command(single)


class PassthroughCommand(TyperCommand):
    """A verb that wraps another program: it stores the arguments after ``--`` in ``ctx.meta``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[REST] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


class LeadingOptionsCommand(TyperCommand):
    """A verb that wraps another program.

    It takes its own options first (flags anywhere), and stores all other arguments, in order, in
    ``ctx.meta``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags: set[str] = set()
        options_with_value: set[str] = set()
        for param in self.params:
            if getattr(param, "is_flag", False):
                flags.update(param.opts)
            else:
                options_with_value.update(param.opts)

        own = [argument for argument in args if argument in flags]
        rest = [argument for argument in args if argument not in flags]

        # An option that the other program has as well, such as -f, is ours only before its first
        # argument. "-f FILE" are two arguments, "--file=FILE" is one.
        while rest:
            is_own = rest[0] == "--help" or rest[0].partition("=")[0] in options_with_value
            if not is_own:
                break

            length = 2 if rest[0] in options_with_value else 1
            own += rest[:length]
            del rest[:length]

        ctx.meta[REST] = tuple(rest)
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[MITMPROXY OPTIONS]"]


VERBS = {
    "init": Verb("init:init", "Make a new pod that compiles, in a directory of its name."),
    "check": Verb("check:check", "Report every mistake of a pod; write nothing."),
    "compile": Verb("compile:compile_verb", "Write what each agent may do, and what runs the pod."),
    "plan": Verb("plan:plan", "List who would gain or lose a tool, and which files would change."),
    "explain": Verb("explain:explain_verb", "Say why an agent may call a tool, or may not."),
    "inspect": Verb(
        "inspect:inspect_verb", "Show all that is compiled of one service, or of one agent."
    ),
    "discover": Verb(
        "discover:discover_verb", "Ask an MCP server for its tools, and keep them as a snapshot."
    ),
    "lock": Verb("lock:lock", "Write down which tools there are, so that none changes unseen."),
    "token": Verb("token:token", "Print an agent's token, which is its runner's API key."),
    "rotate": Verb("rotate:rotate", "Give an agent a new token, from the next compile on."),
    "proxy": Verb(
        "proxy:proxy", "Run the proxy: mitmdump, or mitmweb, with the addon.", LeadingOptionsCommand
    ),
    "up": Verb("up:up", "Compile a pod, and run it through Docker Compose.", PassthroughCommand),
    "down": Verb(
        "up:down", "Stop a pod, and remove its containers and networks.", PassthroughCommand
    ),
    "mcp-stdio": Verb(
        "mcp_stdio:mcp_stdio",
        "Run a stdio MCP server, and serve it over HTTP at /mcp.",
        PassthroughCommand,
    ),
    "tools": Verb("tools:tools_verbs", "Serve files, shell, memory and web to agents, over MCP."),
    "doctor": Verb("doctor:doctor", "Show what is there, what is missing, and the remedy."),
    "schema": Verb("init:schema", "Print the JSON Schema of pod files, for editors."),
    "state": Verb("state:state_verbs", "Show what is kept of each agent, or forget it."),
    "audit": Verb(
        "audit:audit_verbs", "Show what agents did: turns, calls, failures, tokens, cost."
    ),
    "certs": Verb("certs:certs_verbs", "Create, rotate and show the pod's CA."),
}

app = typer.Typer(
    name="claw",
    cls=LazyGroup,
    help=(
        "Governed tools for AI agents: what each agent may do is compiled, and what it does "
        "goes through its proxy."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # what is printed is read in pipes and logs as well
)
for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.help)(lambda: None)  # a stub: LazyGroup loads the verb


def _version(wanted: bool) -> None:
    if not wanted:
        return

    from importlib.metadata import version

    sys.stdout.write(f"claw {version('clawdapus')}\n")
    raise typer.Exit


@app.callback()
def _root(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Take the options before a verb."""


def main() -> None:
    """Run ``claw``.

    If a file can't be read or written, print one line and exit 1. If the reader of standard output
    has left, exit 1 without a line.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks becomes "?", and no traceback.
            stream.reconfigure(errors="replace")

    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            name = f"{error.filename}: " if error.filename else ""
            sys.stderr.write(f"error: {name}{error.strerror or error}\n")

        # Else the interpreter would flush standard output at its end, and print a second error.
        with suppress(OSError):
            sys.stdout.close()
        sys.exit(1)
