"""The compiler: from a pod file to an agent's directory, or to diagnostics."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "compile:served": Requirement(
        "contract.md, Layout",
        "What `claw compile` writes is what the proxy serves: tools, feeds, memory, blocks, models, budget, keys, tokens.",
    ),
    "compile:diagnostics-on-the-line": Requirement(
        "compile.md, Diagnostics",
        "Each diagnostic has a stable code and the file, line and column that earn it.",
    ),
    "compile:all-errors-in-one-run": Requirement(
        "compile.md, Diagnostics",
        "All mistakes of a pod are reported in one run, sorted by place.",
    ),
    "compile:secrets-never-printed": Requirement(
        "compile.md, Interpolation; contract.md",
        "No value of a variable, token or master secret is printed; files that must hold one are the only ones that do.",
    ),
    "compile:codes-are-documented": Requirement(
        "compile.md, Diagnostics",
        "docs/diagnostics.md is printed from the registry of codes, and current.",
    ),
    "compile:golden-pod": Requirement(
        "design.md, Tests",
        "Each worked pod compiles to the bytes of its expected/ directory, in any place.",
    ),
    "compile:killed": Requirement(
        "issue 5, Prove",
        "A compiler that is killed at any moment leaves the old tree or the new one, and nothing that stays.",
    ),
    "compile:same-input-same-bytes": Requirement(
        "compile.md",
        "The same input gives the same bytes, on any machine.",
    ),
    "compile:order-of-yaml-is-no-matter": Requirement(
        "compile.md, Tools",
        "No reordering of mappings, grants or names in the pod file changes a byte.",
    ),
    "compile:output-loads": Requirement(
        "contract.md",
        "What the compiler writes is what the proxy's reader accepts, nothing left out.",
    ),
    "compile:digest": Requirement(
        "contract.md, metadata.json",
        "metadata.json carries the SHA-256 of the agent's compiled files.",
    ),
    "compile:agent-page-names-tools-only": Requirement(
        "compile.md, Output",
        "CLAWDAPUS.md names tools as they are presented, and no endpoint, URL or token.",
    ),
    "compile:deny-by-default": Requirement(
        "guide, Subscribing in Pod YAML",
        "An agent has the tools that it was granted, and no others.",
    ),
    "compile:grants": Requirement(
        "compile.md, Tools",
        "Per service `all` wins, else names are united; deny beats allow; the order is the descriptor's.",
    ),
    "compile:defaults": Requirement(
        "compile.md, Defaults",
        "Absent inherits, present replaces, `...` splices, empty and null suppress.",
    ),
    "compile:policy": Requirement(
        "compile.md, Defaults",
        "tool-policy replaces the pod's default whole; what it leaves out takes the contract's default.",
    ),
    "compile:auth": Requirement(
        "compile.md, Auth",
        "A provider's credential comes from its own environment or from a secret, never from the agent.",
    ),
    "compile:discovered-descriptor": Requirement(
        "guide, Wrapping Stdio MCP Servers",
        "A snapshot in .claw-discovered/ describes its service.",
    ),
    "compile:dockerfile-labels": Requirement(
        "compile.md, Descriptors (resolution order)",
        "A build context's Dockerfile says by LABEL where its descriptor is, read by Docker's own rules.",
    ),
    "compile:lock": Requirement(
        "compile.md, Verbs (claw lock)",
        "`claw.lock` has each service's descriptor and each tool's digest; locked tools compile.",
    ),
    "compile:lock-drift": Requirement(
        "compile.md, Verbs (claw lock)",
        "With a lock, a tool that is changed, gone, or granted without having been locked is refused until accepted.",
    ),
    "compile:lock-image": Requirement(
        "compile.md, Descriptors (resolution order)",
        "The descriptor that an image holds is compiled as the lock recorded it, without Docker.",
    ),
    "compile:rotate": Requirement(
        "compile.md, Tokens",
        "`claw rotate AGENT` gives that agent another token at the next compile, and no other agent.",
    ),
    "compile:brought-skills": Requirement(
        "compile.md, Descriptors (skill); origin-compile 2.18",
        "An agent gets the skill of every service that it may use; its own skill of the same name wins.",
    ),
    "compile:edge-cases": Requirement(
        "origin-compile 7",
        "Each edge case of the original has a result, and a case or test that proves it.",
    ),
    "compile:yaml-1-2": Requirement(
        "compile.md, Diagnostics",
        "Scalars are YAML 1.2's: `on` is a name, `4000:22` a string.",
    ),
    "compile:no-traceback": Requirement(
        "compile.md, Diagnostics",
        "Whatever a pod file or a descriptor holds, the answer is diagnostics.",
    ),
    "compile:paths-stay-inside": Requirement(
        "compile.md; origin-compile 2.1",
        "Contracts and descriptors stay in the pod's directory, after symlinks.",
    ),
    "compile:interpolation": Requirement(
        "compile.md, Interpolation",
        "Variables are filled in by Compose's rules; an unset one without a default is an error.",
    ),
    "compile:dotenv": Requirement(
        "compile.md, Interpolation",
        ".env is read in Compose's dialect, under the process's environment.",
    ),
    "compile:base-url": Requirement(
        "compile.md, base_url",
        "A base URL is stated, or made of the first TCP port of expose, then of ports.",
    ),
    "compile:tokens": Requirement(
        "compile.md, Tokens",
        "Agent tokens are derived from the pod's master secret, the agent's id and an epoch.",
    ),
    "compile:master-secret": Requirement(
        "compile.md, Tokens",
        "The first compile makes a master secret, says so, and later ones keep it.",
    ),
    "compile:private-files": Requirement(
        "contract.md, Layout",
        "Compiled directories are 0700 and files 0600.",
    ),
    "compile:atomic": Requirement(
        "compile.md, Verbs",
        "The compiled tree is replaced whole; a kill leaves the old one.",
    ),
    "compile:never-replaces-foreign-files": Requirement(
        "no user loses files to -o",
        "A directory that holds anything the compiler did not make is not replaced.",
    ),
    "compile:models": Requirement(
        "compile.md, Grammar, Defaults; origin-compile 2.8",
        "Models merge slot by slot, the service wins; fallbacks are one list; `{}` and null suppress the pod's.",
    ),
    "compile:spending": Requirement(
        "compile.md, Grammar, Defaults; origin-compile 2.9",
        "A budget has a window and a cap, replaces the pod's whole, and null suppresses it.",
    ),
    "compile:memory": Requirement(
        "compile.md, Grammar, Tools; origin-compile 2.9",
        "A memory is one service that declares one, replaces the pod's whole, null suppresses it; none without a proxy.",
    ),
    "compile:context-blocks": Requirement(
        "origin-compile 2.10",
        "Context blocks replace the pod's as a list; what the proxy would skip is an error.",
    ),
    "compile:feeds": Requirement(
        "compile.md, Grammar; origin-compile 2.6",
        "A feed is known by its name, in full where several services declare it; `{claw_id}` is filled in for each agent.",
    ),
    "compile:skills": Requirement(
        "compile.md, Grammar; origin-compile 2.3",
        "Skills are files that an agent knows by their base names, each once, with front matter that is checked.",
    ),
    "compile:surfaces": Requirement(
        "compile.md, Defaults; origin-compile 2.4",
        "Surfaces have one of five forms; a volume or host is read-only unless it says otherwise.",
    ),
    "compile:proxy": Requirement(
        "compile.md, Grammar; origin-compile 2.3",
        "cllama takes its three forms; a pod has one type of proxy, and one value for each of its variables.",
    ),
    "compile:count": Requirement(
        "compile.md, count; origin-compile 2.12",
        "count makes name-0 to name-(N-1); what would give two containers one name or one identity is an error.",
    ),
    "compile:timezone": Requirement(
        "origin-compile 3.2",
        "An agent's time zone is the TZ of its container, else UTC.",
    ),
    "compile:original-pods": Requirement(
        "compile.md, Grammar",
        "A pod of the original compiles: what nothing acts on is carried, with one warning each.",
    ),
    "compile:keys-are-documented": Requirement(
        "compile.md, Grammar",
        "docs/pod-file.md names every key of the grammar and no other; its defaults are true, its examples sound.",
    ),
}
