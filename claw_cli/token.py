"""``claw token AGENT``: print an agent's credential at the proxy.

Its runner uses it as API key: ``OPENAI_API_KEY=$(claw token AGENT)``.
"""

import difflib
import os
import sys

from claw_cli.arguments import AgentId, File
from claw_cli.compiled_tree import find_tree
from claw_cli.screen import fail, names_in_short


def token(agent: AgentId, file: File = None) -> None:
    """Print an agent's token, which is its runner's API key.

    Standard output holds nothing else.

    Exit 0; 1 for a pod that was not compiled, 2 for an unknown agent and for wrong usage.
    """
    tree = find_tree(file, os.environ)
    if not tree.is_compiled:
        fail(tree.missing)

    agents = tree.agents()
    if agent not in agents:
        close = difflib.get_close_matches(agent, agents, n=1, cutoff=0.6)
        hint = f"it has {names_in_short(agents) or 'none'}"
        if close:
            hint = f"did you mean {close[0]!r}?"
        fail(f"{tree.root} has no agent {agent!a}: {hint}", 2)

    credential = tree.runner_env(agent).get("CLLAMA_TOKEN")
    if not credential:
        fail(f"{tree.root / 'agents' / agent / 'env'} holds no token: {tree.remedy}")

    sys.stdout.write(f"{credential}\n")
