"""``claw``: the verbs, put together. A verb's module is imported when the verb is called, so that help is there at once."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from claw_cli.commands import LazyGroup, LeadingOptionsCommand, PassthroughCommand, Verb

VERBS = {
    "init": Verb("init:init", "Make a new pod that compiles, in a directory of its name."),
    "check": Verb("check:check", "Report every mistake of a pod; write nothing."),
    "compile": Verb("compile:compile_verb", "Write what each agent may do, and what runs the pod."),
    "plan": Verb("plan:plan", "List who would gain or lose a tool, and which files would change."),
    "explain": Verb("explain:explain_verb", "Say why an agent may call a tool, or may not."),
    "inspect": Verb("inspect:inspect_verb", "Show all that is compiled of one service, or of one agent."),
    "lock": Verb("lock:lock", "Write down which tools there are, so that none changes unseen."),
    "token": Verb("token:token", "Print an agent's token, which is its runner's API key."),
    "rotate": Verb("rotate:rotate", "Give an agent a new token, from the next compile on."),
    "proxy": Verb("proxy:proxy", "Run the proxy: mitmdump, or mitmweb, with the addon.", LeadingOptionsCommand),
    "up": Verb("up:up", "Compile a pod, and run it through Docker Compose.", PassthroughCommand),
    "down": Verb("up:down", "Stop a pod, and remove its containers and networks.", PassthroughCommand),
    "doctor": Verb("doctor:doctor", "Show what is there, what is missing, and the remedy."),
    "schema": Verb("schema:schema", "Print the JSON Schema of pod files, for editors."),
    "state": Verb("state:state_verbs", "Show what is kept of each agent, or forget it."),
    "audit": Verb("audit:audit_verbs", "Show what agents did: turns, calls, failures, tokens, cost."),
    "certs": Verb("certs:certs_verbs", "Create, rotate and show the pod's CA."),
}


class _Verbs(LazyGroup):
    verbs = VERBS


app = typer.Typer(
    name="claw",
    cls=_Verbs,
    help="Governed tools for AI agents: what each agent may do is compiled, and what it does goes through its proxy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # what is printed is read in pipes and logs as well
)
for _name, _verb in VERBS.items():
    app.command(_name, help=_verb.help)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"claw {version('clawdapus')}\n")
        raise typer.Exit


@app.callback()
def _root(
    *,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Do nothing before a verb."""


def main() -> None:
    """Run ``claw``. A file that can't be read or written is one line and exit 1; a reader that left, no line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what the terminal has no characters for
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
    """Exit 1 without another attempt to write what can't be written."""
    with suppress(OSError):
        sys.stdout.close()
    sys.exit(1)
