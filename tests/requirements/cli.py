"""The verbs of `claw`: their output, files and exit codes."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "cli:compile": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw compile` writes the tree and prints which agent may call what, and its effect.",
    ),
    "cli:diagnostic-format": Requirement(
        'docs/spec/compile.md, "Diagnostics"',
        "A diagnostic shows its place, its line with carets, a hint and a help line.",
    ),
    "cli:nothing-written-on-error": Requirement(
        'docs/spec/compile.md, "Verbs"', "With an error nothing is written, and the old tree stays."
    ),
    "cli:check-writes-nothing": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw check` prints diagnostics as text or JSON and writes nothing.",
    ),
    "cli:check-sarif": Requirement(
        "docs/cli.md",
        "`claw check --format sarif` is SARIF 2.1.0: rules, places in code points, notes as related places.",
    ),
    "cli:check-github": Requirement(
        "docs/cli.md",
        "`claw check --format github` prints a workflow command for each diagnostic, escaped.",
    ),
    "cli:plan": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw plan` lists who would gain or lose which tool, marks a gained write, lists files; exit 0 same, 2 changed, 1.",
    ),
    "cli:explain": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw explain` gives every reason with its place, of what is allowed and what is denied, and what would change it.",
    ),
    "cli:exit-codes": Requirement(
        'docs/spec/compile.md, "Verbs"', "Exit 0, 1 for errors, 2 for wrong usage."
    ),
    "cli:state": Requirement(
        "docs/state.md",
        "claw state lists what is kept of each agent, as a table or as JSON, and never its content.",
    ),
    "cli:state-forget": Requirement(
        "docs/state.md",
        "claw state forget says what went and what was left, and does nothing without a yes.",
    ),
    "cli:lock": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw lock` writes claw.lock and says what came, was accepted and went; `--accept` takes a service as it is.",
    ),
    "cli:rotate": Requirement(
        'docs/spec/compile.md, "Tokens"',
        "`claw rotate AGENT` says that the next compile ends the old token, and that the container is to be recreated.",
    ),
    "cli:up": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw up` compiles, and Docker Compose takes its place, with the file, our identity, ARGS, signals and exit code.",
    ),
    "cli:down": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw down` removes what `claw up` made, of the pod as it is and as it was; volumes only with `--volumes`.",
    ),
    "cli:no-docker": Requirement(
        "docs/cli.md",
        "Without Docker, or without its Compose plugin, one line on standard error says what to install.",
    ),
    "cli:schema": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw schema` prints Compose's schema with x-claw in it, which takes at each place what the grammar takes.",
    ),
    "cli:inspect-agent": Requirement(
        "docs/cli.md",
        "`claw inspect AGENT` shows all of its compiled authority, and no value of a variable; text and JSON.",
    ),
    "cli:inspect-service": Requirement(
        "docs/cli.md",
        "`claw inspect SERVICE` shows its descriptor, where that was found, how it is called, and who has which tool.",
    ),
    "cli:init": Requirement(
        'docs/spec/compile.md, "Verbs"',
        "`claw init NAME` makes a pod that compiles without a warning and that Compose takes; nothing is overwritten.",
    ),
    "cli:help": Requirement(
        "docs/cli.md",
        "Every verb says in its help what it does and its exit codes; `claw --version` prints the version.",
    ),
    "cli:help-is-light": Requirement(
        "docs/cli.md", "`claw --help` imports no verb, and no library that a verb needs."
    ),
    "cli:proxy": Requirement(
        "docs/cli.md",
        "`claw proxy` becomes mitmdump, or mitmweb, of its own environment, with the installed addon and all options as given.",
    ),
    "cli:proxy-tree": Requirement(
        "docs/cli.md",
        "`claw proxy` uses the compiled tree here; a variable that is set wins; without a tree, one line and exit 1.",
    ),
    "cli:token": Requirement(
        "docs/cli.md",
        "`claw token AGENT` prints the agent's token only; an unknown agent or a missing tree is one line with the remedy.",
    ),
    "cli:doctor": Requirement(
        "docs/cli.md",
        "`claw doctor` has a row for each thing that a pod needs, with the remedy for each that is missing; exit 1 for those.",
    ),
    "cli:doctor-anywhere": Requirement(
        "docs/cli.md",
        "`claw doctor` answers in any directory, on any files; it prints no secret and writes nothing.",
    ),
    "cli:typed": Requirement(
        "CONTRIBUTING.md",
        "Every package is typed for others, and the metadata has authors, classifiers, keywords and upstream.",
    ),
    "cli:pod-argument": Requirement(
        "docs/cli.md",
        "The pod file is `claw-pod.yml`, or named by `-f` at every verb, or the argument of verbs about a pod.",
    ),
    "cli:streams": Requirement(
        "docs/cli.md",
        "Standard output holds what was asked for; errors go to standard error, and nothing is colored.",
    ),
}
