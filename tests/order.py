"""The order of test modules: no process is to end long after the others.

Processes take whole modules from one queue (``--dist loadfile``), in the order of collection.
Each stage is spread evenly over the run, because tests of a proxy mostly wait and others compute.
The long modules of a stage come first, so that the last ones to be taken are short.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from tests.stages import stage_of

LONG_MODULES = (
    "sdks/live/test_agents.py",
    "test_bench.py",
    "fleet/test_fleet.py",
    "proxy/test_connections.py",
    "mcp_peers/test_sdk.py",
    "failures/test_matrix.py",
    "pods/test_demo.py",
    "proxy/test_delivery.py",
    "proxy/test_layer_large_bodies.py",
    "gateway/test_codex.py",
    "proxy/test_supervisor.py",
    "sdks/responses/test_clients.py",
    "turns/test_retries.py",
    "proxy/test_addon_reload.py",
    "crash/test_crash.py",
    "crash/test_live.py",
    "sdks/responses/test_codex.py",
    "mcp/test_discovery_broken.py",
    "tools/execution/test_descendants.py",
    "proxy/test_outage.py",
    "certs/test_trust.py",
    "proxy/test_failures.py",
    "mcp_peers/test_real_servers.py",
    "mcp/test_reaper.py",
    "proxy/test_live.py",
    "mediate/turns/test_late_answer.py",
    "docs/test_entrances.py",
    "tools/servers/test_links_child.py",
    "proxy/test_listeners.py",
    "turns/test_attempts.py",
    "mediate/core/test_json_outline.py",
    "sdks/live/test_same_wire.py",
    "proxy/test_tracing.py",
    "certs/test_store.py",
    "mcp_peers/test_tools_host.py",
    "proxy/test_dollar_budgets.py",
    "mediate/dialects/test_base_malformed_replies.py",
    "tools/test_serve_stdio.py",
    "tools/servers/test_server_published.py",
    "proxy/test_live_failover.py",
    "compile/test_compiler_planted_secrets.py",
    "turns/test_live_cuts.py",
    "proxy/test_lifecycle_draining.py",
    "proxy/test_forward_credential.py",
    "mcp/test_supervisor.py",
    "image/test_contained.py",
    "docs/test_first_hour.py",
    "compile/test_compiler_damaged_files.py",
    "tools/execution/test_launcher.py",
    "proxy/test_start.py",
    "crash/test_unheard.py",
    "attacks/test_exhaustion.py",
    "proxy/test_keys.py",
    "proxy/test_door.py",
    "web/test_live.py",
)
"""The modules below ``tests/`` that took more than ten seconds each, the longest first."""


def in_running_order(modules: Iterable[PurePath]) -> list[PurePath]:
    """Return modules below ``tests/`` in the order in which they are to run; those of a stage that
    are not long keep the order in which they are given.
    """
    length = {PurePath(module): place for place, module in enumerate(LONG_MODULES)}
    stages: dict[str, list[PurePath]] = {}
    for module in modules:
        stages.setdefault(stage_of(module), []).append(module)

    part_before: dict[PurePath, float] = {}
    for stage in stages.values():
        stage.sort(key=lambda module: length.get(module, len(length)))
        part_before |= {module: place / len(stage) for place, module in enumerate(stage)}
    return sorted(part_before, key=part_before.__getitem__)
