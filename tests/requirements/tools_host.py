"""``claw tools``: its configuration, serving over HTTP and stdio, its descriptor, its log."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = "docs/spec/tools-host.md"

REQUIREMENTS: dict[str, Requirement] = {
    "host:config": Requirement(
        SPEC, "`toolhost.yml` gives all settings; sizes take KiB, MiB and GiB."
    ),
    "host:config-errors": Requirement(
        SPEC,
        "Each error of a configuration is a line with file, line and column, what is wrong, and the remedy; all at once.",
    ),
    "host:config-yaml": Requirement(
        SPEC,
        "Broken YAML, repeated keys, tags and bombs of aliases are errors with a place and a remedy.",
    ),
    "host:config-yaml-1-2": Requirement(
        SPEC, "A value of `toolhost.yml` means what it means in a pod file: YAML 1.2."
    ),
    "host:config-served": Requirement(
        SPEC, "With an error in its configuration a host serves nothing, and exits with 1."
    ),
    "host:config-secrets": Requirement(
        SPEC, "A credential is a variable or a file, never shown, and missing ones are errors."
    ),
    "host:principals": Requirement(
        SPEC, "Who calls is decided by the bearer token alone; without a right one it is 401."
    ),
    "host:constant-time": Requirement(SPEC, "All tokens are compared, each in constant time."),
    "host:sessions": Requirement(SPEC, "A session belongs to the principal that opened it."),
    "host:admission": Requirement(
        SPEC, "Hosts and origins that are not allowed, and bodies that are too long, are refused."
    ),
    "host:health": Requirement(
        SPEC, "`/health` tells the state of each part, and no secret, reason or path."
    ),
    "host:eras": Requirement(
        SPEC, "Both eras of the protocol are served, over HTTP and over stdio."
    ),
    "host:cancel": Requirement(
        SPEC, "A call is ended when its client cancels it, or leaves in the stateless era."
    ),
    "host:log": Requirement(
        SPEC, "Each line of the log fits its JSON Schema, and holds no configured secret."
    ),
    "host:stop": Requirement(
        SPEC, "SIGTERM and SIGINT end the host cleanly, also while calls run."
    ),
    "host:stdio": Requirement(
        SPEC, "`--stdio` serves one principal on standard input and output until the input ends."
    ),
    "host:stdio-wire": Requirement(
        SPEC, "Over stdio no tool reads the client's words, or writes between the answers."
    ),
    "host:stdio-lines": Requirement(
        SPEC, "Over stdio a line that is no message, or too long, is answered; the next is heard."
    ),
    "host:describe": Requirement(
        SPEC, "`claw tools describe` prints a descriptor that compiles, the same bytes each time."
    ),
    "host:check": Requirement(
        SPEC, "`claw tools check` says of each tool whether it is registered, and why not."
    ),
    "host:groups": Requirement(
        SPEC, "A tool that can't be had costs no other one; its reason is kept."
    ),
    "host:list-changed": Requirement(SPEC, "When a provider's tools change, clients are told."),
    "host:sdk": Requirement(
        SPEC, "Clients of the official SDK, of both major versions, list and call the host's tools."
    ),
}
