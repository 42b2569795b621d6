"""``claw proxy [--web] [--workers N] [-f POD] [MITMPROXY OPTIONS]``: mitmproxy with the addon.

Rules. It runs what ``mitmdump -s addons/cllama.py`` runs in a checkout, with the Python that runs
``claw``. If CLAW_CONTEXT_ROOT is not set, the proxy uses the compiled tree in the current directory
as it would in Compose: its context, its providers and keys, its ``cllama-env``, its secrets, and
the pod's CA. Variables that are set take precedence. With one worker the process becomes mitmproxy
itself; with several it becomes their supervisor (decision 0035).
"""

import os
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from claw_cli.arguments import REST, File
from claw_cli.compiled_tree import CONTEXT_ROOT, CompiledTree, find_tree, read_env
from claw_cli.screen import fail

# Python programs as text, because ``claw_cli`` imports neither claw_mediate nor mitmproxy.
_START = "from claw_mediate.mitm.listeners import run; run('{0}')"
_START_WORKERS = (
    "import mitmproxy.tools.dump, claw_mediate.mitm.addon; "
    "from claw_mediate.mitm.listeners import run_worker; "
    "from claw_mediate.workers.supervisor import supervise; supervise({0}, run_worker)"
)
"""It imports the addon before the supervisor forks, so that the workers share its memory."""
_AUTO = "auto"
_MAX_WORKERS = 64
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""The CPU quota and period of this container in microseconds; the quota is "max" if it has none."""
_SERVERLESS_OPTIONS = {"-h", "-n", "--no-server", "--version", "--options", "--commands"}
"""Options with which mitmproxy starts no server, and so needs no compiled tree."""


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
    has_server = _SERVERLESS_OPTIONS.isdisjoint(arguments)
    count = _count_workers(workers)
    if count > 1 and web:
        fail(
            f"--web shows the turns of one process, and there are {count} workers: "
            "leave one of them out",
            2,
        )

    is_context_in_options = any("cllama_context=" in argument for argument in arguments)
    is_context_named = is_context_in_options or bool(os.environ.get(CONTEXT_ROOT))
    if is_context_named and file is None:
        environment = dict(os.environ)
    else:
        tree = find_tree(file, os.environ)
        if has_server and not tree.is_compiled:
            fail(tree.missing)
        environment = proxy_environment(tree, os.environ)

    start = _START.format("mitmweb" if web else "mitmdump")
    if count > 1 and has_server:
        start = _START_WORKERS.format(count)

    # -P: no module of the current directory is imported in place of ours.
    script = resources.files("claw_cli") / "addons" / "cllama.py"
    command = [sys.executable, "-P", "-c", start, "-s", str(script), *arguments]

    # execve drops what is still buffered.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, command, environment)  # noqa: S606 - our own interpreter, no shell
    except OSError as error:
        fail(f"{sys.executable} can't be started: {error.strerror}")


def _count_workers(text: str) -> int:
    """Return the number of processes; exit 2 for any other text."""
    if text == _AUTO:
        return usable_cores()

    # A plain pattern: help is shown without the packages of the contract.
    is_number = re.fullmatch("[0-9]{1,9}", text) is not None
    if not is_number or not 0 < int(text) <= _MAX_WORKERS:
        fail(f"--workers takes a number from 1 to {_MAX_WORKERS}, or {_AUTO}, not {text!r}", 2)
    return int(text)


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its container's limit.

    A limit is rounded down: a worker too many would wait for the others.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1

    try:
        quota, period = CPU_LIMIT.read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # there is no limit ("max"), or no such file

    return min(cores, _MAX_WORKERS)


def proxy_environment(tree: CompiledTree, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a proxy for the tree; the variables of ``environ`` take precedence.

    Raise ``OSError``.
    """
    beside = tree.root.parent
    places = {
        "CLAW_AUTH_DIR": tree.root / "auth",
        # Outside of the tree, because a compile replaces everything in it.
        "CLAW_KEY_STATES_DIR": beside / ".claw-state" / "key-states",
    }
    optional = {
        "CLAW_SECRETS_DIR": tree.root / "secrets",
        "CLLAMA_CA": beside / ".claw-ca" / "private",
    }
    places |= {name: place for name, place in optional.items() if place.is_dir()}

    # Not resolved: the tree's directories are links that a compile exchanges.
    paths = {name: str(place.absolute()) for name, place in places.items()}
    return {
        **paths,
        **read_env(tree.root / "auth" / "env"),
        **environ,
        CONTEXT_ROOT: str(tree.context.absolute()),
    }
