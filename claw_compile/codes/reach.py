"""Who reaches whom, where a Compose key says otherwise than the pod does."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

AGENT_NETWORK_MODE = error(
    "agent-network-mode",
    "An agent with `network_mode` is on a network that its authority did not make, and goes round its proxy.",
    "Remove `network_mode`, and name what the agent reaches in `surfaces`.",
)
PROVIDER_NETWORK_MODE = error(
    "provider-network-mode",
    "A service that the proxy calls has `network_mode`, so that it can't be put on a network with the proxy.",
    "Remove `network_mode`, or say with `x-claw.base-url` where the proxy reaches the service.",
)
COUNTED_REFERENCE = error(
    "counted-reference",
    "A key names the one container of a service, and `count` makes several of it.",
    "Name one of them, as `analyst-0`.",
)
EXTENDS_AGENT = error(
    "extends-agent",
    "A service that extends an agent gets the agent's credential and networks with the rest.",
    "Put what both have into a service of its own, or behind a YAML anchor.",
)
AGENT_ON_OWN_NETWORK = warning(
    "agent-on-own-network",
    "An agent is on a network that the pod file names, and reaches all that is on it without its proxy.",
    "Remove `networks` from the agent, and name what it reaches in `surfaces`.",
)
PORTS_NOT_PUBLISHED = warning(
    "ports-not-published",
    "Docker publishes no port of a container that is on internal networks only, as an agent without `egress://` is.",
    "Give the agent the surface `egress://`, or remove `ports`.",
)
MANY_NETWORKS = warning(
    "many-networks",
    "The pod needs more networks than Docker's default address pools hold (about 30).",
    "Raise `default-address-pools` in the Docker daemon's configuration.",
)
AGENT_TAKES_HOST = warning(
    "agent-takes-host",
    "An agent has something by which it can take over its host: privileges, a capability, a container engine's socket, or a"
    " directory of the host's own. Then nothing that the pod says of the agent holds.",
    "Remove it, or run what needs it as a service of its own, with a tool for the agent.",
)
