"""The tools host in a pod: what is compiled of it, its image, the pods that have one, and a first day with it."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = 'docs/spec/tools-host.md, "In a pod"'
IMAGE = 'docs/spec/tools-host.md, "The image"'
FIRST_DAY = "docs/tools-host.md"

REQUIREMENTS: dict[str, Requirement] = {
    "toolspod:container": Requirement(
        SPEC,
        "A service with `tools-host` gets image, entry point, volume, health check and a container without rights.",
    ),
    "toolspod:principals": Requirement(
        SPEC,
        "Each agent that is granted a tool is a principal: its workspace, its token, and exactly its grants.",
    ),
    "toolspod:tokens": Requirement(
        SPEC,
        "A token is derived for each agent; proxy and host have it as a file, and nothing else that is written has it.",
    ),
    "toolspod:rotate": Requirement(
        SPEC, "`claw rotate AGENT` gives the agent another token at every tools host."
    ),
    "toolspod:grants-offline": Requirement(
        SPEC, "Grants are checked at compile time, without asking the host."
    ),
    "toolspod:held-back": Requirement(
        SPEC,
        "A built-in tool that the settings leave out can't be granted; the error says which setting it needs.",
    ),
    "toolspod:one-registry": Requirement(
        SPEC,
        "The compiler's descriptor of the built-in tools is what `claw tools describe --offline` prints.",
    ),
    "toolspod:servers": Requirement(
        SPEC,
        "Tools of servers behind the host come from a snapshot; those of an internal server can't be granted.",
    ),
    "toolspod:unlisted": Requirement(
        SPEC, "A server that is open to grants without a snapshot is a warning with its remedy."
    ),
    "toolspod:discover": Requirement(
        SPEC,
        "`claw discover` of a tools host says that its tools are known, and what to run for those of servers.",
    ),
    "toolspod:fractions": Requirement(
        SPEC, "Seconds may have a fraction in a pod file, as they may in the host's own file."
    ),
    "toolspod:settings-file": Requirement(
        SPEC,
        "Settings may be in a `toolhost.yml`, whose mistakes have their place; the pod file wins, key by key.",
    ),
    "toolspod:variables": Requirement(
        SPEC,
        "A variable that a credential of the settings names is the container's, and its value in no file.",
    ),
    "toolspod:own-keys-win": Requirement(
        SPEC, "What the user wrote of the service wins, key by key."
    ),
    "toolspod:kubernetes": Requirement(
        SPEC, "Kubernetes runs the same, with its files in a Secret."
    ),
    "toolspod:no-leak": Requirement(
        SPEC, "No agent may hold a token of a tools host: such a pod is refused."
    ),
    "toolspod:host-reads-it": Requirement(
        SPEC, "The host reads the `toolhost.yml` that is compiled."
    ),
    "toolspod:image": Requirement(
        IMAGE,
        "The image has the package, a shell with git, no rights, and the entry point and health check that are compiled.",
    ),
    "toolspod:contained": Requirement(
        IMAGE,
        "The compiled command serves without root, without capabilities and on a read-only file system.",
    ),
    "toolspod:init": Requirement(
        FIRST_DAY,
        "`claw init --with-tools` makes a pod whose agent reads, writes, runs a command, remembers and fetches.",
    ),
    "toolspod:first-day": Requirement(
        FIRST_DAY,
        "The commands of that pod's README work without Docker: an agent on an SDK edits a file of its workspace.",
    ),
}
