"""Paths that no agent may get: the compiled tree, the master secret, ``.env``, files of secrets, the proxy's own files.

A path is judged by where it leads, after symlinks; one of a directory above brings all that is below it. Paths are given by
mounts, volumes that are bound to a path, ``volumes_from``, watched directories, contexts of a build, secrets and configs.
"""

from __future__ import annotations

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
from claw_compile.loading.leak_scan.inputs import mounted_names
from claw_compile.parsing.interpolation import Lookup, interpolate
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode

_PRIVATE = (".claw-runtime", ".claw-master", ".claw-ca/private", ".env")
_FOR_AGENTS = "claw"
"""``.claw-runtime/agents/<id>/claw`` holds what an agent may read."""
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
    """The private paths of one pod."""

    pod: PodSpec
    files: Files
    lookup: Lookup

    def check_surfaces(self) -> Iterator[Diagnostic]:
        """Yield an error for every surface that leads to what is private."""
        for owner in self.pod.owners:
            for surface in own_entries(owner.surfaces):
                if surface.scheme in _OWN_SURFACES:
                    is_host = surface.scheme == "host"
                    exposure = (
                        _Exposure(surface.span, surface.target)
                        if is_host
                        else self._volume(surface.target, surface.span)
                    )
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
            places = ((name, _real(self.files.root / expand_home(name, self.lookup))) for name in self._names())
            held = next((name for name, place in places if _exposes(target, place)), None)
            if held is not None and (exposure.with_below or target.is_relative_to(_real(self.files.root / held))):
                yield codes.PRIVATE_MOUNT.at(exposure.at, f"this mount gives the agent {quote(held)}")

    def _names(self) -> tuple[str, ...]:
        return (*_PRIVATE, *(secret.reference.text for secret in self.pod.secrets if secret.source == "file"))

    def _mounts(self, body: MapNode, document: MapNode, seen: frozenset[str]) -> Iterator[_Exposure]:
        for item in _items(body.value("volumes")):
            if (path := bind_source(item, self.lookup)) is not None:
                yield _Exposure(item.span, path)
            else:
                yield self._volume(_volume_source(item, self.lookup), item.span)
        for item in _items(body.value("volumes_from")):
            yield from self._volumes_from(item, document, seen)

    def _volumes_from(self, item: Node, document: MapNode, seen: frozenset[str]) -> Iterator[_Exposure]:
        text = fill_in(item, self.lookup) or ""
        name = text.partition(":")[0]
        if name in {_PROXY, "container"}:
            what = "the volumes of its proxy" if name == _PROXY else f"the volumes of {quote(text)}, whatever they are"
            yield _Exposure(item.span, name=what)
        elif name not in seen:
            services = document.value("services")
            body = services.value(name) if isinstance(services, MapNode) else None
            for exposure in self._mounts(body, document, seen | {name}) if isinstance(body, MapNode) else ():
                yield _Exposure(item.span, exposure.path, exposure.name)

    def _volume(self, name: str, at: Span) -> _Exposure:
        """Return the exposure of a named volume, which may be a directory of the host or one of the proxy's own."""
        volumes = self.pod.document.value("volumes")
        declared = volumes.value(name) if isinstance(volumes, MapNode) else None
        real, options = None, None
        if isinstance(declared, MapNode):
            real, options = fill_in(declared.value("name"), self.lookup), declared.value("driver_opts")
        if _PROXY_VOLUME.fullmatch(real or name):
            return _Exposure(at, name=f"{quote(name)}, a volume of its proxy")
        device = fill_in(options.value("device"), self.lookup) if isinstance(options, MapNode) else None
        return _Exposure(at, device or "")

    def _other_keys(self, body: MapNode) -> Iterator[_Exposure]:
        develop, build, pid = body.value("develop"), body.value("build"), fill_in(body.value("pid"), self.lookup) or ""
        if pid.startswith(("service:", "container:")):
            # Their environment stands in /proc.
            yield _Exposure(
                next(each.value.span for each in body.entries if each.key.text == "pid"),
                name=f"the processes of {quote(pid)}, and their environment",
            )
        for item in _items(develop.value("watch") if isinstance(develop, MapNode) else None):
            node = item.value("path") if isinstance(item, MapNode) else None
            action = fill_in(item.value("action"), self.lookup) if isinstance(item, MapNode) else None
            if node is not None and action is not None and action.startswith("sync"):
                yield _Exposure(node.span, fill_in(node, self.lookup) or "")
        contexts = build.value("additional_contexts") if isinstance(build, MapNode) else None
        for entry in contexts.entries if isinstance(contexts, MapNode) else ():
            yield _Exposure(entry.value.span, _local(fill_in(entry.value, self.lookup) or ""), with_below=False)
        for item in _items(contexts):
            yield _Exposure(item.span, _local((fill_in(item, self.lookup) or "").partition("=")[2]), with_below=False)

    def _mounted_secrets(self, body: MapNode) -> Iterator[_Exposure]:
        build = body.value("build")
        inherited_defaults = {
            "secrets": list(mounted_names(body.value("secrets"))),
            "configs": list(mounted_names(body.value("configs"))),
        }
        inherited_defaults["secrets"] += mounted_names(build.value("secrets") if isinstance(build, MapNode) else None)
        for section, names in inherited_defaults.items():
            declared = self.pod.document.value(section)
            for name in names:
                one = declared.value(name.text) if isinstance(declared, MapNode) else None
                if isinstance(one, MapNode):
                    yield _Exposure(name.span, fill_in(one.value("file"), self.lookup) or "")
                elif section == "secrets" and _PROXY_SECRET.fullmatch(name.text):
                    yield _Exposure(name.span, name=f"{quote(name.text)}, a secret of its proxy")


def _items(node: Node | None) -> tuple[Node, ...]:
    return tuple(node.items) if isinstance(node, ListNode) else ()


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
        return _path(source.text, lookup) if is_bind and isinstance(source, ScalarNode) else None
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


def _path(text: str, lookup: Lookup) -> str | None:
    return interpolate(text, lookup).text or None
