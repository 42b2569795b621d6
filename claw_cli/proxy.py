"""``claw proxy [--web] [-f POD] [MITMPROXY OPTIONS]``: mitmdump or mitmweb, with the addon that is installed.

Rules. It is what ``mitmdump -s addons/cllama.py`` is from a checkout, of the environment that ``claw`` itself runs in. Where
CLAW_CONTEXT_ROOT is not set, the compiled tree here is used as Compose would: its context, its providers and keys, its
``cllama-env``, its secrets, and the pod's CA. A variable that is set beats what is found.
"""

import os
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Annotated

import typer

from claw_cli.arguments import REST, File
from claw_cli.compiled_tree import CONTEXT_ROOT, CompiledTree, find_tree, read_env
from claw_cli.screen import fail

_START = "import sys; from mitmproxy.tools.main import {0}; sys.argv[0] = '{0}'; {0}()"
_WITHOUT_A_TREE = {"-h", "-n", "--no-server", "--version", "--options", "--commands"}
"""Options with which mitmproxy serves nobody."""


def proxy(
    context: typer.Context,
    web: Annotated[bool, typer.Option("--web", help="Run mitmweb, which shows each turn in a browser.")] = False,
    file: File = None,
) -> None:
    """Run the proxy: mitmdump, or mitmweb, with the addon.

    Everything behind our own options is mitmproxy's: claw proxy -h lists it.

    Exit as mitmproxy does; 1 without a compiled tree, 2 for wrong usage.
    """
    arguments = context.meta[REST]
    tree = find_tree(file, os.environ)
    environment = dict(os.environ)
    names_context = bool(os.environ.get(CONTEXT_ROOT)) or any("cllama_context=" in each for each in arguments)
    if file is not None or not names_context:
        if not tree.is_compiled and _WITHOUT_A_TREE.isdisjoint(arguments):
            fail(tree.missing)
        environment = proxy_environment(tree, os.environ)
    start = _START.format("mitmweb" if web else "mitmdump")
    script = resources.files("claw_cli") / "addons" / "cllama.py"
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: no module of the current directory is imported in place of ours
    command = [sys.executable, "-P", "-c", start, "-s", str(script), *arguments]
    try:
        os.execve(sys.executable, command, environment)  # noqa: S606 - our own interpreter, no shell
    except OSError as error:
        fail(f"{sys.executable} can't be started: {error.strerror}")


def proxy_environment(tree: CompiledTree, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a proxy for ``tree``: what is found, then ``environ``, which wins. Raises ``OSError``."""
    beside = tree.root.parent
    optional = {"CLAW_SECRETS_DIR": tree.root / "secrets", "CLLAMA_CA": beside / ".claw-ca" / "private"}
    places = {
        **{name: place for name, place in optional.items() if place.is_dir()},
        "CLAW_AUTH_DIR": tree.root / "auth",
        # A compile replaces the tree, and with it whatever else stands in it.
        "CLAW_KEY_STATES_DIR": beside / ".claw-state" / "key-states",
    }
    # Not resolved: the tree's directories are links that a compile exchanges.
    paths = {name: str(place.absolute()) for name, place in places.items()}
    return {**paths, **read_env(tree.root / "auth" / "env"), **environ, CONTEXT_ROOT: str(tree.context.absolute())}
