"""The source of every file of a deployment: pod, agents, networks and the compiled tree."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal

from claw_compile.grammar.pod import PodSpec
from claw_compile.identity import derive_key
from claw_compile.output.emit import digest_input
from claw_compile.policy.agent import Agent, ResolvedPod
from claw_compile.policy.topology import PROXY, NetworkTopology, topology
from claw_contract.secret import Secret

type Placement = Literal["sidecar", "gateway"]
"""In Kubernetes: a proxy beside each agent, or a Deployment of proxies for all of them."""

RUNTIME = ".claw-runtime"
"""The compiled tree's path beside the file that mounts it.

It does not depend on ``-o``, so that the file is the same on any machine.
"""
CA_ROOT = ".claw-ca"  # Beside the pod file
CA_DIRECTORY = f"{CA_ROOT}/public"  # Mounted into agents: the certificate
CA_PRIVATE = f"{CA_ROOT}/private"  # mitmproxy's ``confdir``: the key
CLAW_KEY = "x-claw"
HOLDER = f"{PROXY}-gateway"
"""The service that holds the network namespace of a proxy that its agents do not know of.

The agents' links lead to this service, so that they stay right when the proxy is replaced.
"""


@dataclass(frozen=True)
class Deployment:
    """Everything that is deployed; the inputs of the Compose file and of the manifests.

    ``master`` is the key of the digests, so that a reader of the file can't use them to test
    guesses of what a secret is.
    """

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
        """Return the containers that a service becomes: one for each ordinal of a counted agent."""
        ordinals = [agent.id for agent in self.agents if agent.spec.name.text == service]
        return ordinals or [service]

    def digest(self, contents: Mapping[str, bytes]) -> str:
        """Return a keyed digest, 32 hex digits, that changes with a name or a byte of the contents.

        See ``emit.digest_input`` for the bytes that it is of.
        """
        digest = hmac.new(self._digest_key, digest_input(contents), digestmod="sha256")
        return digest.hexdigest()[:32]

    @cached_property
    def _digest_key(self) -> bytes:
        return derive_key(self.master, b"compose-digest", 32)
