"""What no agent may hold (spec/compile.md "Credential starvation")."""

from __future__ import annotations

from claw_compile.codes.registry import error

TOKEN_VISIBLE_TO_AGENT = error(
    "token-visible-to-agent",
    "An agent is given a secret that only the proxy or a service may have (a service's token, a provider's key, the pod's"
    " master secret, another agent's token), and with which it could go round the proxy.",
    "Take it away from the agent: the proxy holds it, and uses it for the agent.",
)
PROVIDER_KEY_VARIABLE = error(
    "provider-key-variable",
    "An agent is given a variable that holds a provider's key, or a value that is made of one. Only the agent's own token may"
    " stand there; what the environment holds now does not count, since Compose fills it in when the pod is started.",
    "Remove it: the compiler gives the runner its token. The provider's key belongs into `x-claw.cllama-env`.",
)
PROVIDER_KEY_VALUE = error(
    "provider-key-value",
    "Something that an agent is given looks like a provider's key (`sk-…`, `sk-ant-…`, `sk-or-…`, `AIza…`, `xai-…`, …).",
    "Remove it; the provider's key belongs into `x-claw.cllama-env`.",
)
PRIVATE_MOUNT = error(
    "private-mount",
    "An agent is given the compiled tree, the pod's master secret, `.env`, a file with one of the pod's secrets, or a volume or"
    " secret of its proxy: by a mount, a volume that is bound to a path, `volumes_from`, `develop.watch`, a build's context,"
    " `secrets` or `configs`.",
    "Mount the files that the agent needs, or a directory that holds only them.",
)
