"""The pod's CA: what it may sign, who trusts it, and what is refused."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "certs:constrained": Requirement(
        "issue 6, 2.",
        "The pod's CA is good for its governed hosts: OpenSSL refuses what it signs for any other, or an address.",
    ),
    "certs:runtimes": Requirement(
        "issue 6, 2.",
        "By the variable of its line in certs/README.md each runtime trusts the proxy for governed hosts, and for no others.",
    ),
    "certs:one-name": Requirement(
        "issue 6, 1.",
        "A certificate is for the one name that was asked for, so that a constrained CA works at every entrance.",
    ),
    "certs:hosts": Requirement(
        "issue 6, 2.",
        "The CA is held to the hosts that the compiled proxy governs; what it can't be held to is said, with why.",
    ),
    "certs:files": Requirement(
        "issue 6, 2.",
        "Key and certificate appear together, 0600 in 0700; no symlink is followed, and no key replaced without --force.",
    ),
    "certs:killed": Requirement(
        "issue 6, 2.", "Whenever it is killed, there is a whole CA or none, and the same verb again mends the rest."
    ),
    "certs:rotation": Requirement(
        "issue 6, 2.", "A new CA is trusted beside the old one before it signs, and the old one goes only when told."
    ),
    "certs:finish": Requirement(
        "issue 6, 2.", "A staged CA that is out of time, open, broken, too wide or given to no runner replaces none."
    ),
    "certs:status": Requirement(
        "issue 6, 2.", "`claw certs status` and `claw up` tell what stands badly with the CA, each with its remedy."
    ),
    "certs:refused": Requirement(
        "issue 6, 2.",
        "A CA that is missing, expired, open, broken or for more than names of hosts keeps the proxy from starting, in a line.",
    ),
    "certs:told": Requirement(
        "issue 6, 2.",
        "While the proxy runs, a CA that ends soon is told once a day, and an uncovered governed host once.",
    ),
}
