"""The collection of leak inputs: agents' services, the services that these extend, and the files that they name.

Rules. A file that Compose must have is an error when it is not there, as Compose would say later; one that it need not have,
or that may come to be where the pod runs (a secret's), is passed over. Files may be outside of the pod's directory: nothing of
them is written anywhere. Each is read once, however many agents have it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from claw_compile.descriptors.skill import SkillFile
from claw_compile.diagnostics.diagnostic import Note, Span, quote
from claw_compile.grammar.pod import PodSecret, PodSpec, ServiceSpec, own_entries
from claw_compile.loading.build_context import fill_in
from claw_compile.loading.files import Files, read_file
from claw_compile.loading.leak_scan.container import Container
from claw_compile.loading.leak_scan.inputs import LeakInput, file_input, hide_line
from claw_compile.loading.leak_scan.private_paths import PrivatePaths
from claw_compile.parsing.environment import Variables
from claw_compile.parsing.node import MapNode
from claw_compile.parsing.source import Source
from claw_compile.parsing.yaml_reader import read_yaml


@dataclass(frozen=True)
class _ParentService:
    """A service that another one extends: its ``file`` ("" for the pod's own), its name there, and the place that says so."""

    file: str
    name: str
    body: MapNode
    document: MapNode
    said: Span


@dataclass(frozen=True)
class LeakInputs:
    """One collection for all agents of a pod."""

    pod: PodSpec
    files: Files
    variables: Variables
    contracts: Mapping[str, bytes]
    skills: Mapping[str, SkillFile]
    texts: dict[str, Source] = field(default_factory=dict)

    def collect(self) -> Mapping[str, tuple[LeakInput, ...]]:
        """Return agent's service → the inputs of each of its containers."""
        self.files.diagnostics.extend(self._private.check_surfaces())
        return {agent.name.text: tuple(self._agent_inputs(agent)) for agent in self.pod.agents}

    @property
    def _private(self) -> PrivatePaths:
        return PrivatePaths(self.pod, self.files, self.variables.lookup)

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
        return self.texts.setdefault(path, Source(shown, data.value.decode("utf-8-sig", errors="replace")))

    def _secret(self, secret: PodSecret) -> str | None:
        if secret.source == "env":
            return self.variables.lookup(secret.reference.text)
        source = self.text(secret.reference.text, secret.reference.span, "the secret", required=False)
        return source.text.strip() if source is not None else None

    def _agent_inputs(self, agent: ServiceSpec) -> Iterator[LeakInput]:
        yield from self._prose(agent)
        if agent.body is None:
            return
        yield from Container(self, agent, "", ()).inputs(agent.body)
        self.files.diagnostics.extend(self._private.check_service(agent.body, self.pod.document, ""))
        own = _ParentService("", agent.name.text, agent.body, self.pod.document, agent.name.span)
        seen = {(own.file, own.name)}
        notes: tuple[Note, ...] = ()
        while (parent := self._parent(own)) is not None and (parent.file, parent.name) not in seen:
            seen.add((parent.file, parent.name))
            notes = (*notes, Note(hide_line(parent.said), f"{own.name} extends {parent.name} here"))
            directory = posixpath.dirname(parent.file)
            yield from Container(self, agent, directory, notes).inputs(parent.body)
            self.files.diagnostics.extend(self._private.check_service(parent.body, parent.document, directory))
            own = parent

    def _prose(self, agent: ServiceSpec) -> Iterator[LeakInput]:
        contract = self.contracts.get(agent.name.text)
        if contract is not None and agent.agent is not None:
            yield file_input("the contract", self._source(agent.agent.shown, contract), "prose")
        paths = (skill.path for owner in (agent, self.pod) for skill in own_entries(owner.skills))
        for path in {path.text: path for path in paths}.values():
            if path.text in self.skills:
                yield file_input("a skill", self._source(path.shown, self.skills[path.text].content), "prose")

    def _source(self, path: str, content: bytes) -> Source:
        return Source(self.files.display_path(path), content.decode(errors="replace"))

    def _parent(self, child: _ParentService) -> _ParentService | None:
        extends = child.body.value("extends")
        node = extends.value("service") if isinstance(extends, MapNode) else extends
        name = fill_in(node, self.variables.lookup)
        if node is None or name is None:
            return None
        file = fill_in(extends.value("file"), self.variables.lookup) if isinstance(extends, MapNode) else None
        path, document = child.file, child.document
        if file is not None:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(child.file), file))
            source = self.text(path, node.span, "the extended file", required=True)
            read = read_yaml(source) if source is not None else None
            self.files.diagnostics.extend(read.diagnostics if read is not None else ())
            if read is None or read.value is None:
                return None
            document = read.value
        services = document.value("services")
        body = services.value(name) if isinstance(services, MapNode) else None
        return _ParentService(path, name, body, document, node.span) if isinstance(body, MapNode) else None
