"""``claw proxy [--web] [--workers N] [-f POD] [MITMPROXY OPTIONS]``: mitmdump or mitmweb, with the
addon that is installed.

Rules. It is what ``mitmdump -s addons/cllama.py`` is from a checkout, of the environment that
``claw`` itself runs in. Where CLAW_CONTEXT_ROOT is not set, the compiled tree here is used as
Compose would: its context, its providers and keys, its ``cllama-env``, its secrets, and the pod's
CA. A variable that is set beats what is found. With several workers the program is their supervisor
(decision 0035); with one it is mitmproxy itself.
"""

import os
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from claw_cli.arguments import REST, File
from claw_cli.compiled_tree import CONTEXT_ROOT, CompiledTree, find_tree, read_env
from claw_cli.screen import fail

_START = (
    "import sys; from claw_mediate.mitm.governance import log_to_stderr; from "
    "mitmproxy.tools.main import {0};"
    " log_to_stderr(); sys.argv[0] = '{0}'; {0}()"
)
_START_WORKERS = (
    "import mitmproxy.tools.dump, claw_mediate.mitm.addon; from claw_mediate.mitm.listeners "
    "import run_worker;"
    " from claw_mediate.workers.supervisor import supervise; supervise({0}, run_worker)"
)
_AUTO = "auto"
_MAX_WORKERS = 64
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""The quota and the period of this container, in microseconds; the quota is "max"
where there is none.
"""
_WITHOUT_A_TREE = {"-h", "-n", "--no-server", "--version", "--options", "--commands"}
"""Options with which mitmproxy serves nobody."""


def proxy(
    context: typer.Context,
    web: Annotated[
        bool, typer.Option("--web", help="Run mitmweb, which shows each turn in a browser.")
    ] = False,
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes that share the work; auto: one for each usable core.",
        ),
    ] = "1",
    file: File = None,
) -> None:
    """Run the proxy: mitmdump, or mitmweb, with the addon.

    Everything behind our own options is mitmproxy's: claw proxy -h lists it.

    Exit as mitmproxy does; 1 without a compiled tree, 2 for wrong usage.
    """
    arguments = context.meta[REST]
    count = _count_workers(workers)
    if count > 1 and web:
        fail(
            (
                f"--web shows the turns of one process, and there are {count} workers: leave "
                "one of them out"
            ),
            2,
        )
    tree = find_tree(file, os.environ)
    environment = dict(os.environ)
    names_context = bool(os.environ.get(CONTEXT_ROOT)) or any(
        "cllama_context=" in each for each in arguments
    )
    if file is not None or not names_context:
        if not tree.is_compiled and _WITHOUT_A_TREE.isdisjoint(arguments):
            fail(tree.missing)
        environment = proxy_environment(tree, os.environ)
    start = _START.format("mitmweb" if web else "mitmdump")
    if count > 1 and _WITHOUT_A_TREE.isdisjoint(arguments):
        start = _START_WORKERS.format(count)
    script = resources.files("claw_cli") / "addons" / "cllama.py"
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: no module of the current directory is imported in place of ours
    command = [sys.executable, "-P", "-c", start, "-s", str(script), *arguments]
    try:
        os.execve(sys.executable, command, environment)  # noqa: S606 - our own interpreter, no shell
    except OSError as error:
        fail(f"{sys.executable} can't be started: {error.strerror}")


def _count_workers(text: str) -> int:
    """Return the number of processes; exit for what is none."""
    if text == _AUTO:
        return usable_cores()
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= _MAX_WORKERS):
        fail(f"--workers takes a number from 1 to {_MAX_WORKERS}, or {_AUTO}, not {text!r}", 2)
    return int(text)


def usable_cores() -> int:
    """Return the cores that this process may use: by its affinity, and by the limit
    of its container, rounded down.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = CPU_LIMIT.read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # there is no limit ("max"), or no such file
    return min(cores, _MAX_WORKERS)


def proxy_environment(tree: CompiledTree, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a proxy for ``tree``: what is found, then ``environ``, which wins.

    Raises ``OSError``.
    """
    beside = tree.root.parent
    optional = {
        "CLAW_SECRETS_DIR": tree.root / "secrets",
        "CLLAMA_CA": beside / ".claw-ca" / "private",
    }
    places = {
        **{name: place for name, place in optional.items() if place.is_dir()},
        "CLAW_AUTH_DIR": tree.root / "auth",
        # A compile replaces the tree, and with it whatever else stands in it.
        "CLAW_KEY_STATES_DIR": beside / ".claw-state" / "key-states",
    }
    # Not resolved: the tree's directories are links that a compile exchanges.
    paths = {name: str(place.absolute()) for name, place in places.items()}
    return {
        **paths,
        **read_env(tree.root / "auth" / "env"),
        **environ,
        CONTEXT_ROOT: str(tree.context.absolute()),
    }
