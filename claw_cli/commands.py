"""The command classes of ``claw``: a group that imports a verb when it is called, and verbs that pass arguments on."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

REST = "claw.rest"
"""The key of ``context.meta`` under which the arguments for another program stand."""


class Verb(NamedTuple):
    """A verb as ``claw --help`` lists it; ``target`` is ``module:attribute`` below ``claw_cli``, a function or a group."""

    target: str
    help: str
    command_class: type[TyperCommand] = TyperCommand


class LazyGroup(TyperGroup):
    """Commands that are known by name and help line, and imported when one is called."""

    verbs: dict[str, Verb]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the imported command in place of its stub."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub and load(str(name), self.verbs[str(name)]), rest


def load(name: str, verb: Verb) -> Any:
    """Import a verb and return its command."""
    module, _, attribute = verb.target.partition(":")
    target = getattr(import_module(f"claw_cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=verb.command_class)(target)
    return typer.main.get_command(single)


class PassthroughCommand(TyperCommand):
    """A verb that passes what stands behind ``--`` on to Docker Compose."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before ``--``; keep the rest in ``ctx.meta``."""
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[REST] = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage with the arguments that are passed on."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


class LeadingOptionsCommand(TyperCommand):
    """A verb whose own options come first, but for flags; everything else is passed on unread, in its order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse our own options; keep the rest in ``ctx.meta``."""
        flags = {name for each in self.params if getattr(each, "is_flag", False) for name in each.opts}
        valued = {name for each in self.params for name in each.opts} - flags
        own = [argument for argument in args if argument in flags]
        rest = [argument for argument in args if argument not in flags]
        while rest and (rest[0] == "--help" or rest[0].partition("=")[0] in valued):
            taken = 2 if rest[0] in valued else 1
            own, rest = [*own, *rest[:taken]], rest[taken:]
        ctx.meta[REST] = tuple(rest)
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage with the arguments that are passed on."""
        return [*super().collect_usage_pieces(ctx), "[MITMPROXY OPTIONS]"]
