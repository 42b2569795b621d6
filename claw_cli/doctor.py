"""``claw doctor``: one row for each thing that a pod needs, and the remedy for each
that is missing.

Rules. A row is ``ok``, ``note`` (it works without) or ``missing`` (exit 1). Nothing is written, and
no value of a key or a token is printed. A file that can't be read is a row, never a traceback.
"""

import errno
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    OpenerDirector,
    UnknownHandler,
)

import msgspec
import typer

from claw_cli.arguments import AsJson, File, pod_file
from claw_cli.compiled_tree import CompiledTree, find_tree
from claw_cli.screen import count, plain, print_json, print_lines

_SECONDS = 2
_MAX_BYTES = 1024
_LISTENS = "0A"  # TCP_LISTEN, as /proc/net/tcp has it


@dataclass(frozen=True)
class Listener:
    """An address of this machine; an empty host is all of them."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in {"", "0.0.0.0", "::"} else self.host  # noqa: S104 - nothing is bound to it
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def problem(self) -> str | None:
        """Return why nobody can listen here now, one clause; None where the port is free."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((self.host, self.port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return f"taken by {_process(self.port) or 'a process that is not shown to you'}"
                return f"{self.host or 'it'} can't be listened on: {error.strerror or error}"
            except UnicodeError:
                return f"{self.host!a} is no host"
        return None


def listener(text: str) -> Listener | None:
    """Return the address that ``HOST:PORT`` or ``:PORT`` names; None where it names none."""
    host, _, port = text.rpartition(":")
    if not (port.isdecimal() and port.isascii() and 0 < int(port) < 65536):  # noqa: PLR2004 - a TCP port
        return None
    return Listener(host.removeprefix("[").removesuffix("]"), int(port))


def _get(url: str) -> tuple[int, object]:
    """Return status and JSON; 0 and None where nobody answers in HTTP and JSON.

    No proxy of the environment is asked.
    """
    try:
        with _http_client().open(url, timeout=_SECONDS) as response:
            return response.status, json.loads(response.read(_MAX_BYTES))
    except HTTPError as error:
        with error:
            return error.code, None
    except (OSError, ValueError, HTTPException, RecursionError):
        return 0, None


def _http_client() -> OpenerDirector:
    """Return a client without proxies and TLS, for which ``build_opener`` would
    read the CAs of this machine each time.
    """
    client = OpenerDirector()
    for handler in (
        HTTPHandler,
        HTTPDefaultErrorHandler,
        HTTPErrorProcessor,
        HTTPRedirectHandler,
        UnknownHandler,
    ):
        client.add_handler(handler())
    return client


def _process(port: int) -> str | None:
    """Return the process that listens on a port; None where this system does not show it to us."""
    files = [file for file in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if file.exists()]
    fields = [
        line.split() for file in files for line in file.read_text(encoding="ascii").splitlines()[1:]
    ]
    inodes = (
        each[9] for each in fields if each[3] == _LISTENS and each[1].endswith(f":{port:04X}")
    )
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with suppress(OSError):  # it is closed by now, or somebody else's
            if str(descriptor.readlink()) in sockets:
                process = descriptor.parents[1]
                return (
                    f"{(process / 'comm').read_text('utf-8', 'replace').strip()} (pid "
                    f"{process.name})"
                )
    return None


type Status = Literal["ok", "note", "missing"]

MANIFEST = "pod-manifest.json"
_BASE_URLS = ("OPENAI_BASE_URL", "HTTPS_PROXY")
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Row:
    """One thing that was checked; ``remedy`` is one clause, and empty where nothing
    is to be done.
    """

    check: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Surroundings:
    pod: Path
    tree: CompiledTree
    environ: dict[str, str]


type Check = Callable[[Surroundings], Iterator[Row]]


class _Agent(msgspec.Struct):
    mode: str = "base-url"
    tools: list[Any] = []


class _Manifest(msgspec.Struct):
    agents: dict[str, _Agent] = {}


def doctor(file: File = None, as_json: AsJson = False) -> None:
    """Show what is there, what is missing, and the remedy.

    Exit 0; 1 when something is missing that the proxy or its runners need, 2 for wrong usage.
    """
    surroundings = Surroundings(pod_file(None, file), find_tree(file, os.environ), dict(os.environ))
    rows: list[Row] = []
    for name, check in CHECKS.items():
        try:
            rows += check(surroundings)
        except OSError as error:
            detail = f"{error.filename or name}: {error.strerror or error}"
            rows.append(Row(name, "missing", detail, "make it readable for you"))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        width = max(len(row.check) for row in rows)
        for row in rows:
            remedy = f": {row.remedy}" if row.remedy else ""
            print_lines([plain(f"{row.status:<7}  {row.check:<{width}}  {row.detail}{remedy}")])
    raise typer.Exit(1 if any(row.status == "missing" for row in rows) else 0)


def check_programs(_: Surroundings) -> Iterator[Row]:
    try:
        yield Row(
            "programs",
            "ok",
            f"Python {platform.python_version()}, mitmproxy {version('mitmproxy')}",
        )
    except PackageNotFoundError:
        remedy = "pip install 'mitmproxy>=12.2.3,<13'"
        yield Row("programs", "missing", "mitmproxy is not installed beside claw", remedy)


def check_tree(at: Surroundings) -> Iterator[Row]:
    tree, manifest = at.tree, at.tree.root / MANIFEST
    if not tree.is_compiled:
        remedy = (
            tree.remedy if at.pod.exists() else f"{tree.remedy}; `claw init NAME` makes a new pod"
        )
        yield Row("compiled tree", "missing", f"there is none at {tree.root}", remedy)
        return
    if (agents := _agents(at)) is None:
        yield Row(
            "compiled tree",
            "missing",
            f"{manifest} is not one that claw compile wrote",
            tree.remedy,
        )
        return
    compiled = (manifest if manifest.exists() else tree.context).stat().st_mtime
    detail = f"{tree.root}, {_age(time.time() - compiled)}, {count(len(agents), 'agent')}"
    if at.pod.exists() and at.pod.stat().st_mtime > compiled:
        yield Row(
            "compiled tree", "note", f"{detail}; {at.pod} is newer", f"run `claw compile {at.pod}`"
        )
    else:
        yield Row(
            "compiled tree", "ok" if agents else "missing", detail, "" if agents else tree.remedy
        )
    for name, agent in agents.items():
        yield _agent_row(tree, name, agent)


def _agent_row(tree: CompiledTree, name: str, agent: _Agent) -> Row:
    if not (tree.root / "agents").is_dir():  # a tree that was written by hand
        return Row(
            f"agent {name}",
            "note",
            "no environment for its runner",
            "give it the token of its metadata.json",
        )
    env = tree.runner_env(name)
    if not env.get("CLLAMA_TOKEN"):
        file = tree.root / "agents" / name / "env"
        return Row(f"agent {name}", "missing", f"{file} holds no token", tree.remedy)
    at = next(
        (f"{each}={env[each]}" for each in _BASE_URLS if "@" not in env.get(each, "@")), agent.mode
    )
    return Row(f"agent {name}", "ok", f"{at}, a token, {count(len(agent.tools), 'tool')}")


def _agents(at: Surroundings) -> dict[str, _Agent] | None:
    """Return the agents of the tree by id; None where its manifest is not one of ours.

    Raises ``OSError``.
    """
    names = at.tree.agents()
    try:
        manifest = msgspec.json.decode((at.tree.root / MANIFEST).read_bytes(), type=_Manifest)
    except FileNotFoundError:
        manifest = _Manifest()  # a tree that was written by hand
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return {name: manifest.agents.get(name, _Agent()) for name in names}


def check_keys(at: Surroundings) -> Iterator[Row]:
    from pydantic import ValidationError

    from claw_contract.base import error_line
    from claw_contract.known_providers import provider_of
    from claw_contract.providers import Providers

    file = Path(at.environ.get("CLAW_AUTH_DIR") or at.tree.root / "auth") / "providers.json"
    try:
        providers = (
            Providers.model_validate_json(file.read_bytes()).providers if file.exists() else {}
        )
    except ValidationError as error:
        remedy = "compile the pod again, or correct the file"
        yield Row("provider keys", "missing", f"{file}: {error_line(error)}", remedy)
        return
    keyed = [
        name
        for name, each in sorted(providers.items())
        if each.api_key
        or each.auth == "none"
        or any(key.state in {"ready", "cooldown"} for key in each.keys)
    ]
    names = sorted(name for name, value in at.environ.items() if value)
    variables = [name for name in names if provider_of(name) or name == "OLLAMA_BASE_URL"]
    if keyed or variables:
        yield Row(
            "provider keys", "ok", ", ".join((*(f"{name} ({file})" for name in keyed), *variables))
        )
    else:
        remedy = (
            "set OPENAI_API_KEY, or your provider's variable, where the proxy runs; or in "
            ".env, and compile"
        )
        yield Row("provider keys", "missing", f"neither {file} nor this shell has one", remedy)


def check_ca(at: Surroundings) -> Iterator[Row]:
    agents = _agents(at) if at.tree.is_compiled else None
    if not any(agent.mode != "base-url" for agent in (agents or {}).values()):
        yield Row("CA", "ok", "not needed: every agent uses the base URL")
        return
    from claw_certs.status import ca_status

    directory = at.pod.parent / ".claw-ca"
    status = ca_status(directory, (), datetime.now(UTC), str(at.pod))
    for problem in status.problems:
        yield Row(
            "CA", "missing" if problem.severity == "error" else "note", problem.text, problem.remedy
        )
    if not status.problems:
        yield Row("CA", "ok", str(directory))


def check_state(at: Surroundings) -> Iterator[Row]:
    from claw_state.url import File as StateFile
    from claw_state.url import parse_place

    named = at.environ.get("CLAW_STATE", "")
    try:
        where = parse_place(named)
    except ValueError as error:
        yield Row("state", "missing", f"CLAW_STATE: {error}", "correct it")
        return
    if not named:
        yield Row(
            "state",
            "note",
            "in memory: forgotten when the proxy stops",
            "set CLAW_STATE=FILE to keep it",
        )
    elif isinstance(where, StateFile):
        yield _writable("state", Path(where.path), "CLAW_STATE")
    else:
        yield Row("state", "ok", f"{where.shown}; `claw state` asks the server")
    if history := at.environ.get("CLAW_SESSION_HISTORY_DIR"):
        yield _writable("history", Path(history), "CLAW_SESSION_HISTORY_DIR")
    else:
        yield Row("history", "note", "none is kept", "set CLAW_SESSION_HISTORY_DIR=DIR to keep it")


def _writable(check: str, path: Path, variable: str) -> Row:
    nearest = next(each for each in (path, *path.parents) if each.exists())
    needed = [path.parent, path] if path.is_file() else [nearest]
    if all(os.access(each, os.R_OK | os.W_OK) for each in needed) and needed[0].is_dir():
        return Row(check, "ok", f"{path}, can be written")
    remedy = f"give yourself the right to, or name another by {variable}"
    return Row(check, "missing", f"{path} can't be written", remedy)


def check_listeners(at: Surroundings) -> Iterator[Row]:
    base: Listener | None = None
    for variable, default in (
        ("LISTEN_ADDR", "127.0.0.1:8080"),
        ("CLAW_PROXY_ADDR", "127.0.0.1:8082"),
    ):
        text = at.environ.get(variable) or default
        if (address := listener(text)) is None:
            yield Row(
                variable, "missing", f"{variable} is HOST:PORT or :PORT, not {text!a}", "correct it"
            )
            continue
        if base is None and _get(f"{address.url}/health") == (200, {"ok": True}):  # a proxy of ours
            base = address
            status, _ = _get(f"{address.url}/ready")
            if status == HTTPStatus.OK:
                yield Row("proxy", "ok", f"{address.url} is ready")
            else:
                detail = f"{address.url} runs, and is not ready ({status} of /ready)"
                yield Row(
                    "proxy", "missing", detail, "the event 'not_ready' of its log has the reason"
                )
        elif (problem := address.problem()) is None:
            yield Row(f"port {address.port}", "ok", "free")
        elif base is not None and problem == base.problem():
            yield Row(f"port {address.port}", "ok", f"{problem}, which is the proxy")
        else:
            yield Row(
                f"port {address.port}",
                "missing",
                problem,
                f"free it, or set {variable} to another address",
            )
    if base is None:
        yield Row("proxy", "note", "does not run here", "run `claw proxy`, or `claw up`")


CHECKS: dict[str, Check] = {
    "programs": check_programs,
    "compiled tree": check_tree,
    "provider keys": check_keys,
    "CA": check_ca,
    "state": check_state,
    "proxy": check_listeners,
}


def _age(seconds: float) -> str:
    """Return an age in its largest unit.

    >>> _age(7300), _age(0.2)
    ('2 hours old', 'new')
    """
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{count(int(seconds // length), unit)} old"
    return "new"
