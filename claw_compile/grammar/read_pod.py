"""The pod file's tree → a ``PodSpec`` (spec/compile.md "Grammar").

Rules. Any Compose file is a pod file: what is outside ``x-claw`` is not judged. An unknown key under ``x-claw`` is an error; a
key of the original that is not acted on is carried, with one warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Checked, quoted
from claw_compile.grammar.pod import PodSpec
from claw_compile.grammar.read_access import read_secrets
from claw_compile.grammar.read_cllama import read_cllama, read_default_env
from claw_compile.grammar.read_context import read_context
from claw_compile.grammar.read_models import read_models, read_spending
from claw_compile.grammar.read_original import ORIGINAL_POD_KEYS, read_original
from claw_compile.grammar.read_relations import read_feeds, read_memory, read_skills
from claw_compile.grammar.read_service import read_service
from claw_compile.grammar.read_surfaces import read_surfaces
from claw_compile.grammar.read_tools import read_grants, read_limits
from claw_compile.grammar.reader import Reading
from claw_compile.parsing.interpolation import Lookup
from claw_compile.parsing.node import Entry, MapNode, ScalarNode

POD_KEYS = (
    *("pod", "cllama-defaults", "tools-defaults", "tool-policy-defaults", "surfaces-defaults", "strict-surfaces"),
    *(
        "feeds-defaults",
        "skills-defaults",
        "models-defaults",
        "budget-defaults",
        "memory-defaults",
        "secrets",
        "context",
    ),
)
POD_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def read_pod(file: str, root: MapNode, lookup: Lookup) -> Checked[PodSpec]:
    """Everything that the file says; what can't be read is reported and left out."""
    reading = Reading(lookup)
    claw = root.get("x-claw")
    entries = reading.keys(claw.value, "the pod's x-claw", (*POD_KEYS, *ORIGINAL_POD_KEYS)) if claw else {}

    def read[T](key: str, reader: Callable[[Reading, Entry], T]) -> T | None:
        return reader(reading, entries[key]) if key in entries else None

    pod = PodSpec(
        file=file,
        name=_pod_name(reading, entries.get("pod"), claw.key if claw else None, root),
        cllama=read("cllama-defaults", read_cllama),
        cllama_env=read("cllama-defaults", read_default_env) or {},
        tools=read("tools-defaults", read_grants),
        surfaces=read("surfaces-defaults", read_surfaces),
        limits=read("tool-policy-defaults", read_limits),
        feeds=read("feeds-defaults", read_feeds),
        skills=read("skills-defaults", read_skills),
        models=read("models-defaults", read_models),
        spending=read("budget-defaults", read_spending),
        memory=read("memory-defaults", read_memory),
        context=read("context", read_context),
        secrets=read("secrets", read_secrets) or (),
        strict_surfaces=read("strict-surfaces", _flag) or False,
        services=tuple(read_service(reading, entry) for entry in _services(reading, root)),
        document=root,
        carried=read_original(reading, entries, ORIGINAL_POD_KEYS),
    )
    if not pod.agents:
        services = root.value("services")
        at = services.span if services is not None else root.span
        reading.found.append(codes.NO_AGENTS.at(at, "no service has 'x-claw.agent'"))
    return Checked(pod, (*reading.found, *reading.warnings()))


def _services(reading: Reading, root: MapNode) -> tuple[Entry, ...]:
    services = root.value("services")
    mapping = reading.mapping(services, "'services'") if services is not None else None
    return mapping.entries if mapping is not None else ()


def _flag(reading: Reading, entry: Entry) -> bool:
    return reading.flag(entry.value, quoted(entry.key.text))


def _pod_name(reading: Reading, entry: Entry | None, claw: ScalarNode | None, root: MapNode) -> ScalarNode | None:
    if entry is None:
        at = claw.span if claw else root.span
        help_text = "a pod file begins with\n  x-claw:\n    pod: my-pod"
        reading.found.append(codes.MISSING_KEY.at(at, "the pod has no name: 'x-claw.pod'", help_text=help_text))
        return None
    name = reading.text(entry.value, "'pod'")
    if name is not None and not POD_NAME.fullmatch(name.text):
        reading.found.append(codes.BAD_NAME.at(name.span, f"{quoted(name.shown)} can't name a pod"))
        return None
    return name
