"""``claw lock`` and ``claw rotate``: the two verbs that write ``claw.lock``
(docs/spec/compile.md "Verbs", "Tokens").

Rules. A lock is widened only for services that are accepted by name; what is new to it comes in,
what is no longer described goes. An agent's epoch never goes back, not even when the agent is gone:
a token that was rotated away stays worthless. With an error nothing is written.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor, read_descriptor
from claw_compile.descriptors.lock import (
    LOCK_FILE,
    LockContent,
    LockedService,
    lock_service,
    render_lock,
    sha256,
)
from claw_compile.diagnostics.diagnostic import (
    Diagnostic,
    Result,
    did_you_mean,
    has_errors,
    quote,
    sort_diagnostics,
    start_of,
)
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.loading.build_context import fill_in
from claw_compile.loading.descriptor_lookup import written_image
from claw_compile.loading.load import LoadedPod, load
from claw_compile.output.write import replace_file
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import child, decode, plain_data
from claw_compile.policy.lock_drift import changes, compare, granted_tools
from claw_compile.policy.resolve import resolve


@dataclass(frozen=True)
class ImageDescriptor:
    """A descriptor in an image: its path there, its bytes (None: its label names no
    file), and the image's own digest.
    """

    path: str
    data: bytes | None
    image_digest: str | None = None


type AskImage = Callable[[str], ImageDescriptor | None]
"""Asks an image for its descriptor; None when it has none.

The command line asks Docker, never the compiler.
"""


@dataclass(frozen=True)
class LockResult:
    """The lock that was written, and the services that were added, accepted and removed."""

    file: Path
    content: LockContent
    added: tuple[str, ...]
    accepted: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Rotation:
    """The next epoch of an agent's token."""

    file: Path
    agent: str
    epoch: int


def lock_pod(
    pod_file: Path,
    environ: Mapping[str, str],
    accept: Collection[str] = (),
    ask: AskImage | None = None,
) -> Result[LockResult]:
    """Write the lock of a pod as it is now; a service whose tools have changed,
    only when it is accepted.
    """
    loaded = load(pod_file, environ)
    if loaded.value is None or has_errors(loaded.diagnostics):
        return Result(None, sort_diagnostics(loaded.diagnostics))
    resolved = resolve(loaded.value).value
    assert resolved is not None
    now = _LockUpdate(
        loaded.value, pod_file.parent, granted_tools(resolved), list(loaded.diagnostics), {}
    )
    for service in loaded.value.pod.services:
        now.lock(service, accept, ask)
    known = [service.name.text for service in loaded.value.pod.services]
    for name in sorted(set(accept) - now.services.keys()):
        hint = did_you_mean(name, known)
        message = f"{quote(name)} can't be accepted: no service of that name has a descriptor"
        now.diagnostics.append(
            codes.UNKNOWN_SERVICE.at(start_of(str(pod_file)), message, hint=hint)
        )
    diagnostics = sort_diagnostics(now.diagnostics)
    if has_errors(diagnostics):
        return Result(None, diagnostics)
    before, path = now.before, pod_file.parent / LOCK_FILE
    content = LockContent(epochs=now.epochs, services=now.services)
    if refused := replace_file(path, render_lock(content)):
        return Result(None, (*diagnostics, *refused))
    added, removed = now.services.keys() - before.keys(), before.keys() - now.services.keys()
    accepted = {name for name in accept if name in before}
    names = (tuple(sorted(each)) for each in (added, accepted, removed))
    return Result(LockResult(path, content, *names), diagnostics)


@dataclass
class _LockUpdate:
    """One update of the lock from the pod as it is."""

    loaded: LoadedPod
    directory: Path
    granted: Mapping[str, Collection[str]]
    diagnostics: list[Diagnostic]
    services: dict[str, LockedService]

    @property
    def before(self) -> Mapping[str, LockedService]:
        return (self.loaded.lock.services or {}) if self.loaded.lock else {}

    @property
    def epochs(self) -> dict[str, int]:
        return self.loaded.lock.content.epochs if self.loaded.lock else {}

    def lock(self, service: ServiceSpec, accept: Collection[str], ask: AskImage | None) -> None:
        """Take one service in, or say why not."""
        name, lock = service.name.text, self.loaded.lock
        service_descriptor, entry = self._entry(service, ask)
        if service_descriptor is None or entry is None:
            return
        granted = self.granted.get(name, ())
        if (
            name in self.before
            and name not in accept
            and changes(self.before[name], service_descriptor, granted)
        ):
            assert lock is not None
            self.diagnostics.extend(
                compare(lock, name, service_descriptor, granted, service.name.span)
            )
        self.services[name] = entry

    def _entry(
        self, service: ServiceSpec, ask: AskImage | None
    ) -> tuple[ServiceDescriptor | None, LockedService | None]:
        name, image = service.name.text, written_image(service)
        service_descriptor = self.loaded.descriptors.get(name)
        is_named = service_descriptor is not None and service_descriptor.source in _NAMED
        if ask is not None and service.agent is None and not is_named:
            baked = self._baked(service, ask)
            if baked is not None:
                return baked
        if service_descriptor is None:
            return None, None
        if service_descriptor.source == "image":
            return service_descriptor, self.before[name]
        path = Path(service_descriptor.file)
        inside = path.relative_to(self.directory) if path.is_relative_to(self.directory) else path
        return service_descriptor, lock_service(service_descriptor, inside.as_posix(), image)

    def _baked(
        self, service: ServiceSpec, ask: AskImage
    ) -> tuple[ServiceDescriptor, LockedService] | None:
        image = fill_in(child(service.body, "image"), self.loaded.variables.lookup)
        baked = ask(image) if image is not None else None
        if baked is None:
            return None
        file = f"{written_image(service)}:{baked.path}"
        if baked.data is None:
            message = f"the image has no file {quote(baked.path)}, which its label names"
            self.diagnostics.append(codes.BAD_DESCRIBE_LABEL.at(service.name.span, message))
            return None
        root = decode(file, baked.data).then(read_json)
        service_descriptor = root.then(lambda tree: read_descriptor(file, tree))
        self.diagnostics.extend(service_descriptor.diagnostics)
        if root.value is None or service_descriptor.value is None:
            return None
        value = replace(service_descriptor.value, source="image", digest=sha256(baked.data))
        entry = lock_service(value, baked.path, written_image(service))
        held = {"image_digest": baked.image_digest, "descriptor": plain_data(root.value)}
        return value, entry.model_copy(update=held)


_NAMED = ("tools-host", "describe-file", "snapshot")  # Sources of a higher rank than an image


def rotate_pod(pod_file: Path, environ: Mapping[str, str], agent: str) -> Result[Rotation]:
    """Give an agent a new token from the next compile on, and leave the others theirs."""
    loaded = load(pod_file, environ)
    if loaded.value is None or has_errors(loaded.diagnostics):
        return Result(None, sort_diagnostics(loaded.diagnostics))
    resolved = resolve(loaded.value).value
    known = [each.id for each in resolved.agents] if resolved is not None else []
    if agent not in known:
        message, hint = f"no agent {quote(agent)}", did_you_mean(agent, known)
        help_text = f"the agents are {', '.join(known)}" if known else None
        unknown = codes.UNKNOWN_AGENT.at(
            start_of(str(pod_file)), message, hint=hint, help_text=help_text
        )
        return Result(None, sort_diagnostics((*loaded.diagnostics, unknown)))
    content = loaded.value.lock.content if loaded.value.lock else LockContent()
    epoch = content.epochs.get(agent, 0) + 1
    path = pod_file.parent / LOCK_FILE
    refused = replace_file(
        path, render_lock(content.model_copy(update={"epochs": {**content.epochs, agent: epoch}}))
    )
    if refused:
        return Result(None, refused)
    return Result(Rotation(path, agent, epoch), sort_diagnostics(loaded.diagnostics))
