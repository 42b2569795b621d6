"""The compiler: from a pod file to an agent's directory, or to diagnostics."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compile:served": Requirement(
        "docs/spec/contract.md, Layout",
        "What `claw compile` writes is what the proxy serves: tools, feeds, memory, blocks, models, budget, keys, tokens.",
    ),
    "compile:diagnostics-on-the-line": Requirement(
        "docs/spec/compile.md, Diagnostics",
        "Each diagnostic has a stable code and the file, line and column that earn it.",
    ),
    "compile:all-errors-in-one-run": Requirement(
        "docs/spec/compile.md, Diagnostics",
        "All mistakes of a pod are reported in one run, sorted by place.",
    ),
    "compile:secrets-never-printed": Requirement(
        "docs/spec/compile.md, Interpolation; docs/spec/contract.md",
        "No value of a variable, token or master secret is printed; files that must hold one are the only ones that do.",
    ),
    "compile:codes-are-documented": Requirement(
        "docs/spec/compile.md, Diagnostics",
        "docs/diagnostics.md is printed from the registry of codes, and current.",
    ),
    "compile:golden-pod": Requirement(
        "ARCHITECTURE.md",
        "Each worked pod compiles to the bytes of its expected/ directory, in any place.",
    ),
    "compile:killed": Requirement(
        "docs/spec/compile.md",
        "A compiler that is killed at any moment leaves the old tree or the new one, and nothing that stays.",
    ),
    "compile:same-input-same-bytes": Requirement(
        "docs/spec/compile.md", "The same input gives the same bytes, on any machine."
    ),
    "compile:order-of-yaml-is-no-matter": Requirement(
        "docs/spec/compile.md, Tools",
        "No reordering of mappings, grants or names in the pod file changes a byte.",
    ),
    "compile:output-loads": Requirement(
        "docs/spec/contract.md",
        "What the compiler writes is what the proxy's reader accepts, nothing left out.",
    ),
    "compile:digest": Requirement(
        "docs/spec/contract.md, metadata.json",
        "metadata.json carries the SHA-256 of the agent's compiled files.",
    ),
    "compile:agent-page-names-tools-only": Requirement(
        "docs/spec/compile.md, Output",
        "CLAWDAPUS.md names tools as they are presented, and no endpoint, URL or token.",
    ),
    "compile:deny-by-default": Requirement(
        "docs/pod-file.md, feeds", "An agent has the tools that it was granted, and no others."
    ),
    "compile:grants": Requirement(
        "docs/spec/compile.md, Tools",
        "Per service `all` wins, else names are united; deny beats allow; the order is the descriptor's.",
    ),
    "compile:defaults": Requirement(
        "docs/spec/compile.md, Defaults",
        "Absent inherits, present replaces, `...` splices, empty and null suppress.",
    ),
    "compile:policy": Requirement(
        "docs/spec/compile.md, Defaults",
        "tool-policy replaces the pod's default whole; what it leaves out takes the contract's default.",
    ),
    "compile:auth": Requirement(
        "docs/spec/compile.md, Auth",
        "A provider's credential comes from its own environment or from a secret, never from the agent.",
    ),
    "compile:discovered-descriptor": Requirement(
        "docs/descriptors.md", "A snapshot in .claw-discovered/ describes its service."
    ),
    "compile:dockerfile-labels": Requirement(
        "docs/spec/compile.md, Descriptors (resolution order)",
        "A build context's Dockerfile says by LABEL where its descriptor is, read by Docker's own rules.",
    ),
    "compile:lock": Requirement(
        "docs/spec/compile.md, Verbs (claw lock)",
        "`claw.lock` has each service's descriptor and each tool's digest; locked tools compile.",
    ),
    "compile:lock-drift": Requirement(
        "docs/spec/compile.md, Verbs (claw lock)",
        "With a lock, a tool that is changed, gone, or granted without having been locked is refused until accepted.",
    ),
    "compile:lock-image": Requirement(
        "docs/spec/compile.md, Descriptors (resolution order)",
        "The descriptor that an image holds is compiled as the lock recorded it, without Docker.",
    ),
    "compile:rotate": Requirement(
        "docs/spec/compile.md, Tokens",
        "`claw rotate AGENT` gives that agent another token at the next compile, and no other agent.",
    ),
    "compile:brought-skills": Requirement(
        "docs/spec/compile.md, Descriptors (skill)",
        "An agent gets the skill of every service that it may use; its own skill of the same name wins.",
    ),
    "compile:edge-cases": Requirement(
        "docs/spec/compile.md",
        "Each edge case of the original has a result, and a case or test that proves it.",
    ),
    "compile:yaml-1-2": Requirement(
        "docs/spec/compile.md, Diagnostics",
        "Scalars are YAML 1.2's: `on` is a name, `4000:22` a string.",
    ),
    "compile:no-traceback": Requirement(
        "docs/spec/compile.md, Diagnostics",
        "Whatever a pod file or a descriptor holds, the answer is diagnostics.",
    ),
    "compile:paths-stay-inside": Requirement(
        "docs/spec/compile.md",
        "Contracts and descriptors stay in the pod's directory, after symlinks.",
    ),
    "compile:interpolation": Requirement(
        "docs/spec/compile.md, Interpolation",
        "Variables are filled in by Compose's rules; an unset one without a default is an error.",
    ),
    "compile:dotenv": Requirement(
        "docs/spec/compile.md, Interpolation",
        ".env is read in Compose's dialect, under the process's environment.",
    ),
    "compile:base-url": Requirement(
        "docs/spec/compile.md, base_url",
        "A base URL is stated, or made of the first TCP port of expose, then of ports.",
    ),
    "compile:tokens": Requirement(
        "docs/spec/compile.md, Tokens",
        "Agent tokens are derived from the pod's master secret, the agent's id and an epoch.",
    ),
    "compile:master-secret": Requirement(
        "docs/spec/compile.md, Tokens",
        "The first compile makes a master secret, says so, and later ones keep it.",
    ),
    "compile:private-files": Requirement(
        "docs/spec/contract.md, Layout", "Compiled directories are 0700 and files 0600."
    ),
    "compile:atomic": Requirement(
        "docs/spec/compile.md, Verbs",
        "The compiled tree is replaced whole; a kill leaves the old one.",
    ),
    "compile:never-replaces-foreign-files": Requirement(
        "docs/cli.md, claw compile",
        "A directory that holds anything the compiler did not make is not replaced.",
    ),
    "compile:models": Requirement(
        "docs/spec/compile.md, Grammar, Defaults",
        "Models merge slot by slot, the service wins; fallbacks are one list; `{}` and null suppress the pod's.",
    ),
    "compile:spending": Requirement(
        "docs/spec/compile.md, Grammar, Defaults",
        "A budget has a window and a cap, replaces the pod's whole, and null suppresses it.",
    ),
    "compile:memory": Requirement(
        "docs/spec/compile.md, Grammar, Tools",
        "A memory is one service that declares one, replaces the pod's whole, null suppresses it; none without a proxy.",
    ),
    "compile:context-blocks": Requirement(
        "docs/spec/compile.md",
        "Context blocks replace the pod's as a list; what the proxy would skip is an error.",
    ),
    "compile:feeds": Requirement(
        "docs/spec/compile.md, Grammar",
        "A feed is known by its name, in full where several services declare it; `{claw_id}` is filled in for each agent.",
    ),
    "compile:skills": Requirement(
        "docs/spec/compile.md, Grammar",
        "Skills are files that an agent knows by their base names, each once, with front matter that is checked.",
    ),
    "compile:surfaces": Requirement(
        "docs/spec/compile.md, Defaults",
        "Surfaces have one of five forms; a volume or host is read-only unless it says otherwise.",
    ),
    "compile:proxy": Requirement(
        "docs/spec/compile.md, Grammar",
        "cllama takes its three forms; a pod has one type of proxy, and one value for each of its variables.",
    ),
    "compile:count": Requirement(
        "docs/spec/compile.md, count",
        "count makes name-0 to name-(N-1); what would give two containers one name or one identity is an error.",
    ),
    "compile:timezone": Requirement(
        "docs/spec/compile.md", "An agent's time zone is the TZ of its container, else UTC."
    ),
    "compile:original-pods": Requirement(
        "docs/spec/compile.md, Grammar",
        "A pod of the original compiles: what nothing acts on is carried, with one warning each.",
    ),
    "compile:keys-are-documented": Requirement(
        "docs/spec/compile.md, Grammar",
        "docs/pod-file.md names every key of the grammar and no other; its defaults are true, its examples sound.",
    ),
}
