"""The descriptor of a service: the first of several sources.

Specification: docs/spec/compile.md "Descriptors", Resolution order.

1. `describe-file`: the pod names it.
2. `.claw-discovered/SERVICE.claw-describe.json`: of a stdio server even when stale, of what is
   built only if of that image.
3. The image, as `claw.lock` has it.
4. The build context: where `LABEL claw.describe` points, else `.claw-describe.json`.
5. `.claw-tools.json`, a baked tools/list, with an MCP endpoint from the pod or from `LABEL
   claw.mcp`.

What is wrong with the one that counts is reported. The others are only compared: two sources that
declare different tools warn. A tools host has the tools that are built in; a source adds only those
of its MCP servers. A snapshot records in ``x-claw-discovery`` what was asked (command, arguments,
image); what it does not record is not compared.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from claw_compile import codes
from claw_compile.descriptors.descriptor import (
    ServiceDescriptor,
    Source,
    as_descriptor,
    read_descriptor,
)
from claw_compile.descriptors.lock import Lock, sha256
from claw_compile.descriptors.tools_host import TOOLS_HOST_PATH, describe_tools_host
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Result, has_errors, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, Stdio
from claw_compile.loading.build_context import BuildContext, build_context, candidate_paths, fill_in
from claw_compile.loading.files import Files
from claw_compile.parsing.environment import Lookup
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import ScalarNode, child, decode
from claw_compile.parsing.node import Source as Text
from claw_contract.descriptor import DescriptorV2

DISCOVERED = ".claw-discovered"
DESCRIPTOR_FILE = ".claw-describe.json"
TOOLS_FILE = ".claw-tools.json"
DESCRIBE_LABEL = "claw.describe"
MCP_LABEL = "claw.mcp"
_IMAGE_KEYS = ("image", "wrapper_image")

type _Candidate = Result[ServiceDescriptor] | Diagnostic
"""A descriptor, sound or not; or the reason why one is passed over."""


@dataclass(frozen=True)
class DescriptorLookup:
    pod: PodSpec
    files: Files
    lock: Lock | None
    lookup: Lookup = field(repr=False)

    def all(self) -> Mapping[str, ServiceDescriptor | None]:
        """Return service → descriptor; None for one whose descriptor can't be read."""
        descriptors: dict[str, ServiceDescriptor | None] = {}
        for service in self.pod.services:
            name = service.name.text
            if service.names_descriptor and service.describe_file is None:
                # ``describe-file`` holds no path. That is reported already, and no other source may
                # take its place.
                descriptors[name] = None
                continue
            if service.tools_host is not None:
                descriptors[name] = self._tools_host(service)
                continue

            sources = self._sources(service)
            first = self._first(sources)
            if first is None:
                self._report_missing(service)
                continue

            self.files.diagnostics.extend(first.diagnostics)
            descriptors[name] = self._with_pod_path(service, first.value)
            # ``_first`` has taken the one that counts, and all before it; the rest is left.
            self._compare(service, first.value, sources)
        return descriptors

    def _report_missing(self, service: ServiceSpec) -> None:
        """Report a stdio server without a descriptor; another service need not have one."""
        if not service.wraps_stdio:
            return

        name = service.name.text
        message = f"{quote(name)} wraps a stdio server, and has no snapshot of its tools"
        help_text = f"run 'claw discover {name}' once, and keep what it writes"
        diagnostic = codes.NO_SNAPSHOT.at(service.name.span, message, help_text=help_text)
        self.files.diagnostics.append(diagnostic)

    def _tools_host(self, service: ServiceSpec) -> ServiceDescriptor:
        """Return the tools of a tools host: its own, and those of its MCP servers.

        The latter are those that a source lists.
        """
        listing = self._first(self._sources(service))
        if listing is not None:
            self.files.diagnostics.extend(listing.diagnostics)

        descriptor = describe_tools_host(service, listing.value if listing is not None else None)
        self.files.diagnostics.extend(descriptor.diagnostics)
        assert descriptor.value is not None
        return descriptor.value

    def _with_pod_path(
        self, service: ServiceSpec, described: ServiceDescriptor | None
    ) -> ServiceDescriptor | None:
        """Apply the pod's ``mcp.path``, which wins over the descriptor's.

        The pod knows where its services listen.
        """
        if described is None or service.mcp_path is None:
            return described

        descriptor = described.descriptor
        if not isinstance(descriptor, DescriptorV2) or descriptor.mcp is None:
            message = (
                f"'mcp' of {service.name.text} does nothing: its descriptor says that it "
                "speaks plain HTTP"
            )
            notes = [Note(described.root.span, "the descriptor is here")]
            diagnostic = codes.MCP_UNUSED.at(service.mcp_path.span, message, notes=notes)
            self.files.diagnostics.append(diagnostic)
            return described

        mcp = descriptor.mcp.model_copy(update={"path": service.mcp_path.text})
        return replace(described, descriptor=descriptor.model_copy(update={"mcp": mcp}))

    def _first(self, sources: Iterator[_Candidate]) -> Result[ServiceDescriptor] | None:
        """Return the source that counts; report those before it that are passed over."""
        for candidate in sources:
            if isinstance(candidate, Result):
                return candidate
            self.files.diagnostics.append(candidate)
        return None

    def _compare(
        self, service: ServiceSpec, first: ServiceDescriptor | None, others: Iterator[_Candidate]
    ) -> None:
        """Warn of each other source that declares different tools; one with errors is ignored."""
        if first is None:
            return

        names = {tool.name for tool in first.tools}
        for candidate in others:
            # A diagnostic stands for a source that can't be used.
            if not isinstance(candidate, Result) or has_errors(candidate.diagnostics):
                continue
            other = candidate.value
            if other is None:
                continue

            other_names = {tool.name for tool in other.tools}
            if names == other_names:
                continue

            notes: list[Note] = []
            only_first = sorted(names - other_names)
            only_other = sorted(other_names - names)
            if only_first:
                notes.append(Note(first.root.span, f"only here: {', '.join(only_first)}"))
            if only_other:
                notes.append(Note(other.root.span, f"only here: {', '.join(only_other)}"))

            message = (
                f"{service.name.text} is described twice, with different tools; {first.file} counts"
            )
            diagnostic = codes.SOURCES_DISAGREE.at(service.name.span, message, notes=notes)
            self.files.diagnostics.append(diagnostic)

    def _sources(self, service: ServiceSpec) -> Iterator[_Candidate]:
        """Yield what describes a service, in the order of rank.

        A source is read only when it is asked for.
        """
        if service.describe_file is not None:
            yield self._describe_file(service.describe_file)
        yield from self._snapshot(service)
        yield from self._locked_image(service)

        context = build_context(service, self.files, self.lookup)
        if context is not None:
            yield from self._build(context)
        yield from self._tools_list(service, context)

    def _describe_file(self, path: ScalarNode) -> _Candidate:
        data = self.files.read_named(path, "the descriptor")
        if data is None:
            return Result(None)
        # A path that came from the environment is named as it is written.
        shown_path = self.files.display_path(path.shown)
        return _read_file(decode(shown_path, data), "describe-file")

    def _snapshot(self, service: ServiceSpec) -> Iterator[_Candidate]:
        file = self._discovered(service, DESCRIPTOR_FILE)
        if file is None:
            return

        checked = _read_file(file, "snapshot")
        snapshot = checked.value
        if snapshot is None:
            yield checked
            return

        changed = self._changes_since(service, snapshot)
        if not changed:
            yield checked
            return

        # A stdio server can have no other source, so a stale snapshot is better than none.
        is_used = service.wraps_stdio
        verdict = "it is used all the same" if is_used else "it is passed over"
        name = service.name.text
        message = f"the snapshot of {name} is of another {' and '.join(changed)}; {verdict}"
        notes = [Note(snapshot.root.span, "the snapshot is here")]
        help_text = f"run: claw discover {name} --update"
        at = service.name.span
        warning = codes.STALE_SNAPSHOT.at(at, message, notes=notes, help_text=help_text)
        if is_used:
            yield replace(checked, diagnostics=(*checked.diagnostics, warning))
        else:
            yield warning

    def _changes_since(self, service: ServiceSpec, snapshot: ServiceDescriptor) -> Collection[str]:
        """Return by name what the pod has changed since the snapshot: command, args, image."""
        filled_in = fill_in(child(service.body, "image"), self.lookup)
        images = [image for image in (filled_in, written_image(service)) if image]
        if service.wraps_stdio:
            return differences(snapshot, service.stdio, images)

        is_built = service.body is not None and service.body.get("build") is not None
        if not is_built:
            return differences(snapshot, None, images)

        # A registry may have another image of the same name as the one that is built here. So a
        # snapshot counts only if it says that it is of this image.
        if not images:
            # The name that Compose gives to the image.
            pod_name = self.pod.name.text if self.pod.name else ""
            images = [f"{pod_name}-{service.name.text}"]
        return () if is_of_image(snapshot, images) else ("image",)

    def _locked_image(self, service: ServiceSpec) -> Iterator[_Candidate]:
        """Yield the descriptor that an image holds, from the lock: a compile asks no Docker."""
        lock = self.lock
        if lock is None or lock.services is None:
            return

        name = service.name.text
        root = lock.descriptor(name)
        if root is None:
            return

        entry = lock.services[name]
        if entry.image != written_image(service):
            message = (
                f"{lock.file} has the descriptor of another image of {name}; it is passed over"
            )
            notes = [Note(lock.place(name), "it is here")]
            help_text = "run: claw lock --images"
            at = service.name.span
            yield codes.STALE_SNAPSHOT.at(at, message, notes=notes, help_text=help_text)
            return

        checked = read_descriptor(lock.file, root)
        if checked.value is not None:
            value = replace(checked.value, source="image", digest=entry.digest)
            checked = replace(checked, value=value)
        yield checked

    def _build(self, context: BuildContext) -> Iterator[_Candidate]:
        label = context.labels.get(DESCRIBE_LABEL)
        in_image = label.text if label is not None else DESCRIPTOR_FILE
        file = self._find(context, in_image, "the descriptor")
        if file is not None:
            yield _read_file(file, "build")
            return

        # Without a label there need not be a descriptor.
        if label is not None:
            why = "is no file of the build context"
            if "$" in label.text:
                why = "has a variable, which is not filled in"
            message = f"the descriptor {quote(label.text)} {why}"
            yield Result(None, (codes.BAD_DESCRIBE_LABEL.at(label.span, message),))

    def _tools_list(
        self, service: ServiceSpec, context: BuildContext | None
    ) -> Iterator[_Candidate]:
        file = self._discovered(service, TOOLS_FILE)
        if file is None and context is not None:
            file = self._find(context, TOOLS_FILE, "the list")
        if file is None:
            return

        # A list does not say where its server listens.
        path = service.mcp_path
        if path is None and context is not None:
            path = context.labels.get(MCP_LABEL)
        if service.tools_host is not None:
            path = ScalarNode(TOOLS_HOST_PATH, service.name.span)

        if path is not None:
            yield _read_file(file, "tools-list", path)
        elif file.value is not None:
            at = Text(file.value.file, file.value.text).span(0, 0)
            notes = [Note(service.name.span, "of this service")]
            message = "nothing says where this MCP server listens"
            yield codes.TOOLS_LIST_WITHOUT_MCP.at(at, message, notes=notes)

    def _find(self, context: BuildContext, in_image: str, what: str) -> Result[Text] | None:
        """Return a file of the image from where it may be in the build context."""
        for path in candidate_paths([context.path], in_image):
            file = self.files.read_if_present(path, what)
            if file is not None:
                return file
        return None

    def _discovered(self, service: ServiceSpec, file: str) -> Result[Text] | None:
        name = service.name.text
        # The name becomes part of a path.
        if "/" in name or not name.isprintable():
            return None

        path = f"{DISCOVERED}/{name}{file}"
        return self.files.read_if_present(path, f"the snapshot of {quote(name)}")


def written_image(service: ServiceSpec) -> str | None:
    """Return the image as the pod file has it, before its variables: the lock knows it by that."""
    image = child(service.body, "image")
    return image.text if isinstance(image, ScalarNode) and not image.is_null else None


def _read_file(
    file: Result[Text], source: Source, mcp_path: ScalarNode | None = None
) -> Result[ServiceDescriptor]:
    """Return the descriptor in a file; with ``mcp_path`` the file is a list of tools."""
    if file.value is None:
        return Result(None, file.diagnostics)

    name = file.value.file
    digest = sha256(file.value.text.encode())
    root = read_json(file.value)
    if mcp_path is not None:
        root = root.then(lambda listed: as_descriptor(listed, mcp_path))
    descriptor = root.then(lambda tree: read_descriptor(name, tree))
    return descriptor.then(lambda value: Result(replace(value, source=source, digest=digest)))


def differences(
    snapshot: ServiceDescriptor, stdio: Stdio | None, images: Collection[str]
) -> tuple[str, ...]:
    """Return by name what the pod has changed since the snapshot.

    Values are left out, because they may be a variable's.

    The snapshot has a text either as it is written in the pod file, with ``${NAME}``, or as the
    variables made it.
    """
    # (key in the snapshot, name for the user, values that count as equal)
    parts: list[tuple[str, str, Collection[Any]]] = []
    if stdio is not None:
        filled_in_args = [each.text for each in stdio.args]
        written_args = [each.shown for each in stdio.args]
        parts.append(("command", "command", (stdio.command.text, stdio.command.shown)))
        parts.append(("args", "args", (filled_in_args, written_args)))
    if images:
        parts += [(key, "image", images) for key in _IMAGE_KEYS]

    record = _recorded(snapshot)
    names: dict[str, None] = {}
    for key, name, values in parts:
        if key in record and record[key] not in values:
            names[name] = None
    return tuple(names)


def is_of_image(snapshot: ServiceDescriptor, images: Collection[str]) -> bool:
    """Return whether the snapshot says that it was taken from one of these images.

    One that names no image was not.
    """
    record = _recorded(snapshot)
    return any(record.get(name) in images for name in _IMAGE_KEYS)


def _recorded(snapshot: ServiceDescriptor) -> dict[str, Any]:
    return snapshot.descriptor.discovery or {}
