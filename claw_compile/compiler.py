"""The pipeline: load → resolve → check → connect → project → emit → write.

Rules. The diagnostics of all phases are collected in one run and sorted by place. With an error
nothing is written; ``check_pod`` writes nothing at all.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Result, has_errors, sort_diagnostics
from claw_compile.diagnostics.report import as_text, count
from claw_compile.loading.load import MASTER_FILE, LoadedPod, load
from claw_compile.output.compose.compose_file import COMPOSE_FILE, compose
from claw_compile.output.compose.proxy_service import secret_files
from claw_compile.output.deployment import Deployment, Placement
from claw_compile.output.emit import Tree, emit
from claw_compile.output.kubernetes.manifests import KUBERNETES_FILE, kubernetes
from claw_compile.output.proxy_env import opened_hosts, proxy_env_file
from claw_compile.output.stdio_wrapper import wrap_servers
from claw_compile.output.tools_host import equip_hosts, host_files
from claw_compile.output.write import write, write_master
from claw_compile.policy.agent import ResolvedPod
from claw_compile.policy.check import check
from claw_compile.policy.connect import connect
from claw_compile.policy.credential_leaks import find_credential_leaks
from claw_compile.policy.lock_drift import find_lock_drift
from claw_compile.policy.project import ProjectedAgent, ProjectedPod, project
from claw_compile.policy.resolve import resolve
from claw_contract.secret import Secret

type Target = Literal["compose", "kubernetes"]

OUTPUT = ".claw-runtime"


@dataclass(frozen=True)
class Plan:
    """A pod without errors, before it is written.

    Where ``loaded`` has no master secret, ``compile_pod`` makes one.
    """

    pod: ProjectedPod
    resolved: ResolvedPod
    loaded: LoadedPod = field(repr=False)

    @property
    def agents(self) -> tuple[ProjectedAgent, ...]:
        return self.pod.agents


@dataclass(frozen=True)
class CompileResult:
    """The result of a compile. ``new_master`` is the file of a master secret that it made.

    ``deployed`` is what runs the pod: compose.generated.yml, or the manifests for Kubernetes.
    ``opened_hosts`` are the hosts that the proxy signs certificates for; none where every agent is
    at the base-URL entrance.
    """

    directory: Path
    deployed: Path
    pod: ProjectedPod
    new_master: Path | None = None
    opened_hosts: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[ProjectedAgent, ...]:
        return self.pod.agents


def check_pod(pod_file: Path, environ: Mapping[str, str]) -> Result[Plan]:
    """Run every phase but the writing. The value is None when there is an error."""
    loaded = load(pod_file, environ)
    if loaded.value is None:
        return Result(None, sort_diagnostics(loaded.diagnostics))

    # Each phase goes on after errors: one run reports the mistakes of all of them.
    pod = loaded.value
    resolved = resolve(pod)
    assert resolved.value is not None
    providers = connect(pod, resolved.value)
    assert providers.value is not None
    diagnostics = sort_diagnostics(
        (
            *loaded.diagnostics,
            *resolved.diagnostics,
            *check(pod, resolved.value),
            *find_lock_drift(pod, resolved.value),
            *providers.diagnostics,
            *find_credential_leaks(pod, resolved.value, providers.value),
        )
    )
    if has_errors(diagnostics):
        return Result(None, diagnostics)

    projected = project(pod, resolved.value, providers.value)
    return Result(Plan(projected, resolved.value, pod), diagnostics)


def output_of(pod_file: Path, output: Path | None) -> Path:
    """Return the directory that a compile writes: by default ``.claw-runtime`` beside the pod."""
    return pod_file.parent / OUTPUT if output is None else output


def compose_file_of(pod_file: Path, output: Path | None) -> Path:
    """Return the path of compose.generated.yml: beside the pod, or with the rest in ``output``."""
    directory = pod_file.parent if output is None else output
    return directory / COMPOSE_FILE


def preview(plan: Plan) -> tuple[Tree, bytes]:
    """Return what a compile would write: the tree, and compose.generated.yml.

    A pod without a master secret gets tokens of a new one here, which no compile will use.
    """
    deployment = _deployment(plan, plan.loaded.master or _new_master())
    return deployment.tree, compose(deployment)


def compile_pod(
    pod_file: Path,
    environ: Mapping[str, str],
    output: Path | None = None,
    target: Target = "compose",
    placement: Placement = "sidecar",
) -> Result[CompileResult]:
    """Compile a pod, and write the result. With an error nothing is written.

    The result is the tree ``.claw-runtime``, and beside it compose.generated.yml. ``output`` names
    another directory for both; the content stays the same.

    For Kubernetes, one file has everything that is deployed. It holds Secrets, so it is in the
    tree. ``placement`` says where the proxies run there.
    """
    checked = check_pod(pod_file, environ)
    plan = checked.value
    if plan is None:
        return Result(None, checked.diagnostics)

    master = plan.loaded.master or _new_master()
    deployment = replace(_deployment(plan, master), placement=placement)
    directory = output_of(pod_file, output)
    if target == "kubernetes":
        content = kubernetes(deployment, plan.loaded.variables.lookup)
        file = directory / KUBERNETES_FILE
    else:
        content = Result(compose(deployment))
        file = compose_file_of(pod_file, output)

    diagnostics = sort_diagnostics((*checked.diagnostics, *content.diagnostics))
    if content.value is None or has_errors(diagnostics):
        return Result(None, diagnostics)

    # The secret is stored before the tree: its tokens could not be made again without it.
    new_master: Path | None = None
    if plan.loaded.master is None:
        new_master = pod_file.parent / MASTER_FILE
        problems = write_master(new_master, master)
        if problems:
            return Result(None, (*diagnostics, *problems))

    # Only compose.generated.yml may be beside the tree; any other file is in it.
    tree = deployment.tree
    beside: dict[Path, bytes] = {}
    if file.parent == directory:
        tree = {**tree, PurePosixPath(file.name): content.value}
    else:
        beside[file] = content.value

    problems = write(tree, directory, beside)
    if problems:
        return Result(None, (*diagnostics, *problems))

    hosts = tuple(opened_hosts(plan.resolved)) if deployment.uses_ca else ()
    return Result(CompileResult(directory, file, plan.pod, new_master, hosts), diagnostics)


def _deployment(plan: Plan, master: Secret) -> Deployment:
    lookup = plan.loaded.variables.lookup
    tree = {
        **emit(plan.pod, master),
        **proxy_env_file(plan.resolved),
        **secret_files(plan.loaded.pod, lookup),
        **host_files(plan.pod, plan.resolved, lookup, master),
    }
    # What Compose starts is the pod file's, with the keys that wrappers and tools hosts need.
    pod = wrap_servers(plan.loaded.pod, lookup)
    pod = equip_hosts(pod, plan.resolved, lookup)
    return Deployment(pod, plan.resolved, tree, master)


def _new_master() -> Secret:
    return Secret(secrets.token_hex(32))


def run(
    pod: Path, output: Path | None, target: Target = "compose", placement: Placement = "sidecar"
) -> int:
    """Compile a pod for the command line: print diagnostics and a summary, return the exit code."""
    compile_result = compile_and_report(pod, output, target, placement)
    if compile_result is None:
        return 1
    sys.stdout.write(summary(compile_result))
    sys.stdout.write(f"wrote {compile_result.directory} and {compile_result.deployed}\n")
    return 0


def compile_and_report(
    pod: Path,
    output: Path | None = None,
    target: Target = "compose",
    placement: Placement = "sidecar",
) -> CompileResult | None:
    """Compile a pod, and print its diagnostics on standard error. Return None with errors."""
    result = compile_pod(pod, os.environ, output, target, placement)
    sys.stderr.write(as_text(result.diagnostics))
    totals = count(result.diagnostics)
    if totals:
        sys.stderr.write(f"{totals}\n")

    compile_result = result.value
    if compile_result is not None and compile_result.new_master is not None:
        sys.stderr.write(
            f"made {compile_result.new_master}: the pod's master secret; keep it, and keep "
            "it private\n"
        )
    return compile_result


def summary(plan: Plan | CompileResult) -> str:
    """Return a few lines for people about the agents and their tools.

    They say for each agent its tools and what a call of each may do, and for each service where its
    tools are described.
    """
    lines: list[str] = []
    for agent in plan.agents:
        tools = agent.manifest.tools if agent.manifest is not None else ()
        lines.append(f"{agent.agent.id}: {len(tools)} tool{'' if len(tools) == 1 else 's'}")

        width = max((len(tool.name) for tool in tools), default=0)
        lines.extend(f"  {tool.name:<{width}}  {tool.effect}" for tool in tools)

    for name, descriptor in sorted(plan.pod.descriptors.items()):
        if descriptor is not None and descriptor.tools:
            lines.append(f"{name}: tools from {_source(descriptor)}")
    return "".join(f"{line}\n" for line in lines)


def _source(descriptor: ServiceDescriptor) -> str:
    match descriptor.source:
        case "tools-host":
            return "the tools host itself, as its settings have it"
        case "snapshot":
            return f"the snapshot {descriptor.file}"
        case "tools-list":
            return f"the list {descriptor.file}"
        case "image":
            return f"the descriptor of its image, in {descriptor.file}"
        case "describe-file" | "build":
            return f"the descriptor {descriptor.file}"
