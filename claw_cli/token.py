"""``claw token AGENT``: the token by which the proxy knows an agent, for ``OPENAI_API_KEY=$(claw token AGENT)``."""

from __future__ import annotations

import difflib
import os
import sys
from typing import Annotated

import typer

from claw_cli.arguments import File
from claw_cli.compiled_tree import CompiledTree, find_tree
from claw_cli.screen import fail

_MAX_NAMES = 10


def token(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent's id; with count: name-0, name-1 …")],
    file: File = None,
) -> None:
    """Print an agent's token, which is its runner's API key.

    Standard output holds nothing else.

    Exit 0; 1 for a pod that was not compiled, 2 for an unknown agent and for wrong usage.
    """
    tree = find_tree(file, os.environ)
    if not tree.is_compiled:
        fail(tree.missing)
    if agent not in (agents := tree.agents()):
        fail(_unknown(agent, agents, tree), 2)
    value = tree.runner_env(agent).get("CLLAMA_TOKEN")
    if not value:
        fail(f"{tree.root / 'agents' / agent / 'env'} holds no token: {tree.remedy}")
    sys.stdout.write(f"{value}\n")


def _unknown(agent: str, agents: list[str], tree: CompiledTree) -> str:
    close = difflib.get_close_matches(agent, agents, n=1, cutoff=0.6)
    more = f", and {len(agents) - _MAX_NAMES} more" if len(agents) > _MAX_NAMES else ""
    listed = f"it has {', '.join(agents[:_MAX_NAMES]) or 'none'}{more}"
    return f"{tree.root} has no agent {agent!a}: {f'did you mean {close[0]!r}?' if close else listed}"
