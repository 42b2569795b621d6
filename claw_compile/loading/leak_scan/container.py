"""The inputs of one Compose service: key by key, with the files that stand behind a key."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from claw_compile.descriptors.dockerfile import declared_variables
from claw_compile.diagnostics.diagnostic import Note, Span
from claw_compile.grammar.pod import PodSpec, ServiceSpec
from claw_compile.loading.build_context import dockerfile, fill_in
from claw_compile.loading.files import Files
from claw_compile.loading.leak_scan.inputs import (
    LeakInput,
    file_input,
    hide_line,
    mounted_names,
    references,
    text_inputs,
    variable_inputs,
)
from claw_compile.loading.leak_scan.private_paths import bind_source, expand_home
from claw_compile.parsing.dotenv import Assignment, read_env_file
from claw_compile.parsing.environment import Variables
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node
from claw_compile.parsing.source import Source

_HOOKS = ("post_start", "pre_stop")
_RUNTIME = ".claw-runtime"


class FileReader(Protocol):
    """The reader of files that all agents share."""

    @property
    def pod(self) -> PodSpec: ...
    @property
    def files(self) -> Files: ...
    @property
    def variables(self) -> Variables: ...
    def text(self, path: str, at: Span, what: str, *, required: bool) -> Source | None: ...


@dataclass(frozen=True)
class Container:
    """One container of an agent. ``directory`` is that of its Compose file, ``notes`` say how the agent gets it."""

    reader: FileReader
    agent: ServiceSpec
    directory: str
    notes: tuple[Note, ...]

    def inputs(self, body: MapNode) -> Iterator[LeakInput]:
        """Yield everything in the body of a service, but what the compiler adds."""
        for entry in body.entries:
            yield from self._key_inputs(entry)

    def _key_inputs(self, entry: Entry) -> Iterator[LeakInput]:
        lookup, node = self.reader.variables.lookup, entry.value
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
                    for hook in node.items if isinstance(node, ListNode) else ():
                        environment = hook.value("environment") if isinstance(hook, MapNode) else None
                        yield from variable_inputs(f"the environment of '{key}'", environment, lookup, self.notes)
                if key == "volumes":
                    yield from self._bind_mounts(node)

    def _env_file_inputs(self, node: Node) -> Iterator[LeakInput]:
        for item in node.items if isinstance(node, ListNode) else (node,):
            parts = item if isinstance(item, MapNode) else None
            named_by = parts.value("path") if parts else item
            path = fill_in(named_by, self.reader.variables.lookup)
            if path is None or named_by is None or self._is_its_own(path):
                continue
            required = fill_in(parts.value("required"), self.reader.variables.lookup) if parts else None
            is_raw = parts is not None and fill_in(parts.value("format"), self.reader.variables.lookup) == "raw"
            source = self._text(path, named_by, "the env_file", required=required != "false")
            if source is not None:
                notes = (*self.notes, Note(hide_line(named_by.span), f"{self.agent.name.text} takes it here"))
                yield from self._assignments(source, notes, is_raw=is_raw)

    def _is_its_own(self, path: str) -> bool:
        """Return whether the compiler writes this file for this agent: it may not be there yet."""
        own = f"{_RUNTIME}/agents/{self.agent.name.text}/env"
        return self.agent.count == 1 and posixpath.normpath(posixpath.join(self.directory, path)) == own

    def _assignments(self, source: Source, notes: tuple[Note, ...], *, is_raw: bool) -> Iterator[LeakInput]:
        variables = self.reader.variables
        if is_raw:
            lines = enumerate(source.text.split("\n"), start=1)
            parts = (
                (number, line.strip().partition("=")) for number, line in lines if line.strip()[:1] not in ("", "#")
            )
            assigned = tuple(Assignment(name, value if sign else None, number) for number, (name, sign, value) in parts)
        else:
            read = read_env_file(source, {**variables.dotenv, **variables.environ})
            self.reader.files.diagnostics.extend(read.diagnostics)
            assigned = read.value or ()
        for each in assigned:
            at = Span(source.file, each.line, 1, 1 + len(each.name))
            refers = references(each.written) if each.value is not None else (each.name,)
            value = each.value if each.value is not None else variables.lookup(each.name) or ""
            yield LeakInput(f"{each.name} in the env_file", at, value, "variable", each.name, refers, notes)

    def _secret_inputs(self, section: str, node: Node) -> Iterator[LeakInput]:
        """Yield secrets or configs, as the pod declares them; of an external one nothing is known."""
        lookup = self.reader.variables.lookup
        for name in mounted_names(node):
            all_of_them = self.reader.pod.document.value(section)
            declared_as = all_of_them.value(name.text) if isinstance(all_of_them, MapNode) else None
            if not isinstance(declared_as, MapNode):
                continue
            what = f"the {section[:-1]} '{name.text}'"
            notes = (*self.notes, Note(hide_line(name.span), f"{self.agent.name.text} takes it here"))
            for key, value in ((each.key.text, each.value) for each in declared_as.entries):
                if key == "environment" and (variable := fill_in(value, lookup)) is not None:
                    held = lookup(variable) or ""
                    yield LeakInput(what, hide_line(value.span), held, "variable", variable, (variable,), notes)
                elif key == "content":
                    yield from text_inputs(what, value, lookup, notes)
                elif key == "file" and (path := fill_in(value, lookup)) is not None:
                    source = self.reader.text(
                        posixpath.normpath(expand_home(path, lookup)), value.span, what, required=False
                    )
                    if source is not None:
                        yield file_input(what, source, "file", notes)

    def _build_inputs(self, node: Node) -> Iterator[LeakInput]:
        lookup = self.reader.variables.lookup
        for entry in node.entries if isinstance(node, MapNode) else ():
            match entry.key.text:
                case "args":
                    yield from variable_inputs("the build args", entry.value, lookup, self.notes)
                case "secrets":
                    yield from self._secret_inputs("secrets", entry.value)
                case key:
                    yield from text_inputs(f"'build.{key}'", entry.value, lookup, self.notes)
        source = dockerfile(node, self.reader.files, lookup, self.directory)
        if source is None:
            return
        inline = node.value("dockerfile_inline") if isinstance(node, MapNode) else None
        if inline is None:
            yield file_input("the Dockerfile", source, "text", self.notes)
        for name, value in declared_variables(source):
            at = hide_line(value.span if inline is None else inline.span)
            refers = references(value.text)
            yield LeakInput(f"{name} in the Dockerfile", at, value.text, "variable", name, refers, self.notes)

    def _bind_mounts(self, node: Node) -> Iterator[LeakInput]:
        """Yield files of the host that are mounted one by one."""
        for item in node.items if isinstance(node, ListNode) else ():
            path = bind_source(item, self.reader.variables.lookup)
            if path is None:
                continue
            source = self._text(path, item, "the mounted file", required=False)
            if source is not None:
                notes = (*self.notes, Note(hide_line(item.span), f"{self.agent.name.text} takes it here"))
                yield file_input("a mounted file", source, "file", notes)

    def _text(self, path: str, node: Node, what: str, *, required: bool) -> Source | None:
        whole = posixpath.normpath(posixpath.join(self.directory, expand_home(path, self.reader.variables.lookup)))
        return self.reader.text(whole, node.span, what, required=required)
