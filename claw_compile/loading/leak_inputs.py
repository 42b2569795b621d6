"""Leak inputs: the texts that an agent's container gets and that may hold a
credential, with their places.

Rules. Every value of the agent's Compose service counts, and of each service that it extends:
variables by name and value, other keys by value; the files behind ``env_file``, ``secrets``,
``configs``, mounts (``volumes``, ``volumes_from``, volumes that are bound to a path,
``develop.watch``, surfaces) and the Dockerfile; and the words that it is given to read. Of a folder
the small files are read, within the bounds of ``mounted_folder``; a warning says what was not. What
is external, or in an image, can't be seen here. A place never carries its line: that may show the
value.

A file that Compose must have is an error when it is not there, as Compose would say later; one that
it need not have, or that may come to be where the pod runs (a secret's), is passed over. Files may
be outside of the pod's directory: nothing of them is written anywhere. Each is read once, however
many agents have it.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from claw_compile import codes
from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Note, Span, quote
from claw_compile.grammar.pod import PodSecret, PodSpec, ServiceSpec, own_entries
from claw_compile.loading.build_context import declared_variables, dockerfile, fill_in
from claw_compile.loading.files import Files, read_file
from claw_compile.loading.mounted_folder import FolderContent, read_folder
from claw_compile.loading.private_paths import (
    ComposeService,
    Exposure,
    PrivatePaths,
    expand_home,
    mounted_names,
)
from claw_compile.parsing.dotenv import Assignment, read_env_file
from claw_compile.parsing.environment import Lookup, Variables, interpolate, variables
from claw_compile.parsing.node import (
    Entry,
    ListNode,
    MapNode,
    Node,
    Source,
    child,
    entries_of,
    items_of,
    scalars,
)
from claw_compile.parsing.yaml_reader import read_yaml

type Kind = Literal["variable", "text", "file", "prose"]
"""``file``: names may stand in it beside their values. ``prose``: words for the agent to read."""

_REFERENCE = re.compile(r"\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class LeakInput:
    """One text.

    ``what`` names it in messages; ``refers`` are the variables in it; ``source`` is set for a whole
    file.
    """

    what: str
    at: Span
    text: str = field(repr=False)
    kind: Kind
    name: str = ""
    refers: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    source: Source | None = field(default=None, repr=False)

    def place(self, start: int, end: int) -> Span:
        """Return the place of a piece of the text, without the line."""
        return hide_line(self.source.span_of(start, end)) if self.source is not None else self.at


def hide_line(span: Span) -> Span:
    """Return a place whose line is never shown."""
    return Span(span.file, span.line, span.column, span.end_column)


def file_input(what: str, source: Source, kind: Kind, notes: tuple[Note, ...] = ()) -> LeakInput:
    return LeakInput(
        what, Span(source.file, 1, 1, 1), source.text, kind, notes=notes, source=source
    )


def variable_inputs(
    what: str, node: Node | None, lookup: Lookup, notes: tuple[Note, ...]
) -> Iterator[LeakInput]:
    """Yield variables in map or list form.

    One without a value takes it from the environment, by its own name.
    """
    for each in variables(node, lookup):
        bare = each.node.text == each.name and each.value.tainted
        refers = (each.name,) if bare else references(each.node.text)
        label = f"{each.name} in {what}"
        yield LeakInput(
            label, hide_line(each.key), each.value.text, "variable", each.name, refers, notes
        )


def text_inputs(
    what: str, node: Node, lookup: Lookup, notes: tuple[Note, ...]
) -> Iterator[LeakInput]:
    for scalar in scalars(node):
        text = interpolate(scalar.text, lookup).text if "$" in scalar.text else scalar.text
        if text:
            yield LeakInput(
                what,
                hide_line(scalar.span),
                text,
                "text",
                refers=references(scalar.text),
                notes=notes,
            )


def references(written: str) -> tuple[str, ...]:
    if "$" not in written:
        return ()
    return tuple(match["name"] for match in _REFERENCE.finditer(written.replace("$$", "")))


_HOOKS = ("post_start", "pre_stop")
_RUNTIME = ".claw-runtime"


_SETTINGS = re.compile(
    r"\.?env(\..*)?|.*\.(env|envrc|ini|cfg|conf|config|properties|toml|ya?ml|json|sh|txt)|[^.]+|\.[^.]+",
    re.IGNORECASE,
)
"""Names of files in which an assignment is a setting; in others, as source code, it
may name a variable only.
"""


@dataclass(frozen=True)
class AgentService:
    """The Compose keys of an agent's service, or of one that it extends, and the
    paths of the host that they give it.
    """

    body: MapNode
    exposures: tuple[Exposure, ...]


@dataclass(frozen=True)
class LeakInputs:
    pod: PodSpec
    files: Files
    variables: Variables
    contracts: Mapping[str, bytes]
    skills: Mapping[str, SkillFile]
    texts: dict[str, Source] = field(default_factory=dict)
    folders: dict[Path, FolderContent] = field(default_factory=dict)

    def collect(self) -> Mapping[str, tuple[LeakInput, ...]]:
        """Return agent's service → the inputs of each of its containers."""
        self.files.diagnostics.extend(self._private.check_surfaces())
        return {agent.name.text: tuple(self._agent_inputs(agent)) for agent in self.pod.agents}

    @property
    def _private(self) -> PrivatePaths:
        return PrivatePaths(
            self.pod,
            self.files,
            self.variables.lookup,
            lambda service: [each for each, _ in self._ancestry(service)],
        )

    def services(self) -> Mapping[str, tuple[AgentService, ...]]:
        """Return each agent's service and those that it extends, each with the
        paths that it gives.
        """
        return {agent.name.text: tuple(self._services(agent)) for agent in self.pod.agents}

    def _services(self, agent: ServiceSpec) -> Iterator[AgentService]:
        if agent.body is None:
            return
        own = ComposeService("", agent.name.text, agent.body, self.pod.document, agent.name.span)
        for service, _ in self._ancestry(own):
            yield AgentService(service.body, tuple(self._private.folders(service)))

    def secrets(self) -> Mapping[str, str]:
        """Return the pod's secrets that are known here, by name."""
        values = ((secret.name.text, self._secret(secret)) for secret in self.pod.secrets)
        return {name: value for name, value in values if value}

    def text(self, path: str, at: Span, what: str, *, required: bool) -> Source | None:
        """Return the text of a file, by its path from the pod's directory."""
        if path in self.texts:
            return self.texts[path]
        shown = self.files.display_path(path)
        data = read_file(self.files.root / path, at, f"{what} {quote(shown)}")
        if data.value is None:
            self.files.diagnostics.extend(data.diagnostics if required else ())
            return None
        return self.texts.setdefault(
            path, Source(shown, data.value.decode("utf-8-sig", errors="replace"))
        )

    def _secret(self, secret: PodSecret) -> str | None:
        if secret.source == "env":
            return self.variables.lookup(secret.reference.text)
        source = self.text(
            secret.reference.text, secret.reference.span, "the secret", required=False
        )
        return source.text.strip() if source is not None else None

    def _agent_inputs(self, agent: ServiceSpec) -> Iterator[LeakInput]:
        yield from self._prose(agent)
        private = self._private
        for owner in (agent, self.pod):
            for exposure in private.surfaces(owner):
                yield from self._mounted(agent, exposure, ())
        if agent.body is None:
            return

        own = ComposeService("", agent.name.text, agent.body, self.pod.document, agent.name.span)
        for service, notes in self._ancestry(own):
            yield from Container(self, agent, service.directory, notes).inputs(service.body)
            self.files.diagnostics.extend(private.check_service(service))
            for exposure in private.folders(service):
                yield from self._mounted(agent, exposure, notes)

    def _ancestry(self, own: ComposeService) -> Iterator[tuple[ComposeService, tuple[Note, ...]]]:
        """Yield a service and each that it extends, with notes that say where."""
        seen: set[tuple[str, str]] = set()
        notes: tuple[Note, ...] = ()
        service: ComposeService | None = own
        while service is not None and (service.file, service.name) not in seen:
            seen.add((service.file, service.name))
            yield service, notes
            parent = self._parent(service)
            if parent is not None:
                notes = (
                    *notes,
                    Note(hide_line(parent.said), f"{service.name} extends {parent.name} here"),
                )
            service = parent

    def _mounted(
        self, agent: ServiceSpec, exposure: Exposure, notes: tuple[Note, ...]
    ) -> Iterator[LeakInput]:
        if exposure.path:
            notes = (*notes, Note(hide_line(exposure.at), f"{agent.name.text} takes it here"))
            yield from self.exposed(exposure, notes, "a mounted file")

    def exposed(
        self, exposure: Exposure, notes: tuple[Note, ...], what: str
    ) -> Iterator[LeakInput]:
        """Yield the file, or the files of the folder."""
        private = self._private
        path = private.path(exposure)
        if not self._is_folder(path):
            if (source := self.text(path, exposure.at, what, required=False)) is not None:
                yield file_input(what, source, "file", notes)
            return
        if private.is_refused(exposure):
            return

        content = self._folder(path)
        for file in content.files:
            shown = self.files.display_path(posixpath.join(path, file.path))
            kind: Kind = "file" if _SETTINGS.fullmatch(posixpath.basename(file.path)) else "prose"
            yield file_input("a file in a mounted folder", Source(shown, file.text), kind, notes)
        if content.unread:
            what = "; ".join(content.unread)
            message = (
                f"of {quote(exposure.path)} these files were not searched for credentials: {what}"
            )
            self.files.diagnostics.append(codes.FOLDER_PARTLY_READ.at(exposure.at, message))

    def _is_folder(self, path: str) -> bool:
        try:
            return (self.files.root / path).is_dir()
        except (OSError, ValueError):
            return False

    def _folder(self, path: str) -> FolderContent:
        folder = self.files.root / path
        if folder not in self.folders:
            self.folders[folder] = read_folder(folder)
        return self.folders[folder]

    def _prose(self, agent: ServiceSpec) -> Iterator[LeakInput]:
        contract = self.contracts.get(agent.name.text)
        if contract is not None and agent.agent is not None:
            yield file_input("the contract", self._source(agent.agent.shown, contract), "prose")
        paths = (path for owner in (agent, self.pod) for path in own_entries(owner.skills))
        for path in {path.text: path for path in paths}.values():
            if path.text in self.skills:
                yield file_input(
                    "a skill", self._source(path.shown, self.skills[path.text].content), "prose"
                )

    def _source(self, path: str, content: bytes) -> Source:
        return Source(self.files.display_path(path), content.decode(errors="replace"))

    def _parent(self, service: ComposeService) -> ComposeService | None:
        extends = service.body.value("extends")
        node = extends.value("service") if isinstance(extends, MapNode) else extends
        name = fill_in(node, self.variables.lookup)
        if node is None or name is None:
            return None
        file = fill_in(child(extends, "file"), self.variables.lookup)
        path, document = service.file, service.document
        if file is not None:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(service.file), file))
            source = self.text(path, node.span, "the extended file", required=True)
            read = read_yaml(source) if source is not None else None
            self.files.diagnostics.extend(read.diagnostics if read is not None else ())
            if read is None or read.value is None:
                return None
            document = read.value
        body = child(document, "services", name)
        return (
            ComposeService(path, name, body, document, node.span)
            if isinstance(body, MapNode)
            else None
        )


@dataclass(frozen=True)
class Container:
    """One container of an agent.

    ``directory`` is that of its Compose file, ``notes`` say how the agent gets it.
    """

    collection: LeakInputs
    agent: ServiceSpec
    directory: str
    notes: tuple[Note, ...]

    def inputs(self, body: MapNode) -> Iterator[LeakInput]:
        for entry in body.entries:
            yield from self._key_inputs(entry)

    def _key_inputs(self, entry: Entry) -> Iterator[LeakInput]:
        lookup, node = self.collection.variables.lookup, entry.value
        match entry.key.text:
            case "x-claw" | "extends":
                return
            case "environment":
                yield from variable_inputs("the environment", node, lookup, self.notes)
            case "env_file":
                yield from self._env_file_inputs(node)
            case "secrets" | "configs" as section:
                yield from self._secret_inputs(section, node)
            case "build":
                yield from self._build_inputs(node)
            case key:
                yield from text_inputs(f"'{key}'", node, lookup, self.notes)
                if key in _HOOKS:
                    for hook in items_of(node):
                        environment = child(hook, "environment")
                        yield from variable_inputs(
                            f"the environment of '{key}'", environment, lookup, self.notes
                        )

    def _env_file_inputs(self, node: Node) -> Iterator[LeakInput]:
        for item in node.items if isinstance(node, ListNode) else (node,):
            named_by = item.value("path") if isinstance(item, MapNode) else item
            path = fill_in(named_by, self.collection.variables.lookup)
            if path is None or named_by is None or self._is_its_own(path):
                continue
            required = fill_in(child(item, "required"), self.collection.variables.lookup)
            is_raw = fill_in(child(item, "format"), self.collection.variables.lookup) == "raw"
            source = self._text(path, named_by, "the env_file", required=required != "false")
            if source is not None:
                notes = (
                    *self.notes,
                    Note(hide_line(named_by.span), f"{self.agent.name.text} takes it here"),
                )
                yield from self._assignments(source, notes, is_raw=is_raw)

    def _is_its_own(self, path: str) -> bool:
        """Return whether the compiler writes this file for this agent: it may not be there yet."""
        own = f"{_RUNTIME}/agents/{self.agent.name.text}/env"
        return (
            self.agent.count == 1
            and posixpath.normpath(posixpath.join(self.directory, path)) == own
        )

    def _assignments(
        self, source: Source, notes: tuple[Note, ...], *, is_raw: bool
    ) -> Iterator[LeakInput]:
        variables = self.collection.variables
        if is_raw:
            lines = (
                (number, line.strip())
                for number, line in enumerate(source.text.split("\n"), start=1)
            )
            parts = (
                (number, line.partition("=")) for number, line in lines if line[:1] not in {"", "#"}
            )
            assigned = tuple(
                Assignment(name, value if sign else None, number)
                for number, (name, sign, value) in parts
            )
        else:
            read = read_env_file(source, {**variables.dotenv, **variables.environ})
            self.collection.files.diagnostics.extend(read.diagnostics)
            assigned = read.value or ()
        for each in assigned:
            at = Span(source.file, each.line, 1, 1 + len(each.name))
            refers = references(each.written) if each.value is not None else (each.name,)
            value = each.value if each.value is not None else variables.lookup(each.name) or ""
            yield LeakInput(
                f"{each.name} in the env_file", at, value, "variable", each.name, refers, notes
            )

    def _secret_inputs(self, section: str, node: Node) -> Iterator[LeakInput]:
        """Yield secrets or configs, as the pod declares them; of an external one
        nothing is known.
        """
        lookup = self.collection.variables.lookup
        for name in mounted_names(node):
            declared = child(self.collection.pod.document, section, name.text)
            what = f"the {section[:-1]} '{name.text}'"
            notes = (
                *self.notes,
                Note(hide_line(name.span), f"{self.agent.name.text} takes it here"),
            )
            for key, value in ((each.key.text, each.value) for each in entries_of(declared)):
                if key == "environment" and (variable := fill_in(value, lookup)) is not None:
                    held = lookup(variable) or ""
                    yield LeakInput(
                        what, hide_line(value.span), held, "variable", variable, (variable,), notes
                    )
                elif key == "content":
                    yield from text_inputs(what, value, lookup, notes)
                elif key == "file" and (path := fill_in(value, lookup)) is not None:
                    yield from self.collection.exposed(Exposure(value.span, path), notes, what)

    def _build_inputs(self, node: Node) -> Iterator[LeakInput]:
        lookup = self.collection.variables.lookup
        for entry in entries_of(node):
            match entry.key.text:
                case "args":
                    yield from variable_inputs("the build args", entry.value, lookup, self.notes)
                case "secrets":
                    yield from self._secret_inputs("secrets", entry.value)
                case key:
                    yield from text_inputs(f"'build.{key}'", entry.value, lookup, self.notes)
        source = dockerfile(node, self.collection.files, lookup, self.directory)
        if source is None:
            return
        inline = child(node, "dockerfile_inline")
        if inline is None:
            yield file_input("the Dockerfile", source, "text", self.notes)
        for name, value in declared_variables(source):
            at = hide_line(value.span if inline is None else inline.span)
            refers = references(value.text)
            yield LeakInput(
                f"{name} in the Dockerfile", at, value.text, "variable", name, refers, self.notes
            )

    def _text(self, path: str, node: Node, what: str, *, required: bool) -> Source | None:
        whole = posixpath.normpath(
            posixpath.join(self.directory, expand_home(path, self.collection.variables.lookup))
        )
        return self.collection.text(whole, node.span, what, required=required)
