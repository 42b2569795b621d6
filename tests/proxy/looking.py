"""An operator's view of a pod: the flows that ``-w`` saves; mitmweb is ``tests/web/mitmweb.py``."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # pyparsing warns when mitmproxy's filters are made
    from mitmproxy import exceptions, flowfilter, http, io
    from mitmproxy.addons import dumper, save, savehar, tlsconfig, view
    from mitmproxy.test import taddons, tflow

from tests.proxy.pod import ANTHROPIC_KEY, PROVIDER_KEY, SECRET, TOOL_TOKEN, Pod, pod_at
from tests.waiting import eventually

__all__ = ["dumper", "http", "io", "save", "savehar", "taddons", "tflow", "tlsconfig", "view"]
PLANTED = (PROVIDER_KEY, ANTHROPIC_KEY, TOOL_TOKEN, SECRET)


@contextmanager
def peopled(home: Path) -> Iterator[Pod]:
    """Yield a pod with two agents, not started: ``analyst`` has two tools, ``plain`` none."""
    with pod_at(home) as pod:
        pod.agent("analyst", *pod.balance_and_trade())
        pod.agent("plain")
        yield pod


@dataclass
class SavingPod:
    """A pod that saves its flows."""

    pod: Pod

    @property
    def file(self) -> Path:
        return self.pod.home / "flows"

    def flows(self) -> list[http.HTTPFlow]:
        """Return the flows that are saved completely so far."""
        found: list[http.HTTPFlow] = []
        with self.file.open("rb") as saved, suppress(exceptions.FlowReadException):
            found += (
                flow for flow in io.FlowReader(saved).stream() if isinstance(flow, http.HTTPFlow)
            )
        return found

    def found(self, wanted: str) -> list[http.HTTPFlow]:
        """Return the saved flows that match a filter of mitmproxy."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            matches = flowfilter.parse(wanted)
        return [flow for flow in self.flows() if flowfilter.match(matches, flow)]

    def last_turn(self, asked: int) -> tuple[http.HTTPFlow, list[http.HTTPFlow]]:
        """Return the flow of the analyst's last turn, and so many hidden flows made for it."""
        turn_id = self.pod.history("analyst")[-1]["turn_id"]

        def whole() -> list[http.HTTPFlow] | None:
            flows = [flow for flow in self.flows() if flow.metadata.get("claw.turn") == turn_id]
            return flows if len(flows) == asked + 1 else None

        *children, parent = eventually(whole, f"{asked} flows of {turn_id} are saved")
        assert {child.metadata["claw.parent"] for child in children} <= {parent.id}
        return parent, children


def told(planted: bytes) -> list[str]:
    """Return the planted secrets in these bytes."""
    return [secret for secret in PLANTED if secret.encode() in planted]


def saved(pod: Pod, count: int = 1) -> SavingPod:
    """Return the pod's saved flows, once there are so many."""
    found = SavingPod(pod)
    eventually(lambda: len(found.flows()) >= count, "flows are saved")
    return found


def in_file(file: Path) -> bytes:
    """Return the bytes of the file, and every value in one piece: long values are
    spread over pages.
    """
    parts = [Path(f"{file}{part}").read_bytes() for part in ("", "-wal", "-shm")]
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        for (table,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            values = (value for row in database.execute(f"SELECT * FROM {table}") for value in row)
            parts += [
                value if isinstance(value, bytes) else str(value).encode() for value in values
            ]
    return b"\n".join(parts)
