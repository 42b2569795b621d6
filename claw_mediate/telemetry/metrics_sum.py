"""The metrics of several processes as one: ``/metrics`` of a proxy with workers.

docs/metrics.md "Workers". Counters and histograms are added up. So are gauges, except for those in
``_COMBINE``: a proxy is as ready as its least ready worker, and what every worker reads from the
same files counts once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

type Sample = tuple[str, dict[str, str], float]  # Name, labels, value
type Family = tuple[str, str, str, list[Sample]]  # Name, type, documentation, samples
type Snapshot = list[Family]
type _SampleKey = tuple[str, tuple[tuple[str, str], ...]]  # Name, labels

_COMBINE: Final[Mapping[str, Callable[[float, float], float]]] = {
    "claw_ready": min,
    "claw_state_writable": min,
    "claw_provider_keys": max,
    "claw_build_info": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
"""The gauges that are not added up, each with the function that combines two values."""
_COUNTS = {"counter", "histogram"}
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Snapshot).decode


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """Return the metrics of a registry as data."""
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [(each.name, each.labels, each.value) for each in family.samples],
        )
        for family in registry.collect()
    ]


def encode(metrics: Snapshot) -> bytes:
    return _ENCODE(metrics)


def decode(data: bytes) -> Snapshot:
    metrics: Snapshot = _DECODE(data)
    return metrics


def keep_counts(metrics: Snapshot) -> Snapshot:
    """Return what must not fall when a process ends: counters and histograms."""
    return [family for family in metrics if family[1] in _COUNTS]


def add_up(parts: Iterable[Snapshot]) -> Snapshot:
    """Return the parts as one, in the order in which they come."""
    heads: dict[str, tuple[str, str]] = {}  # Type and documentation, by the family's name
    sums: dict[str, dict[_SampleKey, float]] = {}
    for part in parts:
        for name, kind, text, samples in part:
            heads.setdefault(name, (kind, text))
            values = sums.setdefault(name, {})
            combine = _COMBINE.get(name, _add)
            for sample, labels, value in samples:
                key = sample, tuple(labels.items())
                if key in values:
                    values[key] = combine(values[key], value)
                else:
                    values[key] = value

    summed: Snapshot = []
    for name, (kind, text) in heads.items():
        samples = [(sample, dict(labels), value) for (sample, labels), value in sums[name].items()]
        summed.append((name, kind, text, samples))
    return summed


class SummedMetrics(Collector):
    """A snapshot in the form that prometheus_client writes."""

    def __init__(self, metrics: Snapshot) -> None:
        """Show ``metrics``."""
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for name, kind, text, samples in self._metrics:
            family = Metric(name, text, kind)
            for sample, labels, value in samples:
                family.add_sample(sample, labels, value)
            yield family


def _add(one: float, other: float) -> float:
    return one + other
