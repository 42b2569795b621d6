"""Load: the one phase that reads the disk. The pod file, ``.env``, descriptors, contracts, the master secret.

Rules. Every path of a pod is relative to the pod file, and stays in its directory after symlinks. Only regular files are
opened (a FIFO would hang the compile). What can't be read is a diagnostic at the place that names the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claw_compile import codes
from claw_compile.descriptors.descriptor import Described, read_descriptor
from claw_compile.diagnostics.diagnostic import Checked, Diagnostic, Span, quoted, start_of
from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.grammar.read_pod import read_pod
from claw_compile.identity import SHORTEST_MASTER
from claw_compile.reading.dotenv import read_dotenv
from claw_compile.reading.json_reader import read_json
from claw_compile.reading.node import MapNode, ScalarNode
from claw_compile.reading.source import decode
from claw_compile.reading.variables import Variables
from claw_compile.reading.yaml_reader import read_yaml
from claw_contract.secret import Secret

MASTER_VARIABLE = "CLAW_MASTER_SECRET"
MASTER_FILE = ".claw-master"
DISCOVERED = ".claw-discovered"


@dataclass(frozen=True)
class Loaded:
    """All that the other phases need; none of them opens a file. A descriptor that can't be read is ``None``."""

    pod: PodSpec
    described: Mapping[str, Described | None]
    contracts: Mapping[str, bytes]
    variables: Variables = field(repr=False)
    master: Secret | None = None


def load(pod_file: Path, environ: Mapping[str, str]) -> Checked[Loaded]:
    """The pod and the files that it names."""
    file = str(pod_file)
    data = _read(pod_file, start_of(file), f"the pod file {quoted(file)}")
    if data.value is None:
        return Checked(None, data.diagnostics)
    source = decode(file, data.value)
    if source.value is None:
        return Checked(None, source.diagnostics)
    document = read_yaml(source.value)
    variables = _variables(pod_file.parent, environ)
    found = [*document.diagnostics, *variables.diagnostics]
    if document.value is None or variables.value is None:
        return Checked(None, tuple(found))
    return _files(_Pod(pod_file, found, variables.value), document.value)


@dataclass(frozen=True)
class _Pod:
    file: Path
    found: list[Diagnostic]
    variables: Variables

    @property
    def directory(self) -> Path:
        return self.file.parent


def _files(pod: _Pod, document: MapNode) -> Checked[Loaded]:
    spec = read_pod(str(pod.file), document, pod.variables.lookup)
    pod.found.extend(spec.diagnostics)
    assert spec.value is not None
    services = spec.value.services
    described: dict[str, Described | None] = {each.name.text: None for each in services if each.names_descriptor}
    described.update((name, _descriptor(pod, path)) for name, path in _descriptor_paths(pod, services))
    contracts = {
        agent.name.text: text
        for agent in spec.value.agents
        if agent.agent is not None and (text := _contract(pod, agent.agent)) is not None
    }
    master = _master(pod, spec.value)
    return Checked(Loaded(spec.value, described, contracts, pod.variables, master), tuple(pod.found))


def _variables(directory: Path, environ: Mapping[str, str]) -> Checked[Variables]:
    path = directory / ".env"
    if not path.is_file():
        return Checked(Variables(environ, {}))
    data = _read(path, start_of(str(path)), "'.env'")
    source = decode(str(path), data.value) if data.value is not None else None
    if source is None or source.value is None:
        hidden = [_without_text(found) for found in source.diagnostics] if source else []
        return Checked(Variables(environ, {}), (*data.diagnostics, *hidden))
    values = read_dotenv(source.value, environ)
    return Checked(Variables(environ, values.value or {}), values.diagnostics)


def _without_text(found: Diagnostic) -> Diagnostic:
    """``.env`` holds secrets: its lines are never shown."""
    at = found.span
    return found.code.at(Span(at.file, at.line, at.column, at.end_column), found.message)


def _descriptor_paths(pod: _Pod, services: tuple[ServiceSpec, ...]) -> Iterator[tuple[str, ScalarNode]]:
    """Service → its descriptor's path: ``describe-file``, else the snapshot of ``claw discover``."""
    for service in services:
        name = service.name.text
        snapshot = f"{DISCOVERED}/{name}.claw-describe.json"
        if service.describe_file is not None:
            yield name, service.describe_file
        elif (
            not service.names_descriptor
            and "/" not in name
            and name.isprintable()
            and (pod.directory / snapshot).exists()
        ):
            yield name, ScalarNode(snapshot, service.name.span)


def _descriptor(pod: _Pod, path: ScalarNode) -> Described | None:
    data = _inside(pod, path, "the descriptor")
    if data is None:
        return None
    # A path that came from the environment is named as it is written.
    file = str(pod.directory / path.shown)
    source = decode(file, data)
    root = read_json(source.value) if source.value else None
    pod.found.extend((*source.diagnostics, *(root.diagnostics if root else ())))
    if root is None or root.value is None:
        return None
    described = read_descriptor(file, root.value)
    pod.found.extend(described.diagnostics)
    return described.value


def _contract(pod: _Pod, path: ScalarNode) -> bytes | None:
    data = _inside(pod, path, "the contract")
    if data is None:
        return None
    text = decode(str(pod.directory / path.shown), data)
    pod.found.extend(text.diagnostics)
    return data if text.value is not None else None


def _master(pod: _Pod, spec: PodSpec) -> Secret | None:
    """The pod's master secret, if there is one already; only a compile makes it."""
    text, origin = pod.variables.lookup(MASTER_VARIABLE), MASTER_VARIABLE
    path = pod.directory / MASTER_FILE
    at = spec.name.span if spec.name else start_of(spec.file)
    if text is None:
        if not path.exists():
            return None
        data = _read(path, start_of(str(path)), MASTER_FILE)
        pod.found.extend(data.diagnostics)
        if data.value is None:
            return None
        text, origin, at = data.value.decode("ascii", errors="ignore").strip(), MASTER_FILE, start_of(str(path))
    if len(text) < SHORTEST_MASTER or not text.isascii():
        pod.found.append(codes.BAD_MASTER_SECRET.at(at, f"{origin} is not {SHORTEST_MASTER} ASCII characters or more"))
        return None
    return Secret(text)


def _inside(pod: _Pod, path: ScalarNode, what: str) -> bytes | None:
    """The file that ``path`` names, when it stays in the pod's directory."""
    root = Path(os.path.realpath(pod.directory))
    try:
        target = Path(os.path.realpath(root / path.text))
    except ValueError:
        pod.found.append(codes.UNREADABLE_FILE.at(path.span, f"{what} {quoted(path.shown)} is not a path"))
        return None
    if not target.is_relative_to(root):
        message = f"{what} {quoted(path.shown)} leads out of the pod's directory"
        pod.found.append(codes.PATH_ESCAPES_POD.at(path.span, message))
        return None
    data = _read(target, path.span, f"{what} {quoted(path.shown)}")
    pod.found.extend(data.diagnostics)
    return data.value


def _read(path: Path, at: Span, what: str) -> Checked[bytes]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            help_text = f"name the file: {path / 'claw-pod.yml'}" if (path / "claw-pod.yml").is_file() else None
            return Checked(None, (codes.UNREADABLE_FILE.at(at, f"{what} is a directory", help_text=help_text),))
        if not stat.S_ISREG(mode):
            return Checked(None, (codes.UNREADABLE_FILE.at(at, f"{what} is not a regular file"),))
        return Checked(path.read_bytes())
    except FileNotFoundError:
        return Checked(None, (codes.UNREADABLE_FILE.at(at, f"{what} does not exist"),))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a path"
        return Checked(None, (codes.UNREADABLE_FILE.at(at, f"{what} can't be read: {why}"),))
