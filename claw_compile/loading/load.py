"""Load: the one phase that reads the disk.

The pod file, ``.env``, descriptors, contracts, skills, the master secret.

A descriptor names its skill by the path in the image. It is looked for beside a ``describe-file``
or a snapshot, and in the build context, as the descriptor itself is. The endpoints of a service
that has tools are not for its agents: a skill that tells them is reported.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.lock import LOCK_FILE, Lock, read_lock
from claw_compile.descriptors.rules import is_image_path
from claw_compile.descriptors.skill import SkillFile, read_skill
from claw_compile.diagnostics.diagnostic import Diagnostic, Result, Span, quote, start_of
from claw_compile.grammar.pod import PodSpec, ServiceSpec, own_entries
from claw_compile.grammar.pod_file import read_pod
from claw_compile.grammar.reader import Reader
from claw_compile.grammar.shapes import ValuePlace
from claw_compile.grammar.tools_host import TOOLHOST_FILE
from claw_compile.identity import MIN_MASTER
from claw_compile.loading.build_context import build_context, candidate_paths
from claw_compile.loading.descriptor_lookup import DISCOVERED, DescriptorLookup
from claw_compile.loading.files import Files, read_file
from claw_compile.loading.leak_inputs import AgentService, LeakInput, LeakInputs
from claw_compile.parsing.dotenv import read_dotenv
from claw_compile.parsing.environment import Lookup, Variables
from claw_compile.parsing.json_reader import read_json
from claw_compile.parsing.node import MapNode, ScalarNode, Source, decode, span_at
from claw_compile.parsing.yaml_reader import read_yaml
from claw_contract.names import SERVICE_NAME
from claw_contract.secret import Secret

_MIN_PATH = 3
MASTER_VARIABLE = "CLAW_MASTER_SECRET"
MASTER_FILE = ".claw-master"


@dataclass(frozen=True)
class LoadedPod:
    """All that the other phases need; none of them opens a file.

    A descriptor that can't be read is ``None``.

    ``skills`` are those that the pod names, by their paths.
    """

    pod: PodSpec
    descriptors: Mapping[str, ServiceDescriptor | None]
    contracts: Mapping[str, bytes]
    variables: Variables = field(repr=False)
    master: Secret | None = None
    skills: Mapping[str, SkillFile] = field(default_factory=dict)
    lock: Lock | None = None
    service_skills: Mapping[str, SkillFile] = field(default_factory=dict)
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The files that the pod names, by their path in its directory."""
    leak_inputs: Mapping[str, tuple[LeakInput, ...]] = field(default_factory=dict, repr=False)
    """The texts that each agent's container gets and that may hold a credential."""
    agent_services: Mapping[str, tuple[AgentService, ...]] = field(default_factory=dict, repr=False)
    """The Compose services that each agent is made of: its own, and those that it extends."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The values of the pod's secrets, as far as they are known here."""


def load(pod_file: Path, environ: Mapping[str, str]) -> Result[LoadedPod]:
    file = str(pod_file)
    data = read_file(pod_file, start_of(file), f"the pod file {quote(file)}")
    source = data.then(lambda content: decode(file, content))
    if source.value is None:
        return Result(None, source.diagnostics)
    document = read_yaml(source.value)
    variables = _variables(pod_file.parent, environ)
    diagnostics = [*document.diagnostics, *variables.diagnostics]
    if document.value is None or variables.value is None:
        return Result(None, tuple(diagnostics))
    return _files(pod_file, Files(pod_file.parent, diagnostics), document.value, variables.value)


def _files(
    pod_file: Path, files: Files, document: MapNode, variables: Variables
) -> Result[LoadedPod]:
    pod = read_pod(str(pod_file), document, variables.lookup)
    files.diagnostics.extend(pod.diagnostics)
    assert pod.value is not None
    spec = read_host_files(pod.value, files, variables.lookup)
    lock = _lock(files)
    described = DescriptorLookup(spec, files, lock, variables.lookup).all()
    contracts = {
        agent.name.text: text
        for agent in spec.agents
        if agent.agent is not None and (text := _contract(files, agent.agent)) is not None
    }
    master = _master(files, spec, variables)
    check_secret_files(spec, files)
    skills = read_named_skills(spec, files)
    service_skills = find_service_skills(spec, described, files, variables.lookup)
    leak_inputs = LeakInputs(spec, files, variables, contracts, skills)
    loaded = LoadedPod(
        *(spec, described, contracts, variables, master, skills, lock, service_skills, files.read),
        *(leak_inputs.collect(), leak_inputs.services(), leak_inputs.secrets()),
    )
    return Result(loaded, tuple(files.diagnostics))


def read_host_files(pod: PodSpec, files: Files, lookup: Lookup) -> PodSpec:
    """Return the pod with the settings of each ``toolhost.yml`` that it names; what stands in the
    pod file wins, key by key.
    """
    return replace(
        pod, services=tuple(_with_host_file(service, files, lookup) for service in pod.services)
    )


def _with_host_file(service: ServiceSpec, files: Files, lookup: Lookup) -> ServiceSpec:
    own = service.tools_host
    if (
        own is None
        or own.file is None
        or (data := files.read_named(own.file, "the settings of the tools host")) is None
    ):
        return service
    document = decode(files.display_path(own.file.shown), data).then(read_yaml)
    reader = Reader(lookup)
    file = (
        TOOLHOST_FILE.read(reader, document.value, ValuePlace("toolhost.yml", document.value.span))
        if document.value
        else None
    )
    files.diagnostics.extend((*document.diagnostics, *reader.diagnostics))
    if file is None:
        return service
    limits = {**file.host.get("limits", {}), **own.host.get("limits", {})}
    host = {**file.host, **own.host, **({"limits": limits} if limits else {})}
    return replace(service, tools_host=replace(own, tools={**file.tools, **own.tools}, host=host))


def _variables(directory: Path, environ: Mapping[str, str]) -> Result[Variables]:
    path = directory / ".env"
    if not path.is_file():
        return Result(Variables(environ, {}))
    source = read_file(path, start_of(str(path)), "'.env'").then(
        lambda content: decode(str(path), content)
    )
    if source.value is None:
        return Result(
            Variables(environ, {}), tuple(_without_text(each) for each in source.diagnostics)
        )
    values = read_dotenv(source.value, environ)
    return Result(Variables(environ, values.value or {}), values.diagnostics)


def _without_text(diagnostic: Diagnostic) -> Diagnostic:
    """Drop the line of a diagnostic: ``.env`` holds secrets."""
    at = diagnostic.span
    return diagnostic.code.at(Span(at.file, at.line, at.column, at.end_column), diagnostic.message)


def _contract(files: Files, path: ScalarNode) -> bytes | None:
    data = files.read_named(path, "the contract")
    if data is None:
        return None
    text = decode(files.display_path(path.shown), data)
    files.diagnostics.extend(text.diagnostics)
    return data if text.value is not None else None


def _lock(files: Files) -> Lock | None:
    text = files.read_if_present(LOCK_FILE, "the lock")
    if text is None:
        return None
    lock = text.then(read_json).then(lambda root: read_lock(files.display_path(LOCK_FILE), root))
    files.diagnostics.extend(lock.diagnostics)
    return lock.value


def _master(files: Files, spec: PodSpec, variables: Variables) -> Secret | None:
    """Return the pod's master secret, if there is one already; only a compile makes it."""
    text, origin = variables.lookup(MASTER_VARIABLE), MASTER_VARIABLE
    path = files.directory / MASTER_FILE
    at = spec.name.span if spec.name else start_of(spec.file)
    if text is None:
        if not path.exists():
            return None
        data = read_file(path, start_of(str(path)), MASTER_FILE)
        files.diagnostics.extend(data.diagnostics)
        if data.value is None:
            return None
        text, origin, at = (
            data.value.decode("ascii", errors="ignore").strip(),
            MASTER_FILE,
            start_of(str(path)),
        )
    if len(text) < MIN_MASTER or not text.isascii():
        message = f"{origin} is not {MIN_MASTER} ASCII characters or more"
        files.diagnostics.append(codes.BAD_MASTER_SECRET.at(at, message))
        return None
    return Secret(text)


def check_secret_files(pod: PodSpec, files: Files) -> None:
    """Report each secret file that is missing.

    An absolute path may be another machine's: it is not looked at.
    """
    for secret in pod.secrets:
        if secret.source == "file" and not secret.reference.text.startswith("/"):
            _check_secret_file(secret.reference, files)


def _check_secret_file(path: ScalarNode, files: Files) -> None:
    target = files.resolve_path(path.text) if "\0" not in path.text else None
    if target is None:
        message = f"the secret {quote(path.shown)} leads out of the pod's directory"
        files.diagnostics.append(codes.PATH_ESCAPES_POD.at(path.span, message))
    elif not _is_file(target):
        files.diagnostics.append(
            codes.UNREADABLE_FILE.at(path.span, f"the secret {quote(path.shown)} is no file")
        )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that is too long is no file.
        return False


def read_named_skills(pod: PodSpec, files: Files) -> Mapping[str, SkillFile]:
    """Return path → skill; one that can't be read is reported, and left out."""
    skills: dict[str, SkillFile] = {}
    for path in (path for owner in pod.owners for path in own_entries(owner.skills)):
        if path.text in skills or (data := files.read_named(path, "the skill")) is None:
            continue
        text = decode(files.display_path(path.shown), data)
        skill = text.then(partial(read_skill, path.text, path.shown))
        files.diagnostics.extend(skill.diagnostics)
        if skill.value is not None:
            skills[path.text] = skill.value
    return skills


def find_service_skills(
    pod: PodSpec, descriptors: Mapping[str, ServiceDescriptor | None], files: Files, lookup: Lookup
) -> Mapping[str, SkillFile]:
    """Return service → the skill that its descriptor names; one that can't be found
    is reported, and left out.
    """
    skills: dict[str, SkillFile] = {}
    for service in pod.services:
        name, offered = service.name.text, descriptors.get(service.name.text)
        path = offered.descriptor.skill if offered is not None else None
        # The name of the service may become part of a file's.
        if (
            offered is None
            or path is None
            or not is_image_path(path)
            or not SERVICE_NAME.fullmatch(name)
        ):
            continue
        within = _within(service, offered, files, lookup)
        paths = candidate_paths(within, path)
        file = next(filter(None, (files.read_if_present(at, "the skill") for at in paths)), None)
        if file is None:
            message = (
                f"the skill {quote(path)} of {name} is neither beside its descriptor nor in "
                "its build context"
            )
            files.diagnostics.append(
                codes.SKILL_MISSING.at(span_at(offered.root, ("skill",)), message)
            )
            continue
        skill = file.then(partial(read_skill, path, name))
        files.diagnostics.extend(skill.diagnostics)
        if file.value is not None and skill.value is not None:
            files.diagnostics.extend(_endpoints(name, offered, file.value))
            skills[name] = skill.value
    return skills


def _within(
    service: ServiceSpec, service_descriptor: ServiceDescriptor, files: Files, lookup: Lookup
) -> tuple[str, ...]:
    context = build_context(service, files, lookup)
    contexts = (context.path,) if context is not None else ()
    match service_descriptor.source:
        case "describe-file" if service.describe_file is not None:
            return (posixpath.dirname(service.describe_file.text), *contexts)
        case "snapshot":
            return (DISCOVERED, *contexts)
        case _:
            return contexts


def _endpoints(
    service: str, service_descriptor: ServiceDescriptor, skill: Source
) -> Iterator[Diagnostic]:
    if not service_descriptor.tools:
        return
    paths = {tool.http.path for tool in service_descriptor.tools if tool.http is not None}
    paths |= {endpoint.path for endpoint in service_descriptor.descriptor.endpoints}
    fixed = {path.partition("{")[0].rstrip("/") for path in paths}
    patterns = [
        rf"https?://{re.escape(service)}\b",
        *(
            rf"(?<![\w/]){re.escape(path)}(?![\w-])"
            for path in sorted(fixed)
            if len(path) >= _MIN_PATH
        ),
    ]
    match = re.search("|".join(patterns), skill.text)
    if match is not None:
        message = (
            f"the skill of {service} tells how it is reached, and the proxy calls its tools "
            "for the agent"
        )
        yield codes.SKILL_TELLS_ENDPOINTS.at(skill.span_of(*match.span()), message)
