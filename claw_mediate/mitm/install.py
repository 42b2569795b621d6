"""The parts that are added to the master itself, so that they outlive the script; and what the script tells them, which holds
when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mitmproxy import ctx

from claw_contract.redaction.redactor import Redactor
from claw_mediate.mitm import options
from claw_mediate.mitm.fast_dispatch import Dispatch
from claw_mediate.mitm.gate.egress import Egress
from claw_mediate.mitm.gate.guard import Guard, canonical
from claw_mediate.mitm.gate.tls_ca import Authorities
from claw_mediate.mitm.lifecycle import Life
from claw_mediate.mitm.metrics import Observe
from claw_mediate.mitm.response_stream.door import Door
from claw_mediate.mitm.view.commands import Commands
from claw_mediate.mitm.view.redaction import Veil
from claw_mediate.mitm.view.retention import Keeping
from claw_mediate.settings import Settings


def install() -> None:
    """Those that are not there yet. Raises ``RuntimeError`` where this mitmproxy is built differently."""
    addons, events = ctx.master.addons, options.event_log()
    if addons.get(Veil.name) is None:
        Veil().install()
    made = (Door(), Egress(), Guard(), Authorities(events), Dispatch(events), Keeping(), Observe(events), Commands())
    for part in (*made, Life(events)):
        if addons.get(part.name) is None:
            addons.add(part)
            if isinstance(part, Life):
                addons.chain.insert(0, addons.chain.pop())


def tell(settings: Settings, hosts: Callable[[], Mapping[str, str]], known: Callable[[], Redactor]) -> None:
    """What is governed, what is secret, and how much is kept."""
    addons = ctx.master.addons
    Observe.of().governed = True
    egress: Egress = addons.get(Egress.name)
    egress.hosts, egress.denies = hosts, settings.egress == "deny"
    trust: Authorities = addons.get(Authorities.name)
    trust.governs = lambda host: canonical(host) in hosts()
    veil: Veil = addons.get(Veil.name)
    veil.known = known
    keeping: Keeping = addons.get(Keeping.name)
    keeping.most_flows, keeping.most_bytes = settings.keep_flows, settings.keep_bytes


def gone() -> None:
    """There is no script that decides."""
    Observe.of().governed = False
