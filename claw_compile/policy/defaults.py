"""The pod's defaults and a service's own values → what an agent has (docs/spec/compile.md "Defaults").

tools surfaces feeds skills      absent inherits, present replaces, one ``...`` splices, empty suppresses
models cllama-env                key by key, the service wins; ``models: {}`` or ``null`` suppresses
tool-policy budget memory        replaced whole; ``null`` suppresses
cllama context.blocks            replaced whole; ``[]`` and ``null`` suppress
"""

from __future__ import annotations

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic
from claw_compile.grammar.models import FALLBACK
from claw_compile.grammar.pod import EntryList, Models, PodSpec, ServiceSpec, Spread, own_entries
from claw_contract.metadata import AllowedModel

PRIMARY = "primary"


def expand_list[T](
    own: EntryList[T] | None, defaults: EntryList[T] | None, name: str, diagnostics: list[Diagnostic]
) -> tuple[T, ...]:
    """Return a list with the pod's in the place of ``...``, or the pod's where it is absent."""
    inherited = own_entries(defaults)
    if own is None:
        return inherited
    entries: list[T] = []
    for entry in own.entries:
        if not isinstance(entry, Spread):
            entries.append(entry)
        elif defaults is None:
            diagnostics.append(codes.SPREAD_WITHOUT_DEFAULTS.at(entry.span, f"the pod has no '{name}'"))
        else:
            entries.extend(inherited)
    return tuple(entries)


def merge_models(own: Models | None, defaults: Models | None) -> tuple[AllowedModel, ...]:
    """Return the models in the order in which they are tried: the primary one, the fallbacks, then the others by slot."""
    layers = [layer for layer in (defaults, own) if layer is not None and not (own is not None and own.is_empty)]
    slots: dict[str, str | None] = {}
    fallback: tuple[str, ...] = ()
    for layer in layers:
        slots |= {slot.text: ref for slot, ref in layer.slots}
        fallback = layer.fallback if layer.fallback is not None else fallback
    first = [(PRIMARY, slots.pop(PRIMARY, None))]
    ordered = [*first, *((FALLBACK, ref) for ref in fallback), *sorted(slots.items())]
    return tuple(AllowedModel(slot=slot, ref=ref) for slot, ref in ordered if ref is not None)


def inherited_defaults(pod: PodSpec, spec: ServiceSpec) -> frozenset[str]:
    """Return the pod's defaults that reach the service, by the name of their key."""
    lists = {
        "tools-defaults": (spec.tools, pod.tools),
        "surfaces-defaults": (spec.surfaces, pod.surfaces),
        "feeds-defaults": (spec.feeds, pod.feeds),
        "skills-defaults": (spec.skills, pod.skills),
    }
    wholes = {
        "tool-policy-defaults": (spec.limits, pod.limits),
        "budget-defaults": (spec.spending, pod.spending),
        "memory-defaults": (spec.memory, pod.memory),
        "cllama-defaults": (spec.cllama, pod.cllama),
        "context": (spec.context, pod.context),
    }
    names = {name for name, (own, default) in lists.items() if default is not None and _splices(own)}
    names |= {name for name, (own, default) in wholes.items() if default is not None and own is None}
    if pod.models is not None and _takes_models(spec.models, pod.models):
        names.add("models-defaults")
    return frozenset(names)


def _splices[T](own: EntryList[T] | None) -> bool:
    return own is None or any(isinstance(entry, Spread) for entry in own.entries)


def _takes_models(own: Models | None, defaults: Models) -> bool:
    if own is None:
        return True
    kept = {slot.text for slot, _ in defaults.slots} - {slot.text for slot, _ in own.slots}
    return not own.is_empty and (bool(kept) or (defaults.fallback is not None and own.fallback is None))
