"""What the container of an agent may do that shares its network with its proxy (spec/compile.md "Verbs").

Rules. It gets nothing by which it could change the guard's rules, go below them, or be the user that they let pass. What of
that the pod file gives it is left out, and told; as that user itself it is refused.
"""

from __future__ import annotations

from typing import cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.output.kubernetes.container import Converting
from claw_compile.output.kubernetes.objects import PROXY_UID, Object
from claw_compile.output.yaml_text import Data
from claw_compile.policy.check_host import CAPABILITIES

_PAST_THE_GUARD = CAPABILITIES | {"SETFCAP", "SETPCAP", "SETUID"}


def rightless(main: Object, converting: Converting) -> None:
    """The agent's container, made so."""
    context = cast("Object", main.setdefault("securityContext", {}))
    context["allowPrivilegeEscalation"] = False
    if context.pop("privileged", False):
        _tell(converting, "privileged", "'privileged', which would let it out past its proxy")
    capabilities = cast("Object", context.setdefault("capabilities", {}))
    capabilities["drop"] = ["ALL"]
    added = [str(name) for name in cast("list[Data]", capabilities.pop("add", []))]
    if kept := [name for name in added if name.upper() not in _PAST_THE_GUARD]:
        capabilities["add"] = [*kept]
    for name in added:
        if name not in kept:
            _tell(converting, "cap_add", f"the capability {quoted(name)}, which would let it out past its proxy")
    if context.get("runAsUser") == PROXY_UID and (entry := converting.body.get("user")) is not None:
        converting.found.append(codes.PROXYS_USER.at(entry.key.span, f"{PROXY_UID} is the user of the proxy"))


def _tell(converting: Converting, key: str, what: str) -> None:
    if (entry := converting.body.get(key)) is not None:
        converting.found.append(codes.NOT_CARRIED.at(entry.key.span, f"not carried over to Kubernetes: {what}"))
