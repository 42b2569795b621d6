"""Codes of a compile for Kubernetes."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

NOT_CARRIED = warning(
    "not-carried",
    "A Compose key has no counterpart in the manifests for Kubernetes, and is left out.",
    "Say it with kubectl or kustomize, or remove it.",
)
MADE_BY_HAND = warning(
    "made-by-hand",
    "The manifests refer to an object or an image that the compiler does not make.",
    "Create it before you apply them.",
)
SHARED_REACH = warning(
    "shared-reach",
    "A network policy of Kubernetes can't tell an agent from its proxy: on the ports of its `service://` surfaces the agent"
    " also reaches the other services that its proxy calls.",
    "Give what it needs as tools instead, or see that those services listen on other ports; the credentials stay with the"
    " proxy in any case.",
)
SURFACE_REDIRECTED = error(
    "surface-redirected",
    "In Kubernetes what a transparent agent sends to the ports 80 and 443 goes to its proxy, which refuses it, and the"
    " service of a surface listens on no other.",
    "Let the service listen on another port, or give the agent another `mode`.",
)
SURFACE_PARTLY_REDIRECTED = warning(
    "surface-partly-redirected",
    "In Kubernetes what a transparent agent sends to the ports 80 and 443 goes to its proxy, which refuses it, also where"
    " a surface says that it reaches them.",
    "Reach what it needs on other ports, or give the agent another `mode`.",
)
DUPLICATE_OBJECT = error(
    "duplicate-object",
    "Two things of the pod would be one object in Kubernetes: the one that is applied last would take the other's place.",
    "Rename one of them.",
)
KUBERNETES_NAME = error(
    "kubernetes-name",
    "A service is a host, and Kubernetes takes `[a-z]([-a-z0-9]*[a-z0-9])?` of at most 63 characters for one.",
    "Rename the service.",
)
NO_IMAGE = error("no-image", "Kubernetes runs images, and the service names none.", "Name one with `image`.")
PROXYS_USER = error(
    "proxys-user",
    "In Kubernetes only the proxy's user may leave an agent's pod, and the agent runs as that user.",
    "Give it another `user`.",
)
