"""Leak inputs: the texts that an agent's container gets and that may hold a credential.

Each comes with its place.

Rules. Every value of the agent's Compose service counts, and of each service that it extends:
variables by name and value, other keys by value. So do the files that ``env_file``, ``secrets``,
``configs``, mounts (``volumes``, ``volumes_from``, volumes that are bound to a path,
``develop.watch``, surfaces) and the Dockerfile name, and the words that the agent is given to read.
Of a folder the small files are read, within the bounds of ``mounted_folder``; a warning says what
was not. What is external, or in an image, can't be seen here. A place never carries its line: that
may show the value.

A file that Compose must have is an error when it is not there, as Compose would say later. A file
that it need not have, or that may come to be where the pod runs (a secret's), is passed over. Files
may be outside of the pod's directory: nothing of them is written anywhere. Each is read once,
however many agents have it.
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
    ScalarNode,
    Source,
    child,
    entries_of,
    items_of,
    scalars,
)
from claw_compile.parsing.yaml_reader import read_yaml

type Kind = Literal["variable", "text", "file", "prose"]
"""``file``: it may name its values, as settings do. ``prose``: words for the agent to read."""

_REFERENCE = re.compile(r"\$\{?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_HOOKS = ("post_start", "pre_stop")
_RUNTIME = ".claw-runtime"
_SETTINGS = re.compile(
    r"\.?env(\..*)?"
    r"|.*\.(env|envrc|ini|cfg|conf|config|properties|toml|ya?ml|json|sh|txt)"
    r"|[^.]+|\.[^.]+",
    re.IGNORECASE,
)
"""Names of files in which an assignment is a setting.

In other files, such as source code, an assignment may only name a variable.
"""


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
    start = Span(source.file, 1, 1, 1)
    return LeakInput(what, start, source.text, kind, notes=notes, source=source)


def variable_inputs(
    what: str, node: Node | None, lookup: Lookup, notes: tuple[Note, ...]
) -> Iterator[LeakInput]:
    """Yield variables in map or list form.

    One without a value takes it from the environment, by its own name.
    """
    for each in variables(node, lookup):
        # ``variables`` gives a name without a value its own name as its text.
        takes_own_name = each.node.text == each.name and each.value.tainted
        refers = (each.name,) if takes_own_name else references(each.node.text)
        yield LeakInput(
            what=f"{each.name} in {what}",
            at=hide_line(each.key),
            text=each.value.text,
            kind="variable",
            name=each.name,
            refers=refers,
            notes=notes,
        )


def text_inputs(
    what: str, node: Node, lookup: Lookup, notes: tuple[Note, ...]
) -> Iterator[LeakInput]:
    """Yield every single value in a tree, its variables filled in."""
    for scalar in scalars(node):
        text = interpolate(scalar.text, lookup).text if "$" in scalar.text else scalar.text
        if text:
            refers = references(scalar.text)
            at = hide_line(scalar.span)
            yield LeakInput(what, at, text, "text", refers=refers, notes=notes)


def references(written: str) -> tuple[str, ...]:
    """Return the names of the variables in a value as it is written."""
    if "$" not in written:
        return ()
    # "$$" is a dollar sign of the value.
    return tuple(match["name"] for match in _REFERENCE.finditer(written.replace("$$", "")))


@dataclass(frozen=True)
class AgentService:
    """The Compose keys of an agent's service, or of one that it extends.

    ``exposures`` are the paths of the host that they give it.
    """

    body: MapNode
    exposures: tuple[Exposure, ...]


@dataclass(frozen=True)
class LeakInputs:
    """The leak inputs of a pod; ``texts`` and ``folders`` hold what was read, by path."""

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
        lookup = self.variables.lookup
        return PrivatePaths(self.pod, self.files, lookup, self._with_parents)

    def _with_parents(self, service: ComposeService) -> list[ComposeService]:
        return [each for each, _ in self._ancestry(service)]

    def services(self) -> Mapping[str, tuple[AgentService, ...]]:
        """Return each agent's service and those that it extends, with the paths that they give."""
        return {agent.name.text: tuple(self._services(agent)) for agent in self.pod.agents}

    def _services(self, agent: ServiceSpec) -> Iterator[AgentService]:
        if agent.body is None:
            return

        own = ComposeService("", agent.name.text, agent.body, self.pod.document, agent.name.span)
        for service in self._with_parents(own):
            yield AgentService(service.body, tuple(self._private.folders(service)))

    def secrets(self) -> Mapping[str, str]:
        """Return the pod's secrets that are known here, by name."""
        values: dict[str, str] = {}
        for secret in self.pod.secrets:
            text = self._secret(secret)
            if text:
                values[secret.name.text] = text
        return values

    def text(self, path: str, at: Span, what: str, *, is_required: bool) -> Source | None:
        """Return the text of a file, by its path from the pod's directory."""
        if path in self.texts:
            return self.texts[path]

        shown_path = self.files.display_path(path)
        data = read_file(self.files.root / path, at, f"{what} {quote(shown_path)}")
        if data.value is None:
            if is_required:
                self.files.diagnostics.extend(data.diagnostics)
            return None

        self.texts[path] = Source(shown_path, data.value.decode("utf-8-sig", errors="replace"))
        return self.texts[path]

    def _secret(self, secret: PodSecret) -> str | None:
        reference = secret.reference
        if secret.source == "env":
            return self.variables.lookup(reference.text)

        source = self.text(reference.text, reference.span, "the secret", is_required=False)
        return source.text.strip() if source is not None else None

    def _agent_inputs(self, agent: ServiceSpec) -> Iterator[LeakInput]:
        """Yield everything that one agent gets, and report what of it is private."""
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
        """Yield a service and each that it extends, with notes that say where.

        A circle of services ends with the first that was seen.
        """
        seen: set[tuple[str, str]] = set()
        notes: tuple[Note, ...] = ()
        service: ComposeService | None = own
        while service is not None and (service.file, service.name) not in seen:
            seen.add((service.file, service.name))
            yield service, notes

            parent = self._parent(service)
            if parent is not None:
                message = f"{service.name} extends {parent.name} here"
                notes = (*notes, Note(hide_line(parent.named_at), message))
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
            source = self.text(path, exposure.at, what, is_required=False)
            if source is not None:
                yield file_input(what, source, "file", notes)
            return

        # A private folder is reported as a whole, and its files are not read.
        if private.is_refused(exposure):
            return

        content = self._folder(path)
        for file in content.files:
            shown_path = self.files.display_path(posixpath.join(path, file.path))
            is_settings = _SETTINGS.fullmatch(posixpath.basename(file.path)) is not None
            kind: Kind = "file" if is_settings else "prose"
            yield file_input(
                "a file in a mounted folder", Source(shown_path, file.text), kind, notes
            )

        if content.unread:
            unread = "; ".join(content.unread)
            message = (
                f"of {quote(exposure.path)} these files were not searched for credentials: {unread}"
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
        """Yield the contract, and each of the agent's skills once."""
        contract = self.contracts.get(agent.name.text)
        if contract is not None and agent.agent is not None:
            yield file_input("the contract", self._source(agent.agent.shown, contract), "prose")

        paths: dict[str, ScalarNode] = {}
        for owner in (agent, self.pod):
            for path in own_entries(owner.skills):
                paths[path.text] = path
        for path in paths.values():
            skill = self.skills.get(path.text)
            if skill is not None:
                yield file_input("a skill", self._source(path.shown, skill.content), "prose")

    def _source(self, path: str, content: bytes) -> Source:
        return Source(self.files.display_path(path), content.decode(errors="replace"))

    def _parent(self, service: ComposeService) -> ComposeService | None:
        """Return the service that another one extends, ``extends: NAME`` or ``{service, file}``."""
        lookup = self.variables.lookup
        extends = service.body.value("extends")
        node = extends.value("service") if isinstance(extends, MapNode) else extends
        name = fill_in(node, lookup)
        if node is None or name is None:
            return None

        path = service.file
        document = service.document
        file = fill_in(child(extends, "file"), lookup)
        if file is not None:
            # Relative to the file that names it, which may be an extended one itself.
            path = posixpath.normpath(posixpath.join(posixpath.dirname(service.file), file))
            source = self.text(path, node.span, "the extended file", is_required=True)
            if source is None:
                return None

            extended_file = read_yaml(source)
            self.files.diagnostics.extend(extended_file.diagnostics)
            if extended_file.value is None:
                return None
            document = extended_file.value

        body = child(document, "services", name)
        if not isinstance(body, MapNode):
            return None
        return ComposeService(path, name, body, document, node.span)


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
        lookup = self.collection.variables.lookup
        node = entry.value
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
                    yield from self._hook_inputs(key, node)

    def _hook_inputs(self, key: str, node: Node) -> Iterator[LeakInput]:
        """Yield the variables of each hook, whose values came already: here they have names."""
        what = f"the environment of '{key}'"
        lookup = self.collection.variables.lookup
        for hook in items_of(node):
            yield from variable_inputs(what, child(hook, "environment"), lookup, self.notes)

    def _taken_at(self, span: Span) -> tuple[Note, ...]:
        note = Note(hide_line(span), f"{self.agent.name.text} takes it here")
        return (*self.notes, note)

    def _env_file_inputs(self, node: Node) -> Iterator[LeakInput]:
        """Yield the variables of ``env_file``.

        It is a path, or a list of paths and of ``{path, required, format}``.
        """
        lookup = self.collection.variables.lookup
        for item in node.items if isinstance(node, ListNode) else (node,):
            named_by = item.value("path") if isinstance(item, MapNode) else item
            path = fill_in(named_by, lookup)
            if path is None or named_by is None or self._is_its_own(path):
                continue

            is_required = fill_in(child(item, "required"), lookup) != "false"
            is_raw = fill_in(child(item, "format"), lookup) == "raw"
            source = self._text(path, named_by, "the env_file", is_required=is_required)
            if source is not None:
                yield from self._assignments(source, self._taken_at(named_by.span), is_raw=is_raw)

    def _is_its_own(self, path: str) -> bool:
        """Return whether the compiler writes this file for this agent: it may not be there yet."""
        if self.agent.count != 1:
            return False

        own = f"{_RUNTIME}/agents/{self.agent.name.text}/env"
        return posixpath.normpath(posixpath.join(self.directory, path)) == own

    def _assignments(
        self, source: Source, notes: tuple[Note, ...], *, is_raw: bool
    ) -> Iterator[LeakInput]:
        """Yield the variables of an env file.

        A name without a value takes it from the environment.
        """
        variables = self.collection.variables
        if is_raw:
            assignments = tuple(_raw_assignments(source.text))
        else:
            file_result = read_env_file(source, {**variables.dotenv, **variables.environ})
            self.collection.files.diagnostics.extend(file_result.diagnostics)
            assignments = file_result.value or ()

        for each in assignments:
            if each.value is not None:
                value = each.value
                refers = references(each.written)
            else:
                value = variables.lookup(each.name) or ""
                refers = (each.name,)
            yield LeakInput(
                what=f"{each.name} in the env_file",
                at=Span(source.file, each.line, 1, 1 + len(each.name)),
                text=value,
                kind="variable",
                name=each.name,
                refers=refers,
                notes=notes,
            )

    def _secret_inputs(self, section: str, node: Node) -> Iterator[LeakInput]:
        """Yield secrets or configs, as the pod declares them.

        Of an external one nothing is known.
        """
        for name in mounted_names(node):
            declaration = child(self.collection.pod.document, section, name.text)
            what = f"the {section[:-1]} '{name.text}'"
            for entry in entries_of(declaration):
                yield from self._declared_inputs(what, entry, self._taken_at(name.span))

    def _declared_inputs(
        self, what: str, entry: Entry, notes: tuple[Note, ...]
    ) -> Iterator[LeakInput]:
        """Yield the content of a secret or config: a variable, a file, or a text of the pod."""
        lookup = self.collection.variables.lookup
        value = entry.value
        match entry.key.text:
            case "environment" if (variable := fill_in(value, lookup)) is not None:
                yield LeakInput(
                    what=what,
                    at=hide_line(value.span),
                    text=lookup(variable) or "",
                    kind="variable",
                    name=variable,
                    refers=(variable,),
                    notes=notes,
                )
            case "content":
                yield from text_inputs(what, value, lookup, notes)
            case "file" if (path := fill_in(value, lookup)) is not None:
                yield from self.collection.exposed(Exposure(value.span, path), notes, what)

    def _build_inputs(self, node: Node) -> Iterator[LeakInput]:
        """Yield the keys of a build, and its Dockerfile: who has the image can read them."""
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

        # An inline Dockerfile is a value of the pod file, which the loop above has yielded.
        inline = child(node, "dockerfile_inline")
        if inline is None:
            yield file_input("the Dockerfile", source, "text", self.notes)
        for name, value in declared_variables(source):
            yield LeakInput(
                what=f"{name} in the Dockerfile",
                at=hide_line(value.span if inline is None else inline.span),
                text=value.text,
                kind="variable",
                name=name,
                refers=references(value.text),
                notes=self.notes,
            )

    def _text(self, path: str, node: Node, what: str, *, is_required: bool) -> Source | None:
        expanded_path = expand_home(path, self.collection.variables.lookup)
        from_pod = posixpath.normpath(posixpath.join(self.directory, expanded_path))
        return self.collection.text(from_pod, node.span, what, is_required=is_required)


def _raw_assignments(text: str) -> Iterator[Assignment]:
    """Yield the lines of an env file with ``format: raw``: nothing is quoted or filled in."""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue

        name, sign, value = stripped.partition("=")
        yield Assignment(name, value if sign else None, number)
