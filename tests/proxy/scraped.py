"""A running pod, and the listener of its metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

import httpx2
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parsed

from tests.proxy.pod import Pod
from tests.waiting import free_port

ASK = [{"role": "user", "content": "What is the balance?"}]


@dataclass
class ScrapedPod:
    """A pod and the listener of its metrics."""

    pod: Pod
    port: int = field(default_factory=free_port)

    def get(self, path: str = "/metrics", method: str = "GET", **headers: str) -> httpx2.Response:
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx2.request(method, url, headers=headers, timeout=30, trust_env=False)

    def families(self) -> dict[str, Metric]:
        return {family.name: family for family in parsed(self.get().text)}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the series with these labels."""
        samples = [
            sample
            for family in parsed(self.get().text)
            for sample in family.samples
            if sample.name == name
        ]
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    def ask(self, agent_id: str = "analyst") -> str:
        answer = self.pod.client(agent_id).chat.completions.create(model="gpt-test", messages=ASK)  # type: ignore[arg-type]
        return str(answer.choices[0].message.content)


def started(pod: Pod) -> ScrapedPod:
    scraped = ScrapedPod(pod)
    pod.environment["CLAW_METRICS_ADDR"] = f"127.0.0.1:{scraped.port}"
    pod.start()
    return scraped
