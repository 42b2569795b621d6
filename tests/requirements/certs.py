"""The pod's CA: its constraints, the runtimes that trust it, and the CAs that are refused."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

_DECISION = "decision 0023"
_OUTPUT = 'docs/spec/compile.md, "Output"; decision 0023'

REQUIREMENTS: dict[str, Requirement] = {
    "certs:constrained": Requirement(
        _OUTPUT,
        "OpenSSL accepts what the pod's CA signs for governed hosts, and refuses other hosts and addresses.",
    ),
    "certs:runtimes": Requirement(
        _OUTPUT,
        "With the variable of its line in certs/README.md each runtime trusts the proxy for governed hosts and no others.",
    ),
    "certs:one-name": Requirement(
        _DECISION,
        "A certificate is for the one requested name, so that a constrained CA works at every entrance.",
    ),
    "certs:hosts": Requirement(
        _OUTPUT,
        "The CA is constrained to the hosts that the compiled proxy governs; hosts left out are listed with the reason.",
    ),
    "certs:files": Requirement(
        _DECISION,
        "Key and certificate appear together, 0600 in 0700; no symlink is followed, and no key replaced without --force.",
    ),
    "certs:killed": Requirement(
        _DECISION,
        "A verb killed at any step leaves a complete CA or none, and the same verb repairs the rest.",
    ),
    "certs:rotation": Requirement(
        _DECISION,
        "A new CA is trusted beside the old one before it signs, and the old one goes only with --finish.",
    ),
    "certs:finish": Requirement(
        _DECISION,
        "A staged CA replaces none if it is out of time, readable by others, damaged, too wide or not trusted.",
    ),
    "certs:status": Requirement(
        _DECISION,
        "`claw certs status` and `claw up` report every problem with the CA and its remedy.",
    ),
    "certs:refused": Requirement(
        'docs/troubleshooting.md, "It does not start"',
        "The proxy does not start with a CA that is missing, expired, readable by others, damaged or too wide: one line.",
    ),
    "certs:told": Requirement(
        _DECISION,
        "While the proxy runs, a CA that ends soon is logged once a day, and an uncovered host once.",
    ),
}
