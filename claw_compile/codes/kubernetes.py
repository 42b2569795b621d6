"""What is told of a pod only when it is compiled for Kubernetes."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

NOT_CARRIED = warning(
    "not-carried",
    "A Compose key has no counterpart in what is made for Kubernetes, so it is left out there.",
    "Say it with kubectl or kustomize, or remove it.",
)
MADE_BY_HAND = warning(
    "made-by-hand",
    "The manifests name an object or an image that is not made from the pod.",
    "Create it before you apply them.",
)
SHARED_REACH = warning(
    "shared-reach",
    "Containers of one Kubernetes pod share its network: an agent that may leave it also reaches what its proxy reaches.",
    "Give what it needs as tools instead; the credentials stay with the proxy in any case.",
)
KUBERNETES_NAME = error(
    "kubernetes-name",
    "A service is a host, and Kubernetes takes `[a-z]([-a-z0-9]*[a-z0-9])?` of at most 63 characters for one.",
    "Rename the service.",
)
NO_IMAGE = error("no-image", "Kubernetes runs images, and the service names none.", "Name one with `image`.")
PROXYS_USER = error(
    "proxys-user",
    "In Kubernetes an agent's way out is closed to everybody but its proxy's user, and the agent is that user.",
    "Give it another `user`.",
)
