"""``claw lock`` and ``claw rotate``: the two verbs that write ``claw.lock``.

Specification: docs/spec/compile.md "Verbs", "Tokens".

Rules. A service that is new comes into the lock, and one that is no longer described goes. One
whose tools have changed comes in only if it is accepted by name. An agent's epoch never goes back,
not even when the agent is gone: a token that was rotated away stays worthless. With an error
nothing is written.
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
    """A descriptor in an image: its path there, its bytes, and the image's own digest.

    ``data`` is None if the image has no file at the path that its label names.
    """

    path: str
    data: bytes | None
    image_digest: str | None = None


# Sources of a higher rank than an image
_NAMED = ("tools-host", "describe-file", "snapshot")

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
    """Write the lock of a pod as it is now.

    A service whose tools have changed is locked anew only when it is accepted.
    """
    loaded = load(pod_file, environ)
    if loaded.value is None or has_errors(loaded.diagnostics):
        return Result(None, sort_diagnostics(loaded.diagnostics))

    loaded_pod = loaded.value
    resolved = resolve(loaded_pod).value
    assert resolved is not None
    update = _LockUpdate(
        loaded=loaded_pod,
        directory=pod_file.parent,
        granted=granted_tools(resolved),
        diagnostics=list(loaded.diagnostics),
        services={},
    )
    for service in loaded_pod.pod.services:
        update.lock(service, accept, ask)

    names = [service.name.text for service in loaded_pod.pod.services]
    for name in sorted(set(accept) - update.services.keys()):
        message = f"{quote(name)} can't be accepted: no service of that name has a descriptor"
        hint = did_you_mean(name, names)
        at = start_of(str(pod_file))
        update.diagnostics.append(codes.UNKNOWN_SERVICE.at(at, message, hint=hint))

    diagnostics = sort_diagnostics(update.diagnostics)
    if has_errors(diagnostics):
        return Result(None, diagnostics)

    content = LockContent(epochs=update.epochs, services=update.services)
    path = pod_file.parent / LOCK_FILE
    problems = replace_file(path, render_lock(content))
    if problems:
        return Result(None, (*diagnostics, *problems))
    return Result(_report(path, content, update.before, accept), diagnostics)


def _report(
    path: Path,
    content: LockContent,
    before: Mapping[str, LockedService],
    accept: Collection[str],
) -> LockResult:
    after = content.services or {}
    added = after.keys() - before.keys()
    removed = before.keys() - after.keys()
    # A service that is new needs no acceptance.
    accepted = {name for name in accept if name in before}
    return LockResult(
        file=path,
        content=content,
        added=tuple(sorted(added)),
        accepted=tuple(sorted(accepted)),
        removed=tuple(sorted(removed)),
    )


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
        lock = self.loaded.lock
        return (lock.services if lock is not None else None) or {}

    @property
    def epochs(self) -> dict[str, int]:
        """Return the epochs of the lock as they are: also those of agents that are gone."""
        lock = self.loaded.lock
        return lock.content.epochs if lock is not None else {}

    def lock(self, service: ServiceSpec, accept: Collection[str], ask: AskImage | None) -> None:
        """Take one service in, or say why not."""
        descriptor, entry = self._entry(service, ask)
        if descriptor is None or entry is None:
            return

        name = service.name.text
        granted = self.granted.get(name, ())
        earlier = self.before.get(name)
        if earlier is not None and name not in accept and changes(earlier, descriptor, granted):
            lock = self.loaded.lock
            assert lock is not None
            self.diagnostics.extend(compare(lock, name, descriptor, granted, service.name.span))
        self.services[name] = entry

    def _entry(
        self, service: ServiceSpec, ask: AskImage | None
    ) -> tuple[ServiceDescriptor | None, LockedService | None]:
        """Return a service's descriptor and its entry; (None, None) for one without a descriptor.

        An image is asked only where its descriptor would count.
        """
        name = service.name.text
        descriptor = self.loaded.descriptors.get(name)
        is_named = descriptor is not None and descriptor.source in _NAMED
        if ask is not None and service.agent is None and not is_named:
            in_image = self._image_entry(service, ask)
            if in_image is not None:
                return in_image

        if descriptor is None:
            return None, None
        if descriptor.source == "image":
            # This descriptor came from the lock itself. Docker is not asked for a newer one, so the
            # entry stays as it is.
            return descriptor, self.before[name]

        # Relative to the pod, so that the lock is the same on every machine.
        path = Path(descriptor.file)
        if path.is_relative_to(self.directory):
            path = path.relative_to(self.directory)
        return descriptor, lock_service(descriptor, path.as_posix(), written_image(service))

    def _image_entry(
        self, service: ServiceSpec, ask: AskImage
    ) -> tuple[ServiceDescriptor, LockedService] | None:
        """Return the descriptor that the service's image holds, and its entry; None for none."""
        image = fill_in(child(service.body, "image"), self.loaded.variables.lookup)
        in_image = ask(image) if image is not None else None
        if in_image is None:
            return None
        if in_image.data is None:
            message = f"the image has no file {quote(in_image.path)}, which its label names"
            self.diagnostics.append(codes.BAD_DESCRIBE_LABEL.at(service.name.span, message))
            return None

        file = f"{written_image(service)}:{in_image.path}"
        root = decode(file, in_image.data).then(read_json)
        file_result = root.then(lambda tree: read_descriptor(file, tree))
        self.diagnostics.extend(file_result.diagnostics)
        if root.value is None or file_result.value is None:
            return None

        descriptor = replace(file_result.value, source="image", digest=sha256(in_image.data))
        entry = lock_service(descriptor, in_image.path, written_image(service))
        # The whole descriptor goes into the lock: a compile asks no Docker.
        whole = {"image_digest": in_image.image_digest, "descriptor": plain_data(root.value)}
        return descriptor, entry.model_copy(update=whole)


def rotate_pod(pod_file: Path, environ: Mapping[str, str], agent: str) -> Result[Rotation]:
    """Give an agent a new token from the next compile on, and leave the others theirs."""
    loaded = load(pod_file, environ)
    if loaded.value is None or has_errors(loaded.diagnostics):
        return Result(None, sort_diagnostics(loaded.diagnostics))

    resolved = resolve(loaded.value).value
    names = [each.id for each in resolved.agents] if resolved is not None else []
    if agent not in names:
        unknown = codes.UNKNOWN_AGENT.at(
            start_of(str(pod_file)),
            f"no agent {quote(agent)}",
            hint=did_you_mean(agent, names),
            help_text=f"the agents are {', '.join(names)}" if names else None,
        )
        return Result(None, sort_diagnostics((*loaded.diagnostics, unknown)))

    content = loaded.value.lock.content if loaded.value.lock else LockContent()
    epoch = content.epochs.get(agent, 0) + 1
    new_content = content.model_copy(update={"epochs": {**content.epochs, agent: epoch}})
    path = pod_file.parent / LOCK_FILE
    problems = replace_file(path, render_lock(new_content))
    if problems:
        return Result(None, problems)
    return Result(Rotation(path, agent, epoch), sort_diagnostics(loaded.diagnostics))
