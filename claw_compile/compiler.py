"""The phases in their order: load → resolve → check → connect → project → emit → write.

Rules. Diagnostics of all phases are collected in one run and sorted by place. With an error nothing is written; ``check_pod``
writes nothing at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Checked, Diagnostic, has_errors, in_order, start_of
from claw_compile.loading.load import MASTER_FILE, Loaded, load
from claw_compile.output.compose.compose_file import COMPOSE_FILE, compose
from claw_compile.output.compose.secret_files import secret_files
from claw_compile.output.deployment import Deployment
from claw_compile.output.emit import Tree, emit
from claw_compile.output.kubernetes.manifests import KUBERNETES_FILE, kubernetes
from claw_compile.output.proxy_env import opened_hosts, proxy_env_file
from claw_compile.output.write import create_master, write
from claw_compile.policy.agent import Resolved
from claw_compile.policy.check import check
from claw_compile.policy.connect import connect
from claw_compile.policy.credential_leaks import starvation
from claw_compile.policy.lock_drift import drift
from claw_compile.policy.project import Projected, ProjectedPod, project
from claw_compile.policy.resolve import resolve
from claw_contract.secret import Secret

type Target = Literal["compose", "kubernetes"]

OUTPUT = ".claw-runtime"


@dataclass(frozen=True)
class Plan:
    """A pod without errors, before it is written. It has no master secret yet where ``loaded`` has none."""

    pod: ProjectedPod
    resolved: Resolved
    loaded: Loaded = field(repr=False)

    @property
    def agents(self) -> tuple[Projected, ...]:
        return self.pod.agents


@dataclass(frozen=True)
class Written:
    """What a compile wrote, and where. ``new_master`` is the file of a master secret that it made.

    ``deployed`` is what runs it: compose.generated.yml, or the manifests for Kubernetes.
    """

    directory: Path
    deployed: Path
    agents: tuple[Projected, ...]
    new_master: Path | None = None
    opened_hosts: tuple[str, ...] = ()
    """Of which the proxy signs certificates; none where every agent is at the base-URL entrance."""


def check_pod(pod_file: Path, environ: Mapping[str, str]) -> Checked[Plan]:
    """Everything but the writing. The value is None when there is an error."""
    loaded = load(pod_file, environ)
    if loaded.value is None:
        return Checked(None, in_order(loaded.diagnostics))
    resolved = resolve(loaded.value)
    assert resolved.value is not None
    providers = connect(loaded.value, resolved.value)
    assert providers.value is not None
    found = in_order(
        (
            *loaded.diagnostics,
            *resolved.diagnostics,
            *check(loaded.value, resolved.value),
            *drift(loaded.value, resolved.value),
            *providers.diagnostics,
            *starvation(loaded.value, resolved.value, providers.value),
        )
    )
    if has_errors(found):
        return Checked(None, found)
    return Checked(Plan(project(loaded.value, resolved.value, providers.value), resolved.value, loaded.value), found)


def outputs(plan: Plan, master: Secret) -> tuple[Tree, bytes]:
    """The compiled tree, and compose.generated.yml."""
    pod = plan.loaded.pod
    tree = {
        **emit(plan.pod, master),
        **proxy_env_file(plan.resolved),
        **secret_files(pod, plan.loaded.variables.lookup),
    }
    return tree, compose(Deployment(pod, plan.resolved, tree, master))


def output_of(pod_file: Path, output: Path | None) -> Path:
    """Where a compile writes: ``output``, or ``.claw-runtime`` beside the pod."""
    return pod_file.parent / OUTPUT if output is None else output


def compose_file_of(pod_file: Path, output: Path | None) -> Path:
    """Where compose.generated.yml is: beside the pod, or with the rest in ``output``."""
    return (pod_file.parent if output is None else output) / COMPOSE_FILE


def emitted(plan: Plan) -> tuple[Tree, bytes]:
    """What a compile would write. A pod without a master secret gets tokens here that nobody has."""
    return outputs(plan, plan.loaded.master or _nobodys())


def compile_pod(
    pod_file: Path, environ: Mapping[str, str], output: Path | None = None, target: Target = "compose"
) -> Checked[Written]:
    """Compile a pod into ``.claw-runtime`` and compose.generated.yml beside it; with an error nothing is written.

    ``output`` is another place for all of it; what is written there is what would be written beside the pod. For Kubernetes
    there is one file with all that is deployed, and since it holds Secrets it is in the tree.
    """
    checked = check_pod(pod_file, environ)
    plan = checked.value
    if plan is None:
        return Checked(None, checked.diagnostics)
    told = _manifests(plan, emitted(plan)[0], _nobodys()).diagnostics if target == "kubernetes" else ()
    found = in_order((*checked.diagnostics, *told))
    if has_errors(found):
        return Checked(None, found)
    new_master = None
    if (master := plan.loaded.master) is None:
        new_master = pod_file.parent / MASTER_FILE
        try:
            master = create_master(new_master)
        except OSError as error:
            refusal = codes.UNWRITABLE_OUTPUT.at(start_of(str(new_master)), f"it can't be written: {error.strerror}")
            return Checked(None, (*found, refusal))
    written = _write(plan, master, (pod_file, output), target)
    if isinstance(written, tuple):
        return Checked(None, (*found, *written))
    return Checked(replace(written, new_master=new_master), found)


def _write(
    plan: Plan, master: Secret, places: tuple[Path, Path | None], target: Target
) -> Written | tuple[Diagnostic, ...]:
    pod_file, output = places
    directory, file = output_of(pod_file, output), compose_file_of(pod_file, output)
    tree, made = outputs(plan, master)
    match target:
        case "kubernetes":
            manifests = _manifests(plan, tree, master).value
            assert manifests is not None
            file = directory / KUBERNETES_FILE
            refused = write({**tree, PurePosixPath(KUBERNETES_FILE): manifests}, directory)
        case "compose" if output is None:
            refused = write(tree, directory, {file: made})
        case "compose":
            refused = write({**tree, PurePosixPath(COMPOSE_FILE): made}, directory)
    uses_ca = Deployment(plan.loaded.pod, plan.resolved, tree, master).uses_ca
    return refused or Written(
        directory, file, plan.agents, opened_hosts=tuple(opened_hosts(plan.resolved)) if uses_ca else ()
    )


def _manifests(plan: Plan, tree: Tree, master: Secret) -> Checked[bytes]:
    return kubernetes(Deployment(plan.loaded.pod, plan.resolved, tree, master), plan.loaded.variables.lookup)


def _nobodys() -> Secret:
    """In the place of a master secret that is not made yet."""
    return Secret(secrets.token_hex(32))
