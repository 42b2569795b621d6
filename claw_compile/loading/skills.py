"""Skills: the files that a pod names, and those that its services bring.

A descriptor names its skill by the path in the image. It is looked for beside a ``describe-file`` or a snapshot, and in the
build context, as the descriptor itself is. The endpoints of a service that has tools are not for its agents: a skill that tells
them is reported.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.descriptors.rules import is_image_path
from claw_compile.descriptors.skill import SkillFile, read_skill
from claw_compile.diagnostics.diagnostic import Diagnostic, quote
from claw_compile.grammar.pod import PodSpec, ServiceSpec, own_entries
from claw_compile.loading.build_context import build_context, candidate_paths
from claw_compile.loading.descriptor_lookup import DISCOVERED
from claw_compile.loading.files import Files
from claw_compile.parsing.interpolation import Lookup
from claw_compile.parsing.node import span_at
from claw_compile.parsing.source import Source, decode
from claw_contract.names import SERVICE_NAME

_MIN_PATH = 3


def read_named_skills(pod: PodSpec, files: Files) -> Mapping[str, SkillFile]:
    """Return path → skill; one that can't be read is reported, and left out."""
    skills: dict[str, SkillFile] = {}
    for path in (skill.path for owner in pod.owners for skill in own_entries(owner.skills)):
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
    """Return service → the skill that its descriptor names; one that can't be found is reported, and left out."""
    skills: dict[str, SkillFile] = {}
    for service in pod.services:
        name, offered = service.name.text, descriptors.get(service.name.text)
        path = offered.descriptor.skill if offered is not None else None
        # The name of the service may become part of a file's.
        if offered is None or path is None or not is_image_path(path) or not SERVICE_NAME.fullmatch(name):
            continue
        within = _within(service, offered, files, lookup)
        paths = candidate_paths(within, path)
        file = next(filter(None, (files.read_if_present(at, "the skill") for at in paths)), None)
        if file is None:
            message = f"the skill {quote(path)} of {name} is neither beside its descriptor nor in its build context"
            files.diagnostics.append(codes.SKILL_MISSING.at(span_at(offered.root, ("skill",)), message))
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
    """Return the directories in which the skill of a service is looked for."""
    context = build_context(service, files, lookup)
    contexts = (context.path,) if context is not None else ()
    match service_descriptor.source:
        case "describe-file" if service.describe_file is not None:
            return (posixpath.dirname(service.describe_file.text), *contexts)
        case "snapshot":
            return (DISCOVERED, *contexts)
        case _:
            return contexts


def _endpoints(service: str, service_descriptor: ServiceDescriptor, skill: Source) -> Iterator[Diagnostic]:
    """Warn where a skill tells how to reach a service that has tools."""
    if not service_descriptor.tools:
        return
    paths = {tool.http.path for tool in service_descriptor.tools if tool.http is not None}
    paths |= {endpoint.path for endpoint in service_descriptor.descriptor.endpoints}
    fixed = {path.partition("{")[0].rstrip("/") for path in paths}
    patterns = [
        rf"https?://{re.escape(service)}\b",
        *(rf"(?<![\w/]){re.escape(path)}(?![\w-])" for path in sorted(fixed) if len(path) >= _MIN_PATH),
    ]
    match = re.search("|".join(patterns), skill.text)
    if match is not None:
        message = f"the skill of {service} tells how it is reached, and the proxy calls its tools for the agent"
        yield codes.SKILL_TELLS_ENDPOINTS.at(skill.span_of(*match.span()), message)
