"""Paths that no agent may get: the compiled tree, the master secret, ``.env``, files of secrets, the proxy's own files.

A path is judged by where it leads, after symlinks; one of a directory above brings all that is below it. Paths are given by
mounts, volumes that are bound to a path, ``volumes_from``, watched directories, contexts of a build, secrets and configs.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Span, quote
from claw_compile.grammar.pod import PodSpec, own_entries
from claw_compile.loading.build_context import fill_in
from claw_compile.loading.files import Files
from claw_compile.parsing.environment import Lookup, interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, child, entries_of, items_of

_PRIVATE = (".claw-runtime", ".claw-master", ".claw-ca/private", ".env")
_FOR_AGENTS = "claw"  # ``.claw-runtime/agents/<id>/claw`` holds what an agent may read
_PROXY = "cllama"
_PROXY_VOLUME = re.compile(r"(.*[_-])?claw-(history|state)", re.DOTALL)
_PROXY_SECRET = re.compile(r"claw-.*", re.DOTALL)
_OWN_SURFACES = ("volume", "host")


@dataclass(frozen=True)
class _Exposure:
    """Something that a container gets. ``path``: of the host, from the directory of its file. ``name``: of what is the proxy's.

    ``with_below``: all that is below the path is given too, whatever .dockerignore says.
    """

    at: Span
    path: str = ""
    name: str = ""
    with_below: bool = True


@dataclass(frozen=True)
class PrivatePaths:
    pod: PodSpec
    files: Files
    lookup: Lookup

    def check_surfaces(self) -> Iterator[Diagnostic]:
        """Yield an error for every surface that leads to what is private."""
        for owner in self.pod.owners:
            for surface in own_entries(owner.surfaces):
                if surface.scheme in _OWN_SURFACES:
                    host = _Exposure(surface.span, surface.target)
                    exposure = host if surface.scheme == "host" else self._volume(surface.target, surface.span)
                    yield from self._check(exposure, "")

    def check_service(self, body: MapNode, document: MapNode, directory: str) -> Iterator[Diagnostic]:
        """Yield an error for every key of an agent's service, or of one that it extends, that leads to what is private."""
        for exposure in (*self._mounts(body, document, frozenset()), *self._other_keys(body)):
            yield from self._check(exposure, directory)
        for exposure in self._mounted_secrets(body):
            yield from self._check(exposure, "")

    def _check(self, exposure: _Exposure, directory: str) -> Iterator[Diagnostic]:
        if exposure.name:
            yield codes.PRIVATE_MOUNT.at(exposure.at, f"this gives the agent {exposure.name}")
        elif exposure.path:
            target = _real(self.files.root / posixpath.join(directory, expand_home(exposure.path, self.lookup)))
            secrets = (secret.reference.text for secret in self.pod.secrets if secret.source == "file")
            names = (*_PRIVATE, *secrets)
            places = ((name, _real(self.files.root / expand_home(name, self.lookup))) for name in names)
            held = next((name for name, place in places if _exposes(target, place)), None)
            if held is not None and (exposure.with_below or target.is_relative_to(_real(self.files.root / held))):
                yield codes.PRIVATE_MOUNT.at(exposure.at, f"this mount gives the agent {quote(held)}")

    def _mounts(self, body: MapNode, document: MapNode, seen: frozenset[str]) -> Iterator[_Exposure]:
        for item in items_of(body.value("volumes")):
            if (path := bind_source(item, self.lookup)) is not None:
                yield _Exposure(item.span, path)
            else:
                yield self._volume(_volume_source(item, self.lookup), item.span)
        for item in items_of(body.value("volumes_from")):
            yield from self._volumes_from(item, document, seen)

    def _volumes_from(self, item: Node, document: MapNode, seen: frozenset[str]) -> Iterator[_Exposure]:
        text = fill_in(item, self.lookup) or ""
        name = text.partition(":")[0]
        if name in {_PROXY, "container"}:
            what = "the volumes of its proxy" if name == _PROXY else f"the volumes of {quote(text)}, whatever they are"
            yield _Exposure(item.span, name=what)
        elif name not in seen:
            body = child(document, "services", name)
            for exposure in self._mounts(body, document, seen | {name}) if isinstance(body, MapNode) else ():
                yield _Exposure(item.span, exposure.path, exposure.name)

    def _volume(self, name: str, at: Span) -> _Exposure:
        declared = child(self.pod.document, "volumes", name)
        if _PROXY_VOLUME.fullmatch(fill_in(child(declared, "name"), self.lookup) or name):
            return _Exposure(at, name=f"{quote(name)}, a volume of its proxy")
        return _Exposure(at, fill_in(child(declared, "driver_opts", "device"), self.lookup) or "")

    def _other_keys(self, body: MapNode) -> Iterator[_Exposure]:
        pid_node = body.value("pid")
        pid = fill_in(pid_node, self.lookup) or ""
        if pid_node is not None and pid.startswith(("service:", "container:")):
            # Their environment stands in /proc.
            yield _Exposure(pid_node.span, name=f"the processes of {quote(pid)}, and their environment")
        for item in items_of(child(body, "develop", "watch")):
            node, action = child(item, "path"), fill_in(child(item, "action"), self.lookup)
            if node is not None and action is not None and action.startswith("sync"):
                yield _Exposure(node.span, fill_in(node, self.lookup) or "")
        contexts = child(body, "build", "additional_contexts")
        for entry in entries_of(contexts):
            yield _Exposure(entry.value.span, _local(fill_in(entry.value, self.lookup) or ""), with_below=False)
        for item in items_of(contexts):
            yield _Exposure(item.span, _local((fill_in(item, self.lookup) or "").partition("=")[2]), with_below=False)

    def _mounted_secrets(self, body: MapNode) -> Iterator[_Exposure]:
        mounted = (
            *(("secrets", name) for node in (body, body.value("build")) for name in mounted_names(child(node, "secrets"))),
            *(("configs", name) for name in mounted_names(body.value("configs"))),
        )
        for section, name in mounted:
            declared = child(self.pod.document, section, name.text)
            if isinstance(declared, MapNode):
                yield _Exposure(name.span, fill_in(declared.value("file"), self.lookup) or "")
            elif section == "secrets" and _PROXY_SECRET.fullmatch(name.text):
                yield _Exposure(name.span, name=f"{quote(name.text)}, a secret of its proxy")


def _local(context: str) -> str:
    """Return the directory that a build context is; "" for an image, a service, or another machine."""
    return "" if "://" in context else context


def _exposes(target: Path, private: Path) -> bool:
    if private.is_relative_to(target):
        return True
    if not target.is_relative_to(private):
        return False
    inside = target.relative_to(private).parts
    return not (inside[:1] == ("agents",) and inside[2:3] == (_FOR_AGENTS,))


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def expand_home(path: str, lookup: Lookup) -> str:
    """Expand ``~`` as Compose does: the home of who runs it."""
    home = lookup("HOME")
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def bind_source(item: Node, lookup: Lookup) -> str | None:
    """Return the host path of a volume, short form or long; None for a named volume."""
    if isinstance(item, MapNode):
        kind, source = item.value("type"), item.value("source")
        is_bind = isinstance(kind, ScalarNode) and kind.text == "bind"
        return interpolate(source.text, lookup).text or None if is_bind and isinstance(source, ScalarNode) else None
    if not isinstance(item, ScalarNode):
        return None
    source_text, colon, _ = interpolate(item.text, lookup).text.partition(":")
    return source_text if colon and source_text.startswith((".", "/", "~")) else None


def _volume_source(item: Node, lookup: Lookup) -> str:
    """Return the name of a named volume; "" for what has none."""
    if isinstance(item, MapNode):
        return fill_in(item.value("source"), lookup) or ""
    source, colon, _ = (fill_in(item, lookup) or "").partition(":")
    return source if colon else ""


def mounted_names(node: Node | None) -> Iterator[ScalarNode]:
    """Return the names in a service's ``secrets`` or ``configs``, short or long form."""
    for item in items_of(node):
        source = item.value("source") if isinstance(item, MapNode) else item
        if isinstance(source, ScalarNode):
            yield source
