"""The pod file's tree → a ``PodSpec`` (docs/spec/compile.md "Grammar").

Rules. Any Compose file is a pod file: what is outside ``x-claw`` is not judged. An unknown key under ``x-claw`` is an error; a
key of the original that is not acted on is carried, with one warning.
"""

from __future__ import annotations

import re
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Result
from claw_compile.grammar.access import SECRETS
from claw_compile.grammar.cllama import DEFAULT_CLLAMA, read_default_env
from claw_compile.grammar.models import BUDGET, MODELS
from claw_compile.grammar.pod import PodSpec
from claw_compile.grammar.prompt import CONTEXT, DEFAULT_FEEDS, DEFAULT_SKILLS, MEMORY
from claw_compile.grammar.reader import Reader, is_null
from claw_compile.grammar.service import ORIGINAL_POD_KEYS, read_original, read_service
from claw_compile.grammar.shapes import Flag, Key, Members, MissingKey, Place, Record, Text
from claw_compile.grammar.surfaces import DEFAULT_SURFACES
from claw_compile.grammar.tools import DEFAULT_GRANTS, LIMITS
from claw_compile.parsing.interpolation import Lookup
from claw_compile.parsing.node import Entry, MapNode

POD_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")

_NAME = Key(
    "pod",
    Text(POD_NAME.pattern, "{shown} can't name a pod", codes.BAD_NAME),
    "The pod's name; it names the Compose project.",
    missing=MissingKey(
        message="the pod has no name: 'x-claw.pod'", help_text="a pod file begins with\n  x-claw:\n    pod: my-pod"
    ),
)
_CLLAMA = Key("cllama-defaults", DEFAULT_CLLAMA, "The proxy that stands before agents.")
_TOOLS = Key("tools-defaults", DEFAULT_GRANTS, "Grants for agents without 'tools', and where they write '...'.")
_TOOL_POLICY = Key("tool-policy-defaults", LIMITS, "Limits of a turn with tools.")
_SURFACES = Key("surfaces-defaults", DEFAULT_SURFACES, "What agents reach beside their tools.")
_STRICT_SURFACES = Key("strict-surfaces", Flag(), "A grant without a surface is an error.", default=False)
_FEEDS = Key("feeds-defaults", DEFAULT_FEEDS, "Live data for agents' prompts.")
_SKILLS = Key("skills-defaults", DEFAULT_SKILLS, "Files that agents may read.")
_MODELS = Key("models-defaults", MODELS, "Which models agents may use, by slot.")
_BUDGET = Key("budget-defaults", BUDGET, "What an agent may spend.")
_MEMORY = Key("memory-defaults", MEMORY, "The service that remembers for agents.")
_SECRETS = Key("secrets", SECRETS, "Credentials by name, from variables or files.")
_CONTEXT = Key("context", CONTEXT, "What stands in every agent's prompts.")

POD_KEYS: tuple[Key[Any], ...] = (
    *(_NAME, _CLLAMA, _TOOLS, _TOOL_POLICY, _SURFACES, _STRICT_SURFACES, _FEEDS, _SKILLS, _MODELS, _BUDGET),
    *(_MEMORY, _SECRETS, _CONTEXT),
)
POD: Record[Members] = Record(
    (*POD_KEYS, *ORIGINAL_POD_KEYS), lambda members: members, "the pod's x-claw", required=(_NAME,)
)


def read_pod(file: str, root: MapNode, lookup: Lookup) -> Result[PodSpec]:
    """Return all that the file says; what can't be read is reported and left out."""
    reader = Reader(lookup)
    members = _members(reader, root)
    cllama = members.entries.get(_CLLAMA.name)
    pod = PodSpec(
        file=file,
        name=members[_NAME],
        cllama=members[_CLLAMA],
        cllama_env=read_default_env(reader, cllama.value) if cllama else {},
        tools=members[_TOOLS],
        surfaces=members[_SURFACES],
        limits=members[_TOOL_POLICY],
        feeds=members[_FEEDS],
        skills=members[_SKILLS],
        models=members[_MODELS],
        spending=members[_BUDGET],
        memory=members[_MEMORY],
        context=members[_CONTEXT],
        secrets=members[_SECRETS] or (),
        strict_surfaces=members[_STRICT_SURFACES] or False,
        services=tuple(read_service(reader, entry) for entry in _services(reader, root)),
        document=root,
        carried=read_original(members, ORIGINAL_POD_KEYS),
    )
    if not pod.agents:
        services = root.value("services")
        at = services.span if services is not None else root.span
        reader.report(codes.NO_AGENTS, at, "no service has 'x-claw.agent'")
    return Result(pod, (*reader.diagnostics, *reader.carry_warnings()))


def _members(reader: Reader, root: MapNode) -> Members:
    """Return the entries of the pod's ``x-claw``; without one, none, and a report that the pod has no name."""
    claw = root.get("x-claw")
    place = Place(POD.name, claw.key.span if claw else root.span)
    if claw is not None and not is_null(claw.value):
        return POD.read(reader, claw.value, place) or Members(reader, {}, claw.value, place)
    members = Members(reader, {}, root, place)
    members.require(_NAME)
    return members


def _services(reader: Reader, root: MapNode) -> tuple[Entry, ...]:
    services = root.value("services")
    mapping = reader.mapping(services, "'services'") if services is not None else None
    return mapping.entries if mapping is not None else ()
