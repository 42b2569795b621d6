"""Install the parts that are added to mitmproxy's master itself, so that they outlive the script (decision 0004)."""

from __future__ import annotations

from mitmproxy import ctx

from claw_mediate.mitm import options
from claw_mediate.mitm.fast_dispatch import DispatchAddon
from claw_mediate.mitm.gate.egress import EgressAddon
from claw_mediate.mitm.gate.guard import GuardAddon
from claw_mediate.mitm.gate.tls_ca import TlsCaAddon
from claw_mediate.mitm.governance import BuiltinAddons, Governance
from claw_mediate.mitm.lifecycle import Lifecycle
from claw_mediate.mitm.metrics import MetricsAddon
from claw_mediate.mitm.response_stream.door import DoorAddon
from claw_mediate.mitm.view.commands import CommandsAddon
from claw_mediate.mitm.view.redaction import RedactionAddon
from claw_mediate.mitm.view.retention import RetentionAddon


def install(builtin: BuiltinAddons) -> Lifecycle:
    """Install what is not there yet, and return the lifecycle. Raise ``RuntimeError`` if mitmproxy is built differently."""
    addons = ctx.master.addons
    installed: Lifecycle | None = addons.get(Lifecycle.name)
    if installed is not None:
        return installed
    governance = Governance(options.event_log(builtin), builtin)
    RedactionAddon(governance).install()
    metrics, tls_ca, retention = MetricsAddon(governance), TlsCaAddon(governance), RetentionAddon(governance)
    observers = (builtin.view, retention, builtin.dumper, builtin.save, builtin.savehar)
    governance.observers = tuple(each for each in observers if each is not None)
    addons.add(DoorAddon(governance), EgressAddon(governance), GuardAddon(governance), tls_ca)
    addons.add(DispatchAddon(governance.events), retention, metrics, CommandsAddon(governance))
    lifecycle = Lifecycle(governance, metrics, tls_ca)
    addons.add(lifecycle)
    addons.chain.insert(0, addons.chain.pop())
    return lifecycle
