"""``claw doctor``: one row for each thing that a pod needs, and a remedy if it is missing.

Rules. A row is ``ok``, ``note`` (the pod works without it) or ``missing`` (exit 1). Nothing is
written, and no key or token is printed. A file that can't be read is a row, never a traceback.
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
from claw_contract.whole_numbers import whole_number

_SECONDS = 2
_MAX_BYTES = 1024
_MAX_PORT = 65535
_TCP_LISTEN = "0A"  # the state of a listening socket in /proc/net/tcp


@dataclass(frozen=True)
class Listener:
    """An address to listen on; an empty host means all addresses of this machine."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL by which a process of this machine reaches it."""
        is_any = self.host in {"", "0.0.0.0", "::"}  # noqa: S104 - nothing is bound to it
        host = "127.0.0.1" if is_any else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def problem(self) -> str | None:
        """Return why nobody can listen here now, one clause; None if the port is free."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as attempt:
            # The proxy sets this, too: otherwise connections that have just ended keep the port.
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
    """Return the address of ``HOST:PORT`` or ``:PORT``; None for any other text."""
    host, _, port_text = text.rpartition(":")
    port = whole_number(port_text, _MAX_PORT)
    if not port:
        return None

    return Listener(host.removeprefix("[").removesuffix("]"), port)


def _get(url: str) -> tuple[int, object]:
    """Return status and JSON. Without an answer in HTTP and JSON they are 0 and None.

    An error has its status, and None.
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
    """Return a client that uses no proxy of the environment, and knows no TLS.

    ``build_opener`` would read this machine's CAs for TLS each time.
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
    """Return the name of the process that listens on a port; None if the system does not show it.

    Linux only: ``/proc/net/tcp`` has the socket's inode, and a descriptor of the process links to
    it.
    """
    sockets = _listening_sockets(port)
    if not sockets:
        return None

    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # the descriptor is closed by now, or another user's
            if str(descriptor.readlink()) in sockets:
                process = descriptor.parents[1]
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f"{name} (pid {process.name})"
    return None


def _listening_sockets(port: int) -> set[str]:
    """Return the sockets that listen on a port, as links of descriptors name them."""
    sockets: set[str] = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.exists():
            continue

        for line in table.read_text(encoding="ascii").splitlines()[1:]:  # after the heading
            fields = line.split()
            address, state, inode = fields[1], fields[3], fields[9]
            if state == _TCP_LISTEN and address.endswith(f":{port:04X}"):
                sockets.add(f"socket:[{inode}]")
    return sockets


type Status = Literal["ok", "note", "missing"]

MANIFEST = "pod-manifest.json"
_BASE_URLS = ("OPENAI_BASE_URL", "HTTPS_PROXY")
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Row:
    """One thing that was checked."""

    check: str
    status: Status
    detail: str
    remedy: str = ""
    """One clause; "" if nothing has to be done."""


@dataclass(frozen=True)
class Surroundings:
    """The pod, its tree and the environment, which the checks look at."""

    pod: Path
    """The pod file, which may be missing."""
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
    """Check that mitmproxy is installed where ``claw`` is."""
    try:
        mitmproxy_version = version("mitmproxy")
    except PackageNotFoundError:
        remedy = "pip install 'mitmproxy>=12.2.3,<13'"
        yield Row("programs", "missing", "mitmproxy is not installed beside claw", remedy)
        return

    detail = f"Python {platform.python_version()}, mitmproxy {mitmproxy_version}"
    yield Row("programs", "ok", detail)


def check_tree(at: Surroundings) -> Iterator[Row]:
    """Check the compiled tree, and each of its agents."""
    tree = at.tree
    name = "compiled tree"
    if not tree.is_compiled:
        remedy = tree.remedy
        if not at.pod.exists():
            remedy += "; `claw init NAME` makes a new pod"
        yield Row(name, "missing", f"there is none at {tree.root}", remedy)
        return

    manifest = tree.root / MANIFEST
    agents = _agents(at)
    if agents is None:
        detail = f"{manifest} is not one that claw compile wrote"
        yield Row(name, "missing", detail, tree.remedy)
        return

    newest_output = manifest if manifest.exists() else tree.context
    compiled_at = newest_output.stat().st_mtime
    detail = f"{tree.root}, {_age(time.time() - compiled_at)}, {count(len(agents), 'agent')}"
    if at.pod.exists() and at.pod.stat().st_mtime > compiled_at:
        remedy = f"run `claw compile {at.pod}`"
        yield Row(name, "note", f"{detail}; {at.pod} is newer", remedy)
    elif not agents:
        yield Row(name, "missing", detail, tree.remedy)
    else:
        yield Row(name, "ok", detail)

    for agent_id, agent in agents.items():
        yield _agent_row(tree, agent_id, agent)


def _agent_row(tree: CompiledTree, name: str, agent: _Agent) -> Row:
    check = f"agent {name}"
    is_by_hand = not (tree.root / "agents").is_dir()
    if is_by_hand:
        remedy = "give it the token of its metadata.json"
        return Row(check, "note", "no environment for its runner", remedy)

    env = tree.runner_env(name)
    if not env.get("CLLAMA_TOKEN"):
        file = tree.root / "agents" / name / "env"
        return Row(check, "missing", f"{file} holds no token", tree.remedy)

    tools = count(len(agent.tools), "tool")
    for variable in _BASE_URLS:
        url = env.get(variable)
        if url is not None and "@" not in url:  # a URL with "@" holds the token, and is not printed
            return Row(check, "ok", f"{variable}={url}, a token, {tools}")
    return Row(check, "ok", f"{agent.mode}, a token, {tools}")


def _agents(at: Surroundings) -> dict[str, _Agent] | None:
    """Return the agents of the tree by id; None if its manifest can't be read as one.

    Raise ``OSError``.
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
    """Check that at least one provider has a key: in ``providers.json``, or in the environment."""
    from pydantic import ValidationError

    from claw_contract.base import error_line
    from claw_contract.known_providers import provider_of
    from claw_contract.providers import ProviderEntry, Providers

    file = Path(at.environ.get("CLAW_AUTH_DIR") or at.tree.root / "auth") / "providers.json"
    providers: dict[str, ProviderEntry] = {}
    try:
        if file.exists():
            providers = Providers.model_validate_json(file.read_bytes()).providers
    except ValidationError as error:
        remedy = "compile the pod again, or correct the file"
        yield Row("provider keys", "missing", f"{file}: {error_line(error)}", remedy)
        return

    found: list[str] = []
    for name, provider in sorted(providers.items()):
        has_usable_key = any(key.state in {"ready", "cooldown"} for key in provider.keys)
        if provider.api_key or provider.auth == "none" or has_usable_key:
            found.append(f"{name} ({file})")
    for variable, content in sorted(at.environ.items()):
        if content and (provider_of(variable) or variable == "OLLAMA_BASE_URL"):
            found.append(variable)

    if found:
        yield Row("provider keys", "ok", ", ".join(found))
    else:
        remedy = (
            "set OPENAI_API_KEY, or your provider's variable, where the proxy runs; or in "
            ".env, and compile"
        )
        yield Row("provider keys", "missing", f"neither {file} nor this shell has one", remedy)


def check_ca(at: Surroundings) -> Iterator[Row]:
    """Check the pod's CA, if an agent's runner must trust it."""
    agents = _agents(at) if at.tree.is_compiled else None
    is_needed = any(agent.mode != "base-url" for agent in (agents or {}).values())
    if not is_needed:
        yield Row("CA", "ok", "not needed: every agent uses the base URL")
        return

    from claw_certs.status import ca_status  # slow to import

    directory = at.pod.parent / ".claw-ca"
    status = ca_status(directory, (), datetime.now(UTC), str(at.pod))
    for problem in status.problems:
        severity: Status = "missing" if problem.severity == "error" else "note"
        yield Row("CA", severity, problem.text, problem.remedy)
    if not status.problems:
        yield Row("CA", "ok", str(directory))


def check_state(at: Surroundings) -> Iterator[Row]:
    """Check where the proxy stores its state and its history."""
    from claw_state.url import File as StateFile
    from claw_state.url import parse_place

    place = at.environ.get("CLAW_STATE", "")
    try:
        where = parse_place(place)
    except ValueError as error:
        yield Row("state", "missing", f"CLAW_STATE: {error}", "correct it")
        return

    if not place:
        detail = "in memory: forgotten when the proxy stops"
        yield Row("state", "note", detail, "set CLAW_STATE=FILE to keep it")
    elif isinstance(where, StateFile):
        yield _writable("state", Path(where.path), "CLAW_STATE")
    else:
        yield Row("state", "ok", f"{where.shown}; `claw state` asks the server")

    history = at.environ.get("CLAW_SESSION_HISTORY_DIR")
    if history:
        yield _writable("history", Path(history), "CLAW_SESSION_HISTORY_DIR")
    else:
        yield Row("history", "note", "none is kept", "set CLAW_SESSION_HISTORY_DIR=DIR to keep it")


def _writable(check: str, path: Path, variable: str) -> Row:
    """Return a row about a file or directory that the proxy writes, or would create."""
    if path.is_file():
        needed = [path.parent, path]  # SQLite writes files beside its own
    else:
        needed = [next(each for each in (path, *path.parents) if each.exists())]

    is_writable = all(os.access(each, os.R_OK | os.W_OK) for each in needed)
    if is_writable and needed[0].is_dir():
        return Row(check, "ok", f"{path}, can be written")
    remedy = f"give yourself the right to, or name another by {variable}"
    return Row(check, "missing", f"{path} can't be written", remedy)


def check_listeners(at: Surroundings) -> Iterator[Row]:
    """Check the addresses of the proxy: it runs there, or they are free."""
    proxy: Listener | None = None
    for variable, default in (
        ("LISTEN_ADDR", "127.0.0.1:8080"),
        ("CLAW_PROXY_ADDR", "127.0.0.1:8082"),
    ):
        text = at.environ.get(variable) or default
        address = listener(text)
        if address is None:
            detail = f"{variable} is HOST:PORT or :PORT, not {text!a}"
            yield Row(variable, "missing", detail, "correct it")
        elif proxy is None and _is_proxy(address):
            proxy = address
            yield _proxy_row(address)
        else:
            yield _port_row(address, variable, proxy)

    if proxy is None:
        yield Row("proxy", "note", "does not run here", "run `claw proxy`, or `claw up`")


def _is_proxy(address: Listener) -> bool:
    return _get(f"{address.url}/health") == (HTTPStatus.OK, {"ok": True})


def _proxy_row(address: Listener) -> Row:
    status, _ = _get(f"{address.url}/ready")
    if status == HTTPStatus.OK:
        return Row("proxy", "ok", f"{address.url} is ready")

    detail = f"{address.url} runs, and is not ready ({status} of /ready)"
    return Row("proxy", "missing", detail, "the event 'not_ready' of its log has the reason")


def _port_row(address: Listener, variable: str, proxy: Listener | None) -> Row:
    """Return a row about a port where no proxy answers; it may be another port of the proxy."""
    check = f"port {address.port}"
    problem = address.problem()
    if problem is None:
        return Row(check, "ok", "free")

    # Equal texts name the same process.
    if proxy is not None and problem == proxy.problem():
        return Row(check, "ok", f"{problem}, which is the proxy")

    return Row(check, "missing", problem, f"free it, or set {variable} to another address")


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
