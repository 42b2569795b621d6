"""Paths that no agent may get.

They are the compiled tree, the master secret, ``.env``, files of secrets, and the proxy's own
files.

Rules. A path is judged by where it leads, after symlinks; a directory brings everything below it.
Paths are given by mounts, volumes that are bound to a path, ``volumes_from``, watched directories,
contexts of a build, secrets and configs.
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
_PROXY = "cllama"
_PROXY_VOLUME = re.compile(r"(.*[_-])?claw-(history|state)", re.DOTALL)
_PROXY_SECRET = re.compile(r"claw-.*", re.DOTALL)
_HOST_DIRECTORIES = {
    "/",
    "/dev",
    "/etc",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/var",
    "/var/lib",
    "/var/lib/docker",
    "/var/run",
}


@dataclass(frozen=True)
class ComposeService:
    """A service as one file has it.

    ``file`` is "" for the pod's own. ``name`` is the service's name there, and ``named_at`` the
    place that names it.
    """

    file: str
    name: str
    body: MapNode
    document: MapNode
    named_at: Span

    @property
    def directory(self) -> str:
        return posixpath.dirname(self.file)


type Ancestry = Callable[[ComposeService], Iterable[ComposeService]]
"""Returns a service, and each that it extends."""


@dataclass(frozen=True)
class Exposure:
    """Something that a container gets, at the place ``at`` of the pod file.

    It is either a ``path`` of the host, or something of the proxy's, which ``name`` describes.

    A path is relative to ``directory``, itself relative to the pod's. ``with_below``: everything
    below the path is given, too; a build leaves out what .dockerignore says.
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
        """Yield an error for every key of a service that leads to what is private.

        The service is an agent's, or one that it extends.
        """
        contexts = self._build_contexts(service)
        secrets = self._mounted_secrets(service.body)
        for exposure in (*self.folders(service), *self._processes(service), *contexts, *secrets):
            yield from self._check(exposure)

    def folders(self, service: ComposeService) -> Iterator[Exposure]:
        """Yield the files and folders that a service's own keys put into its container, whole."""
        yield from self._mounts(service, frozenset())

        for item in items_of(child(service.body, "develop", "watch")):
            node = child(item, "path")
            action = fill_in(child(item, "action"), self.lookup)
            # "sync" and "sync+restart" copy files into the container; "rebuild" does not.
            if node is not None and action is not None and action.startswith("sync"):
                path = fill_in(node, self.lookup) or ""
                yield Exposure(node.span, path, directory=service.directory)

    def is_refused(self, exposure: Exposure) -> bool:
        """Return whether the whole exposure is reported already.

        It is if it is private, or a directory of the host's own.
        """
        return host_directory(exposure.path) is not None or any(self._check(exposure))

    def path(self, exposure: Exposure) -> str:
        """Return the path of an exposure from the pod's directory."""
        path = expand_home(exposure.path, self.lookup)
        return posixpath.normpath(posixpath.join(exposure.directory, path))

    def _check(self, exposure: Exposure) -> Iterator[Diagnostic]:
        if exposure.name:
            yield codes.PRIVATE_MOUNT.at(exposure.at, f"this gives the agent {exposure.name}")
            return
        if not exposure.path:
            return

        target = _real(self.files.root / self.path(exposure))
        private = self._find_private(target)
        if private is None:
            return

        # A build context above a private path need not send it: .dockerignore may leave it out.
        leads_into = target.is_relative_to(_real(self.files.root / private))
        if exposure.with_below or leads_into:
            message = f"this mount gives the agent {quote(private)}"
            yield codes.PRIVATE_MOUNT.at(exposure.at, message)

    def _find_private(self, target: Path) -> str | None:
        """Return the first private path that ``target`` exposes, as it is written; else None."""
        secrets = [each.reference.text for each in self.pod.secrets if each.source == "file"]
        for name in (*_PRIVATE, *secrets):
            if _exposes(target, _real(self.files.root / expand_home(name, self.lookup))):
                return name
        return None

    def _mounts(self, service: ComposeService, seen: frozenset[str]) -> Iterator[Exposure]:
        for item in items_of(service.body.value("volumes")):
            path = bind_source(item, self.lookup)
            if path is not None:
                yield Exposure(item.span, path, directory=service.directory)
            else:
                yield self._volume(_volume_source(item, self.lookup), item.span)

        for item in items_of(service.body.value("volumes_from")):
            yield from self._volumes_from(item, service, seen)

    def _volumes_from(
        self, item: Node, service: ComposeService, seen: frozenset[str]
    ) -> Iterator[Exposure]:
        """Yield what another service mounts; ``seen`` ends a circle of such services."""
        text = fill_in(item, self.lookup) or ""
        name = text.partition(":")[0]
        if name == _PROXY:
            yield Exposure(item.span, name="the volumes of its proxy")
            return
        if name == "container":
            # A container outside of the pod, which can't be seen here.
            what = f"the volumes of {quote(text)}, whatever they are"
            yield Exposure(item.span, name=what)
            return

        body = child(service.document, "services", name)
        if name in seen or not isinstance(body, MapNode):
            return

        target = ComposeService(service.file, name, body, service.document, item.span)
        for each in self.ancestry(target):
            for exposure in self._mounts(each, seen | {name}):
                # The agent's own key is the mistake, not the mount of the other service.
                yield replace(exposure, at=item.span)

    def _volume(self, name: str, at: Span) -> Exposure:
        """Return what a named volume gives: a volume of the proxy, or the path it is bound to."""
        declaration = child(self.pod.document, "volumes", name)
        name_in_docker = fill_in(child(declaration, "name"), self.lookup) or name
        if _PROXY_VOLUME.fullmatch(name_in_docker):
            return Exposure(at, name=f"{quote(name)}, a volume of its proxy")

        device = fill_in(child(declaration, "driver_opts", "device"), self.lookup) or ""
        return Exposure(at, device)

    def _processes(self, service: ComposeService) -> Iterator[Exposure]:
        node = service.body.value("pid")
        pid = fill_in(node, self.lookup) or ""
        if node is not None and pid.startswith(("service:", "container:")):
            # In /proc everybody with the same user reads their environment.
            yield Exposure(node.span, name=f"the processes of {quote(pid)}, and their environment")

    def _build_contexts(self, service: ComposeService) -> Iterator[Exposure]:
        """Yield the additional contexts of a build: a mapping, or a list of ``name=context``."""
        node = child(service.body, "build", "additional_contexts")
        for entry in entries_of(node):
            at = entry.value.span
            path = _local(fill_in(entry.value, self.lookup) or "")
            yield Exposure(at, path, with_below=False, directory=service.directory)

        for item in items_of(node):
            text = fill_in(item, self.lookup) or ""
            path = _local(text.partition("=")[2])
            yield Exposure(item.span, path, with_below=False, directory=service.directory)

    def _mounted_secrets(self, body: MapNode) -> Iterator[Exposure]:
        """Yield the files of secrets and configs, of the service and of its build."""
        mounts: list[tuple[str, ScalarNode]] = []
        for node in (body, body.value("build")):
            mounts += [("secrets", name) for name in mounted_names(child(node, "secrets"))]
        mounts += [("configs", name) for name in mounted_names(body.value("configs"))]

        for section, name in mounts:
            declaration = child(self.pod.document, section, name.text)
            if isinstance(declaration, MapNode):
                yield Exposure(name.span, fill_in(declaration.value("file"), self.lookup) or "")
            elif section == "secrets" and _PROXY_SECRET.fullmatch(name.text):
                # The pod file does not declare it, but the compiler will, under this name.
                yield Exposure(name.span, name=f"{quote(name.text)}, a secret of its proxy")


def host_directory(path: str) -> str | None:
    """Return the path if it is a directory of the host's own, such as ``/etc``; else None."""
    if not path.startswith("/"):
        return None

    parts = [part for part in path.split("/") if part not in {"", "."}]
    plain = "/" + "/".join(parts)
    return plain if plain in _HOST_DIRECTORIES else None


def _local(context: str) -> str:
    """Return the directory that a build context is.

    Return "" for an image, a service, or another machine.
    """
    return "" if "://" in context else context


def _exposes(target: Path, private: Path) -> bool:
    """Return whether a mount of ``target`` gives the private path, or a part of it."""
    return private.is_relative_to(target) or target.is_relative_to(private)


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def expand_home(path: str, lookup: Lookup) -> str:
    """Expand ``~`` as Compose does: it is the home of the user who runs Compose."""
    home = lookup("HOME")
    if home and (path == "~" or path.startswith("~/")):
        return home + path[1:]
    return path


def bind_source(item: Node, lookup: Lookup) -> str | None:
    """Return the host path of a volume, short form or long; None for a named volume."""
    if isinstance(item, MapNode):
        kind = item.value("type")
        source = item.value("source")
        is_bind = isinstance(kind, ScalarNode) and kind.text == "bind"
        if not is_bind or not isinstance(source, ScalarNode):
            return None
        return interpolate(source.text, lookup).text or None

    if not isinstance(item, ScalarNode):
        return None

    path, colon, _ = interpolate(item.text, lookup).text.partition(":")
    # Compose takes a source for a path if it begins like one.
    return path if colon and path.startswith((".", "/", "~")) else None


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
