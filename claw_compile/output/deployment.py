"""The source of all files of a deployment: the pod, its agents, its networks, and
the compiled tree.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal

from claw_compile.grammar.pod import PodSpec
from claw_compile.identity import derive_key
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.topology import PROXY, NetworkTopology, topology
from claw_contract.secret import Secret

type Placement = Literal["sidecar", "gateway"]
"""In Kubernetes: a proxy beside each agent, or a Deployment of proxies for all of them."""

RUNTIME = ".claw-runtime"
"""The compiled tree's path beside the file that mounts it, whatever ``-o`` says:
the file is the same on any machine.
"""
CA_ROOT = ".claw-ca"
CA_DIRECTORY = f"{CA_ROOT}/public"
CA_PRIVATE = f"{CA_ROOT}/private"
"""The pod's CA, beside the pod file: what agents get, and mitmproxy's ``confdir`` with the key."""
CLAW_KEY = "x-claw"
# The service that keeps the network namespace of a proxy that its agents do not know of
HOLDER = f"{PROXY}-gateway"


@dataclass(frozen=True)
class Deployment:
    """``master`` keys the digests: a reader of the file can't test guesses of what a secret is."""

    pod: PodSpec
    resolved: ResolvedPod
    tree: Mapping[PurePosixPath, bytes]
    master: Secret
    placement: Placement = "sidecar"

    @property
    def agents(self) -> Sequence[Agent]:
        return self.resolved.agents

    @property
    def pod_name(self) -> str:
        assert self.pod.name is not None
        return self.pod.name.text

    @cached_property
    def topology(self) -> NetworkTopology:
        return topology(self.pod, self.resolved)

    @property
    def has_proxy(self) -> bool:
        return any(agent.has_proxy for agent in self.agents)

    @property
    def is_gateway(self) -> bool:
        return self.placement == "gateway"

    @property
    def intercepts(self) -> bool:
        """True if some agent's traffic reaches its proxy without the agent's knowledge."""
        return any(agent.has_proxy and agent.mode == "transparent" for agent in self.agents)

    @property
    def uses_ca(self) -> bool:
        return any(agent.has_proxy and agent.mode != "base-url" for agent in self.agents)

    def containers(self, service: str) -> Sequence[str]:
        """Return the containers that a service becomes: several for an agent with
        ``count``, by ordinal.
        """
        return [agent.id for agent in self.agents if agent.spec.name.text == service] or [service]

    def digest(self, contents: Mapping[str, bytes]) -> str:
        """Return a digest that changes with a name or a byte of the contents."""
        digest = hmac.new(self._digest_key, digestmod="sha256")
        for name in sorted(contents):
            digest.update(
                name.encode() + b"\0" + str(len(contents[name])).encode() + b"\0" + contents[name]
            )
        return digest.hexdigest()[:32]

    @cached_property
    def _digest_key(self) -> bytes:
        return derive_key(self.master, b"compose-digest", 32)
