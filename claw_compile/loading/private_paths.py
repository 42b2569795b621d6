"""Paths that no agent may get: the compiled tree, the master secret, ``.env``, files of secrets,
the proxy's own files.

A path is judged by where it leads, after symlinks; one of a directory above brings all that is
below it. Paths are given by mounts, volumes that are bound to a path, ``volumes_from``, watched
directories, contexts of a build, secrets and configs.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Span, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, own_entries
from claw_compile.loading.build_context import fill_in
from claw_compile.loading.files import Files
from claw_compile.parsing.environment import Lookup, interpolate
from claw_compile.parsing.node import MapNode, Node, ScalarNode, child, entries_of, items_of

_PRIVATE = (".claw-runtime", ".claw-master", ".claw-ca/private", ".env")
_FOR_AGENTS = "claw"  # ``.claw-runtime/agents/<id>/claw`` holds what an agent may read
_PROXY = "cllama"
_PROXY_VOLUME = re.compile(r"(.*[_-])?claw-(history|state)", re.DOTALL)
_PROXY_SECRET = re.compile(r"claw-.*", re.DOTALL)
_HOST_DIRECTORIES = {
    *("/", "/dev", "/etc", "/proc", "/root", "/run", "/sys"),
    *("/var", "/var/lib", "/var/lib/docker", "/var/run"),
}


@dataclass(frozen=True)
class ComposeService:
    """A service as one file has it: the ``file`` ("" for the pod's own), its name
    there, and the place that names it.
    """

    file: str
    name: str
    body: MapNode
    document: MapNode
    said: Span

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.file)


type Ancestry = Callable[[ComposeService], Iterable[ComposeService]]
"""Returns a service, and each that it extends."""


@dataclass(frozen=True)
class Exposure:
    """Something that a container gets. ``path``: of the host, from ``directory``.

    ``name``: of what is the proxy's.

    ``with_below``: all that is below the path is given too, whatever .dockerignore says.
    """

    at: Span
    path: str = ""
    name: str = ""
    with_below: bool = True
    directory: str = ""


@dataclass(frozen=True)
class PrivatePaths:
    pod: PodSpec
    files: Files
    lookup: Lookup
    ancestry: Ancestry

    def check_surfaces(self) -> Iterator[Diagnostic]:
        """Yield an error for every surface that leads to what is private."""
        for owner in self.pod.owners:
            for exposure in self.surfaces(owner):
                yield from self._check(exposure)

    def surfaces(self, owner: PodSpec | ServiceSpec) -> Iterator[Exposure]:
        """Yield what the surfaces of an agent, or of the pod, give of the host and of volumes."""
        for surface in own_entries(owner.surfaces):
            if surface.scheme == "host":
                yield Exposure(surface.span, surface.target)
            elif surface.scheme == "volume":
                yield self._volume(surface.target, surface.span)

    def check_service(self, service: ComposeService) -> Iterator[Diagnostic]:
        """Yield an error for every key of an agent's service, or of one that it
        extends, that leads to what is private.
        """
        contexts = self._build_contexts(service)
        secrets = self._mounted_secrets(service.body)
        for exposure in (*self.folders(service), *self._processes(service), *contexts, *secrets):
            yield from self._check(exposure)

    def folders(self, service: ComposeService) -> Iterator[Exposure]:
        """Yield the files and folders that a service's own keys put into its container, whole."""
        yield from self._mounts(service, frozenset())
        for item in items_of(child(service.body, "develop", "watch")):
            node, action = child(item, "path"), fill_in(child(item, "action"), self.lookup)
            if node is not None and action is not None and action.startswith("sync"):
                yield Exposure(
                    node.span, fill_in(node, self.lookup) or "", directory=service.directory
                )

    def is_refused(self, exposure: Exposure) -> bool:
        """Return whether the whole of it is reported already: it is private, or a
        directory of the host's own.
        """
        return host_directory(exposure.path) is not None or any(self._check(exposure))

    def path(self, exposure: Exposure) -> str:
        """Return the path of an exposure from the pod's directory."""
        return posixpath.normpath(
            posixpath.join(exposure.directory, expand_home(exposure.path, self.lookup))
        )

    def _check(self, exposure: Exposure) -> Iterator[Diagnostic]:
        if exposure.name:
            yield codes.PRIVATE_MOUNT.at(exposure.at, f"this gives the agent {exposure.name}")
        elif exposure.path:
            target = _real(self.files.root / self.path(exposure))
            secrets = (
                secret.reference.text for secret in self.pod.secrets if secret.source == "file"
            )
            names = (*_PRIVATE, *secrets)
            places = (
                (name, _real(self.files.root / expand_home(name, self.lookup))) for name in names
            )
            held = next((name for name, place in places if _exposes(target, place)), None)
            if held is not None and (
                exposure.with_below or target.is_relative_to(_real(self.files.root / held))
            ):
                yield codes.PRIVATE_MOUNT.at(
                    exposure.at, f"this mount gives the agent {quote(held)}"
                )

    def _mounts(self, service: ComposeService, seen: frozenset[str]) -> Iterator[Exposure]:
        for item in items_of(service.body.value("volumes")):
            if (path := bind_source(item, self.lookup)) is not None:
                yield Exposure(item.span, path, directory=service.directory)
            else:
                yield self._volume(_volume_source(item, self.lookup), item.span)

        for item in items_of(service.body.value("volumes_from")):
            yield from self._volumes_from(item, service, seen)

    def _volumes_from(
        self, item: Node, service: ComposeService, seen: frozenset[str]
    ) -> Iterator[Exposure]:
        text = fill_in(item, self.lookup) or ""
        name = text.partition(":")[0]
        if name in {_PROXY, "container"}:
            what = (
                "the volumes of its proxy"
                if name == _PROXY
                else f"the volumes of {quote(text)}, whatever they are"
            )
            yield Exposure(item.span, name=what)
            return

        body = child(service.document, "services", name)
        if name in seen or not isinstance(body, MapNode):
            return
        target = ComposeService(service.file, name, body, service.document, item.span)
        for each in self.ancestry(target):
            for exposure in self._mounts(each, seen | {name}):
                yield replace(exposure, at=item.span)

    def _volume(self, name: str, at: Span) -> Exposure:
        declared = child(self.pod.document, "volumes", name)
        if _PROXY_VOLUME.fullmatch(fill_in(child(declared, "name"), self.lookup) or name):
            return Exposure(at, name=f"{quote(name)}, a volume of its proxy")
        return Exposure(at, fill_in(child(declared, "driver_opts", "device"), self.lookup) or "")

    def _processes(self, service: ComposeService) -> Iterator[Exposure]:
        node = service.body.value("pid")
        pid = fill_in(node, self.lookup) or ""
        if node is not None and pid.startswith(("service:", "container:")):
            # Their environment stands in /proc.
            yield Exposure(node.span, name=f"the processes of {quote(pid)}, and their environment")

    def _build_contexts(self, service: ComposeService) -> Iterator[Exposure]:
        contexts = child(service.body, "build", "additional_contexts")
        named = [
            (entry.value, fill_in(entry.value, self.lookup) or "") for entry in entries_of(contexts)
        ]
        listed = [
            (item, (fill_in(item, self.lookup) or "").partition("=")[2])
            for item in items_of(contexts)
        ]
        for node, context in (*named, *listed):
            yield Exposure(
                node.span, _local(context), with_below=False, directory=service.directory
            )

    def _mounted_secrets(self, body: MapNode) -> Iterator[Exposure]:
        mounted = (
            *(
                ("secrets", name)
                for node in (body, body.value("build"))
                for name in mounted_names(child(node, "secrets"))
            ),
            *(("configs", name) for name in mounted_names(body.value("configs"))),
        )
        for section, name in mounted:
            declared = child(self.pod.document, section, name.text)
            if isinstance(declared, MapNode):
                yield Exposure(name.span, fill_in(declared.value("file"), self.lookup) or "")
            elif section == "secrets" and _PROXY_SECRET.fullmatch(name.text):
                yield Exposure(name.span, name=f"{quote(name.text)}, a secret of its proxy")


def host_directory(path: str) -> str | None:
    """Return the path of a directory of the host's own, such as ``/etc``; None for
    any other path.
    """
    plain = "/" + "/".join(part for part in path.split("/") if part not in {"", "."})
    return plain if path.startswith("/") and plain in _HOST_DIRECTORIES else None


def _local(context: str) -> str:
    """Return the directory that a build context is; "" for an image, a service, or
    another machine.
    """
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
        return (
            interpolate(source.text, lookup).text or None
            if is_bind and isinstance(source, ScalarNode)
            else None
        )
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
