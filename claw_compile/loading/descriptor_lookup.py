"""The descriptor of a service: the first of several sources (docs/spec/compile.md
"Descriptors", Resolution order).

1. `describe-file`: the pod names it.
2. `.claw-discovered/SERVICE.claw-describe.json`: of a stdio server even when stale, of what is
   built only if of that image.
3. The image, as `claw.lock` has it.
4. The build context: where `LABEL claw.describe` points, else `.claw-describe.json`.
5. `.claw-tools.json`, a baked tools/list, with an MCP endpoint from the pod or from `LABEL
   claw.mcp`.

What is wrong with the one that counts is reported. The others are only compared: two sources that
declare different tools warn. A tools host has the tools that are built in; of a source it takes
those of the servers behind it. A snapshot says in ``x-claw-discovery`` what it was taken of
(command, arguments, image); what it does not say is not compared.
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
DESCRIBE_LABEL, MCP_LABEL = "claw.describe", "claw.mcp"


type _Candidate = (
    Result[ServiceDescriptor] | Diagnostic
)  # A descriptor, sound or not; or the reason why one is passed over
_IMAGE_KEYS = ("image", "wrapper_image")


@dataclass(frozen=True)
class DescriptorLookup:
    pod: PodSpec
    files: Files
    lock: Lock | None
    lookup: Lookup = field(repr=False)

    def all(self) -> Mapping[str, ServiceDescriptor | None]:
        """Return service → descriptor; None for one whose descriptor can't be read."""
        described: dict[str, ServiceDescriptor | None] = {}
        for service in self.pod.services:
            if service.names_descriptor and service.describe_file is None:
                described[service.name.text] = None
                continue
            if service.tools_host is not None:
                described[service.name.text] = self._tools_host(service)
                continue
            sources = self._sources(service)
            first = self._first(sources)
            if first is not None:
                self.files.diagnostics.extend(first.diagnostics)
                described[service.name.text] = self._with_pod_path(service, first.value)
                self._compare(service, first.value, sources)
            elif service.wraps_stdio:
                name = service.name.text
                help_text = f"run 'claw discover {name}' once, and keep what it writes"
                message = f"{quote(name)} wraps a stdio server, and has no snapshot of its tools"
                self.files.diagnostics.append(
                    codes.NO_SNAPSHOT.at(service.name.span, message, help_text=help_text)
                )
        return described

    def _tools_host(self, service: ServiceSpec) -> ServiceDescriptor:
        """Return the tools of a tools host: its own, and those of servers behind it
        that a source lists.
        """
        listed = self._first(self._sources(service))
        self.files.diagnostics.extend(listed.diagnostics if listed is not None else ())
        described = describe_tools_host(service, listed.value if listed is not None else None)
        self.files.diagnostics.extend(described.diagnostics)
        assert described.value is not None
        return described.value

    def _with_pod_path(
        self, service: ServiceSpec, described: ServiceDescriptor | None
    ) -> ServiceDescriptor | None:
        """Apply the pod's ``mcp.path``, which wins over the descriptor's: the pod
        knows where its services are.
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
            self.files.diagnostics.append(
                codes.MCP_UNUSED.at(service.mcp_path.span, message, notes=notes)
            )
            return described
        mcp = descriptor.mcp.model_copy(update={"path": service.mcp_path.text})
        return replace(described, descriptor=descriptor.model_copy(update={"mcp": mcp}))

    def _first(self, sources: Iterator[_Candidate]) -> Result[ServiceDescriptor] | None:
        for candidate in sources:
            if isinstance(candidate, Result):
                return candidate
            self.files.diagnostics.append(candidate)
        return None

    def _compare(
        self, service: ServiceSpec, first: ServiceDescriptor | None, others: Iterator[_Candidate]
    ) -> None:
        if first is None:
            return
        names = {tool.name for tool in first.tools}
        for other in others:
            if (
                not isinstance(other, Result)
                or other.value is None
                or has_errors(other.diagnostics)
            ):
                continue
            theirs = {tool.name for tool in other.value.tools}
            if names != theirs:
                notes = [
                    Note(each.root.span, f"only here: {', '.join(sorted(only))}")
                    for each, only in ((first, names - theirs), (other.value, theirs - names))
                    if only
                ]
                message = (
                    f"{service.name.text} is described twice, with different tools; "
                    f"{first.file} counts"
                )
                self.files.diagnostics.append(
                    codes.SOURCES_DISAGREE.at(service.name.span, message, notes=notes)
                )

    def _sources(self, service: ServiceSpec) -> Iterator[_Candidate]:
        if service.describe_file is not None:
            path = service.describe_file
            data = self.files.read_named(path, "the descriptor")
            # A path that came from the environment is named as it is written.
            shown = self.files.display_path(path.shown)
            yield (
                _read_file(decode(shown, data), "describe-file")
                if data is not None
                else Result(None)
            )
        yield from self._snapshot(service)
        yield from self._baked(service)
        context = build_context(service, self.files, self.lookup)
        if context is not None:
            yield from self._build(context)
        yield from self._tools_list(service, context)

    def _snapshot(self, service: ServiceSpec) -> Iterator[_Candidate]:
        file = self._discovered(service, DESCRIPTOR_FILE)
        if file is None:
            return
        checked = _read_file(file, "snapshot")
        if checked.value is None:
            yield checked
            return
        images = [
            each
            for each in (fill_in(child(service.body, "image"), self.lookup), written_image(service))
            if each
        ]
        stale = None
        if service.wraps_stdio:
            differ = differences(checked.value, service.stdio, images)
            stale = f"another {' and '.join(differ)}; it is used all the same" if differ else None
        elif service.body is not None and service.body.get("build") is not None:
            images = images or [
                f"{self.pod.name.text if self.pod.name else ''}-{service.name.text}"
            ]
            stale = (
                None if is_of_image(checked.value, images) else "another image; it is passed over"
            )
        elif differences(checked.value, None, images):
            stale = "another image; it is passed over"
        if stale is not None:
            notes = [Note(checked.value.root.span, "the snapshot is here")]
            message = f"the snapshot of {service.name.text} is of {stale}"
            help_text = f"run: claw discover {service.name.text} --update"
            stale_warning = codes.STALE_SNAPSHOT.at(
                service.name.span, message, notes=notes, help_text=help_text
            )
            if not service.wraps_stdio:
                yield stale_warning
                return
            checked = replace(checked, diagnostics=(*checked.diagnostics, stale_warning))
        yield checked

    def _baked(self, service: ServiceSpec) -> Iterator[_Candidate]:
        name = service.name.text
        root = self.lock.descriptor(name) if self.lock is not None else None
        if self.lock is None or self.lock.services is None or root is None:
            return
        locked = self.lock.services[name]
        if locked.image != written_image(service):
            message = (
                f"{self.lock.file} has the descriptor of another image of {name}; it is passed over"
            )
            notes = [Note(self.lock.place(name), "it is here")]
            help_text = "run: claw lock --images"
            yield codes.STALE_SNAPSHOT.at(
                service.name.span, message, notes=notes, help_text=help_text
            )
            return
        checked = read_descriptor(self.lock.file, root)
        if checked.value is not None:
            checked = replace(
                checked, value=replace(checked.value, source="image", digest=locked.digest)
            )
        yield checked

    def _build(self, context: BuildContext) -> Iterator[_Candidate]:
        label = context.labels.get(DESCRIBE_LABEL)
        for path in candidate_paths(
            [context.path], label.text if label is not None else DESCRIPTOR_FILE
        ):
            if (file := self.files.read_if_present(path, "the descriptor")) is not None:
                yield _read_file(file, "build")
                return
        if label is not None:
            has_variable = "$" in label.text
            why = (
                "has a variable, which is not filled in"
                if has_variable
                else "is no file of the build context"
            )
            message = f"the descriptor {quote(label.text)} {why}"
            yield Result(None, (codes.BAD_DESCRIBE_LABEL.at(label.span, message),))

    def _tools_list(
        self, service: ServiceSpec, context: BuildContext | None
    ) -> Iterator[_Candidate]:
        file = self._discovered(service, TOOLS_FILE)
        if file is None and context is not None:
            paths = candidate_paths([context.path], TOOLS_FILE)
            file = next(
                filter(None, (self.files.read_if_present(path, "the list") for path in paths)), None
            )
        if file is None:
            return
        path = service.mcp_path or (context.labels.get(MCP_LABEL) if context else None)
        if service.tools_host is not None:
            path = ScalarNode(TOOLS_HOST_PATH, service.name.span)
        if path is not None:
            yield _read_file(file, "tools-list", path)
        elif file.value is not None:
            at = Text(file.value.file, file.value.text).span(0, 0)
            notes = [Note(service.name.span, "of this service")]
            message = "nothing says where this MCP server listens"
            yield codes.TOOLS_LIST_WITHOUT_MCP.at(at, message, notes=notes)

    def _discovered(self, service: ServiceSpec, file: str) -> Result[Text] | None:
        name = service.name.text
        if "/" in name or not name.isprintable():
            return None
        return self.files.read_if_present(
            f"{DISCOVERED}/{name}{file}", f"the snapshot of {quote(name)}"
        )


def written_image(service: ServiceSpec) -> str | None:
    """Return the image as the pod file has it, before its variables: the lock knows it by that."""
    image = child(service.body, "image")
    return image.text if isinstance(image, ScalarNode) and not image.is_null else None


def _read_file(
    file: Result[Text], source: Source, mcp_path: ScalarNode | None = None
) -> Result[ServiceDescriptor]:
    if file.value is None:
        return Result(None, file.diagnostics)
    name, digest = file.value.file, sha256(file.value.text.encode())
    root = read_json(file.value)
    if mcp_path is not None:
        root = root.then(lambda listed: as_descriptor(listed, mcp_path))
    described = root.then(lambda tree: read_descriptor(name, tree))
    return described.then(lambda value: Result(replace(value, source=source, digest=digest)))


def differences(
    snapshot: ServiceDescriptor, stdio: Stdio | None, images: Collection[str]
) -> tuple[str, ...]:
    """Return by name what the pod has changed since the snapshot; no values, for
    they may be a variable's.

    The snapshot has a text either as it is written in the pod file, with ``${NAME}``, or as the
    variables made it.
    """
    recorded = _recorded(snapshot)
    parts: list[tuple[str, str, Collection[Any]]] = []
    if stdio is not None:
        parts.append(("command", "command", (stdio.command.text, stdio.command.shown)))
        parts.append(
            (
                "args",
                "args",
                ([each.text for each in stdio.args], [each.shown for each in stdio.args]),
            )
        )
    if images:
        parts += [(key, "image", images) for key in _IMAGE_KEYS]
    return tuple(
        dict.fromkeys(
            name for key, name, values in parts if key in recorded and recorded[key] not in values
        )
    )


def is_of_image(snapshot: ServiceDescriptor, images: Collection[str]) -> bool:
    """Return whether the snapshot says that it was taken from this image; one that
    says nothing was not.
    """
    recorded = _recorded(snapshot)
    return any(recorded.get(name) in images for name in _IMAGE_KEYS)


def _recorded(snapshot: ServiceDescriptor) -> dict[str, Any]:
    return snapshot.descriptor.discovery or {}
