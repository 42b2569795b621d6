"""The verbs of `claw`: what they print, write and exit with."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "cli:compile": Requirement(
        "compile.md, Verbs",
        "`claw compile` writes the tree and prints which agent may call what, and its effect.",
    ),
    "cli:diagnostic-format": Requirement(
        "compile.md, Diagnostics",
        "A diagnostic shows its place, its line with carets, a hint and a help line.",
    ),
    "cli:nothing-written-on-error": Requirement(
        "compile.md, Verbs",
        "With an error nothing is written, and the old tree stays.",
    ),
    "cli:check-writes-nothing": Requirement(
        "compile.md, Verbs",
        "`claw check` prints diagnostics as text or JSON and writes nothing.",
    ),
    "cli:check-sarif": Requirement(
        "issue 5.4",
        "`claw check --format sarif` is SARIF 2.1.0: rules, places in code points, notes as related places.",
    ),
    "cli:check-github": Requirement(
        "issue 5.4", "`claw check --format github` prints a workflow command for each diagnostic, escaped."
    ),
    "cli:plan": Requirement(
        "compile.md, Verbs",
        "`claw plan` lists who would gain or lose which tool, marks a gained write, lists files; exit 0 same, 2 changed, 1.",
    ),
    "cli:explain": Requirement(
        "compile.md, Verbs",
        "`claw explain` gives every reason with its place, of what is allowed and what is denied, and what would change it.",
    ),
    "cli:exit-codes": Requirement(
        "compile.md, Verbs",
        "Exit 0, 1 for errors, 2 for wrong usage.",
    ),
    "cli:state": Requirement(
        "issue 4, 4.", "claw state lists what is kept of each agent, as a table or as JSON, and never its content."
    ),
    "cli:state-forget": Requirement(
        "issue 4, 4.", "claw state forget says what went and what was left, and does nothing without a yes."
    ),
    "cli:lock": Requirement(
        "compile.md, Verbs (claw lock)",
        "`claw lock` writes claw.lock and says what came, was accepted and went; `--accept` takes a service as it is.",
    ),
    "cli:rotate": Requirement(
        "compile.md, Tokens",
        "`claw rotate AGENT` says that the next compile ends the old token, and that the container is to be recreated.",
    ),
    "cli:up": Requirement(
        "compile.md, Verbs",
        "`claw up` compiles, and Docker Compose takes its place, with the file, our identity, ARGS, signals and exit code.",
    ),
    "cli:down": Requirement(
        "compile.md, Verbs",
        "`claw down` removes what `claw up` made, of the pod as it is and as it was; volumes only with `--volumes`.",
    ),
    "cli:no-docker": Requirement(
        "issue 5.4", "Without Docker, or without its Compose plugin, one line on standard error says what to install."
    ),
    "cli:schema": Requirement(
        "compile.md, Verbs",
        "`claw schema` prints Compose's schema with x-claw in it, which takes at each place what the grammar takes.",
    ),
    "cli:inspect-agent": Requirement(
        "issue 5.4",
        "`claw inspect AGENT` shows all of its compiled authority, and no value of a variable; text and JSON.",
    ),
    "cli:inspect-service": Requirement(
        "issue 5.4",
        "`claw inspect SERVICE` shows its descriptor, where that was found, how it is called, and who has which tool.",
    ),
    "cli:init": Requirement(
        "compile.md, Verbs",
        "`claw init NAME` makes a pod that compiles without a warning and that Compose takes; nothing is overwritten.",
    ),
    "cli:help": Requirement(
        "issue 5.4", "Every verb says in its help what it does and its exit codes; `claw --version` prints the version."
    ),
    "cli:help-is-light": Requirement("issue 11, 3", "`claw --help` imports no verb, and no library that a verb needs."),
    "cli:proxy": Requirement(
        "issue 11, 3",
        "`claw proxy` becomes mitmdump, or mitmweb, of its own environment, with the installed addon and all options as given.",
    ),
    "cli:proxy-tree": Requirement(
        "issue 11, 3",
        "`claw proxy` uses the compiled tree here; a variable that is set wins; without a tree, one line and exit 1.",
    ),
    "cli:token": Requirement(
        "issue 11, 3",
        "`claw token AGENT` prints the agent's token only; an unknown agent or a missing tree is one line with the remedy.",
    ),
    "cli:doctor": Requirement(
        "issue 11, 3",
        "`claw doctor` has a row for each thing that a pod needs, with the remedy for each that is missing; exit 1 for those.",
    ),
    "cli:doctor-anywhere": Requirement(
        "issue 11, 3", "`claw doctor` answers in any directory, on any files; it prints no secret and writes nothing."
    ),
    "cli:typed": Requirement(
        "issue 11, 2",
        "Every package is typed for others, and the metadata has authors, classifiers, keywords and upstream.",
    ),
    "cli:pod-argument": Requirement(
        "issue 5.4",
        "The pod file is `claw-pod.yml`, or named by `-f` at every verb, or the argument of verbs about a pod.",
    ),
    "cli:streams": Requirement(
        "issue 5.4", "Standard output holds what was asked for; errors go to standard error, and nothing is colored."
    ),
}
