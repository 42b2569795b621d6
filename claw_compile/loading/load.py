"""Load: the one phase that reads the disk.

It reads the pod file, ``.env``, descriptors, contracts, skills and the master secret.

A descriptor names its skill by the path in the image. The skill is looked for where the descriptor
itself may be: beside a ``describe-file`` or a snapshot, and in the build context. An agent must not
learn the endpoints of a service that has tools, so a skill that tells them is reported.
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
    """Everything that the other phases need; none of them opens a file.

    A descriptor that can't be read is ``None``. ``skills`` are those that the pod names, by their
    paths; ``service_skills`` are those that descriptors name, by their services.
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
    """Return the pod with all its files, and what is wrong with them."""
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
    """Read the pod file's tree, and then the files that it names."""
    lookup = variables.lookup
    pod_result = read_pod(str(pod_file), document, lookup)
    files.diagnostics.extend(pod_result.diagnostics)
    assert pod_result.value is not None
    pod = read_host_files(pod_result.value, files, lookup)

    lock = _lock(files)
    descriptors = DescriptorLookup(pod, files, lock, lookup).all()
    contracts = _contracts(pod, files)
    master = _master(files, pod, variables)
    check_secret_files(pod, files)
    skills = read_named_skills(pod, files)
    service_skills = find_service_skills(pod, descriptors, files, lookup)

    leak_inputs = LeakInputs(pod, files, variables, contracts, skills)
    loaded = LoadedPod(
        pod=pod,
        descriptors=descriptors,
        contracts=contracts,
        variables=variables,
        master=master,
        skills=skills,
        lock=lock,
        service_skills=service_skills,
        sources=files.read,
        leak_inputs=leak_inputs.collect(),
        agent_services=leak_inputs.services(),
        secrets=leak_inputs.secrets(),
    )
    # At the end, because all of these add to the diagnostics.
    return Result(loaded, tuple(files.diagnostics))


def read_host_files(pod: PodSpec, files: Files, lookup: Lookup) -> PodSpec:
    """Return the pod with the settings of each ``toolhost.yml`` that it names.

    The pod file's own settings win, key by key.
    """
    services = tuple(_with_host_file(service, files, lookup) for service in pod.services)
    return replace(pod, services=services)


def _with_host_file(service: ServiceSpec, files: Files, lookup: Lookup) -> ServiceSpec:
    own = service.tools_host
    if own is None or own.file is None:
        return service
    data = files.read_named(own.file, "the settings of the tools host")
    if data is None:
        return service

    document = decode(files.display_path(own.file.shown), data).then(read_yaml)
    reader = Reader(lookup)
    file = None
    if document.value is not None:
        place = ValuePlace("toolhost.yml", document.value.span)
        file = TOOLHOST_FILE.read(reader, document.value, place)
    files.diagnostics.extend((*document.diagnostics, *reader.diagnostics))
    if file is None:
        return service

    host = {**file.host, **own.host}
    # A limit of the pod file replaces that limit, not all of the file's.
    limits = {**file.host.get("limits", {}), **own.host.get("limits", {})}
    if limits:
        host["limits"] = limits
    return replace(service, tools_host=replace(own, tools={**file.tools, **own.tools}, host=host))


def _variables(directory: Path, environ: Mapping[str, str]) -> Result[Variables]:
    """Return the variables of the environment and of ``.env``."""
    path = directory / ".env"
    if not path.is_file():
        return Result(Variables(environ, {}))

    data = read_file(path, start_of(str(path)), "'.env'")
    source = data.then(lambda content: decode(str(path), content))
    if source.value is None:
        problems = tuple(_without_text(each) for each in source.diagnostics)
        return Result(Variables(environ, {}), problems)

    values = read_dotenv(source.value, environ)
    return Result(Variables(environ, values.value or {}), values.diagnostics)


def _without_text(diagnostic: Diagnostic) -> Diagnostic:
    """Drop the line of a diagnostic: ``.env`` holds secrets."""
    at = diagnostic.span
    return diagnostic.code.at(Span(at.file, at.line, at.column, at.end_column), diagnostic.message)


def _contracts(pod: PodSpec, files: Files) -> Mapping[str, bytes]:
    """Return agent → contract; one that can't be read is reported, and left out."""
    contracts: dict[str, bytes] = {}
    for agent in pod.agents:
        text = _contract(files, agent.agent) if agent.agent is not None else None
        if text is not None:
            contracts[agent.name.text] = text
    return contracts


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

    shown_path = files.display_path(LOCK_FILE)
    lock = text.then(read_json).then(lambda root: read_lock(shown_path, root))
    files.diagnostics.extend(lock.diagnostics)
    return lock.value


def _master(files: Files, pod: PodSpec, variables: Variables) -> Secret | None:
    """Return the pod's master secret, if there is one already; only a compile makes it.

    The variable wins over the file.
    """
    text = variables.lookup(MASTER_VARIABLE)
    origin = MASTER_VARIABLE
    at = pod.name.span if pod.name else start_of(pod.file)

    if text is None:
        path = files.directory / MASTER_FILE
        if not path.exists():
            return None

        origin = MASTER_FILE
        at = start_of(str(path))
        data = read_file(path, at, MASTER_FILE)
        files.diagnostics.extend(data.diagnostics)
        if data.value is None:
            return None
        text = data.value.decode("ascii", errors="ignore").strip()

    if len(text) < MIN_MASTER or not text.isascii():
        message = f"{origin} is not {MIN_MASTER} ASCII characters or more"
        files.diagnostics.append(codes.BAD_MASTER_SECRET.at(at, message))
        return None
    return Secret(text)


def check_secret_files(pod: PodSpec, files: Files) -> None:
    """Report each secret file that is missing.

    A file with an absolute path is not looked for: the pod may run on another machine.
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
        message = f"the secret {quote(path.shown)} is no file"
        files.diagnostics.append(codes.UNREADABLE_FILE.at(path.span, message))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that is too long is no file.
        return False


def read_named_skills(pod: PodSpec, files: Files) -> Mapping[str, SkillFile]:
    """Return path → skill; one that can't be read is reported, and left out."""
    skills: dict[str, SkillFile] = {}
    for owner in pod.owners:
        for path in own_entries(owner.skills):
            if path.text in skills:
                continue
            data = files.read_named(path, "the skill")
            if data is None:
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
    """Return service → the skill that its descriptor names.

    One that can't be found is reported, and left out.
    """
    skills: dict[str, SkillFile] = {}
    for service in pod.services:
        name = service.name.text
        descriptor = descriptors.get(name)
        path = descriptor.descriptor.skill if descriptor is not None else None
        if descriptor is None or path is None or not is_image_path(path):
            continue
        # The name of the service may become part of a file's.
        if not SERVICE_NAME.fullmatch(name):
            continue

        file = _find_skill(path, _skill_directories(service, descriptor, files, lookup), files)
        if file is None:
            message = (
                f"the skill {quote(path)} of {name} is neither beside its descriptor nor in "
                "its build context"
            )
            at = span_at(descriptor.root, ("skill",))
            files.diagnostics.append(codes.SKILL_MISSING.at(at, message))
            continue

        skill = file.then(partial(read_skill, path, name))
        files.diagnostics.extend(skill.diagnostics)
        if file.value is not None and skill.value is not None:
            files.diagnostics.extend(_check_endpoints(name, descriptor, file.value))
            skills[name] = skill.value
    return skills


def _find_skill(path: str, directories: tuple[str, ...], files: Files) -> Result[Source] | None:
    for candidate in candidate_paths(directories, path):
        file = files.read_if_present(candidate, "the skill")
        if file is not None:
            return file
    return None


def _skill_directories(
    service: ServiceSpec, descriptor: ServiceDescriptor, files: Files, lookup: Lookup
) -> tuple[str, ...]:
    """Return the directories in which the skill may be: that of the descriptor comes first."""
    context = build_context(service, files, lookup)
    contexts = (context.path,) if context is not None else ()
    match descriptor.source:
        case "describe-file" if service.describe_file is not None:
            return (posixpath.dirname(service.describe_file.text), *contexts)
        case "snapshot":
            return (DISCOVERED, *contexts)
        case _:
            return contexts


def _check_endpoints(
    service: str, descriptor: ServiceDescriptor, skill: Source
) -> Iterator[Diagnostic]:
    """Check that the skill of a service with tools names neither its host nor a path of it."""
    if not descriptor.tools:
        return

    paths = {tool.http.path for tool in descriptor.tools if tool.http is not None}
    paths |= {endpoint.path for endpoint in descriptor.descriptor.endpoints}
    # Only the part before a parameter can stand in a text; a path such as "/v" may be any word.
    prefixes = {path.partition("{")[0].rstrip("/") for path in paths}
    long_enough = sorted(path for path in prefixes if len(path) >= _MIN_PATH)

    host = rf"https?://{re.escape(service)}\b"
    whole_paths = [rf"(?<![\w/]){re.escape(path)}(?![\w-])" for path in long_enough]
    match = re.search("|".join([host, *whole_paths]), skill.text)
    if match is not None:
        message = (
            f"the skill of {service} tells how it is reached, and the proxy calls its tools "
            "for the agent"
        )
        yield codes.SKILL_TELLS_ENDPOINTS.at(skill.span_of(*match.span()), message)
