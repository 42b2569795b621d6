"""The attack list, as data: what others were attacked by → which requirements hold it off here (gateways.md section 4).

``python -m tests.attacks.table`` prints it as docs/attacks.md. The tests behind a requirement carry its id as their mark.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.requirements import REQUIREMENTS


@dataclass(frozen=True)
class Attack:
    name: str
    how: str
    """What is sent, or said."""
    held_off_by: tuple[str, ...] = ()
    """Ids of requirements."""
    instead: str = ""
    """Where there is nothing to attack: why."""


ATTACKS = (
    Attack(
        "An identity that is empty, doubled or nearly right",
        "no bearer, two that differ, both headers, case, white space, another agent's, a browser's Host and Origin",
        ("identity:refused", "identity:forms", "attack:no-credential", "contract:agent-id", "contract:token-forms"),
    ),
    Attack(
        "A way round the decision",
        "a hook that raises, a script that breaks or goes away, odd paths, framing, Host headers, WebSockets, large bodies",
        (
            "closed:hook-fails",
            "closed:script-broken",
            "closed:script-deleted",
            "closed:stream-large-bodies",
            "hostile:smuggling",
            "proxy:no-way-round",
            "entrance:by-connection-and-sni",
            "own:websocket-426",
        ),
    ),
    Attack(
        "The agent's secret sent on",
        "in any header, cookie, URL or body that goes upstream",
        ("hostile:token-elsewhere", "proxy:credentials-swapped", "attack:planted-secrets"),
    ),
    Attack(
        "Secrets echoed",
        "a provider's, a service's or the agent's own, as they are, escaped, percent-encoded or in base64, by any peer",
        ("attack:planted-secrets", "failure:matrix", "service:no-echo", "contract:redaction", "feeds:redaction"),
    ),
    Attack(
        "Hostile path arguments",
        "`..`, `%2e%2e`, separators, NUL, line breaks, `?`, `#`, `;`, very long ones, odd numbers",
        ("attack:path-arguments", "calls:path-segment", "calls:exact-numbers"),
    ),
    Attack(
        "Requests elsewhere (SSRF)",
        "redirects, URLs as arguments, environment proxies; the host is the manifest's and no other",
        ("results:redirect", "service:own-host-only", "contract:base-url", "feeds:own-host-only"),
    ),
    Attack(
        "Credentials or sessions mixed up",
        "two agents, interleaved, at one service; cookies",
        ("attack:shared-service", "attack:two-protocols", "hostile:cookies", "store:own"),
    ),
    Attack(
        "Ownership confused",
        "native names equal to managed ones, case, prefixes, look-alikes, hashed aliases, tools that were never granted",
        ("attack:names", "names:native-wins", "names:owner", "names:case", "loop:unknown-tool"),
    ),
    Attack(
        "A side effect twice",
        "the same call twice in one reply, again later, after an error of the provider, in a runner's retry",
        ("attack:double-execution", "loop:terminates", "calls:signature", "failure:matrix", "journal:resume"),
    ),
    Attack(
        "Results that pretend",
        "fake results, roles, prompts, envelopes, stream framing, terminal sequences",
        ("attack:injected-results", "stream:sdk-accepts", "results:body-kinds"),
    ),
    Attack(
        "Resources exhausted",
        "ten thousand calls, deep or huge JSON, results without an end, slow drips, gzip bombs, hostile schemas, "
        "heads of thousands of credentials",
        (
            "attack:many-calls",
            "attack:deep-and-huge",
            "attack:endless-results",
            "failure:matrix",
            "service:too-large",
            "calls:schema-bounded",
            "calls:schema-no-fetch",
            "compressed:bombs",
            "hostile:large-bodies",
            "closed:body-limit",
            "loop:terminates-on-the-wire",
            "redactor:cost",
            "redactor:kept",
            "veil:cost",
        ),
    ),
    Attack(
        "Calls that are cut off or malformed",
        "half a JSON document, no object, repeated keys, an answer that ran out of tokens",
        ("calls:invalid-arguments", "calls:cut-off", "wire:repeated-member"),
    ),
    Attack(
        "Errors dressed as success",
        "3xx, 204, empty bodies, an error that comes with a 200",
        ("results:envelope", "calls:error-results", "failure:matrix"),
    ),
    Attack(
        "A gate that a stream goes round",
        "the same request with `stream: true`",
        ("transcript:valid", "failure:matrix"),
    ),
    Attack(
        "Hints that lie",
        "a DELETE that calls itself a read",
        ("calls:duplicate-exceptions", "loop:terminates"),
        "annotations come from the operator's descriptors, never from a live server",
    ),
    Attack(
        "Tools that change under a grant",
        "a description or schema after it was pinned",
        (),
        "nothing is discovered live",
    ),
    Attack("Approvals reused", "a grant used twice or for other arguments", (), "there are no approvals in this stage"),
    Attack(
        "Commands through configuration",
        "a process started from what came over the network",
        ("compile:no-traceback",),
        "the proxy starts no process",
    ),
)

_HEAD = """# Attacks

What systems like this one were attacked by, and the requirements that hold it off here (`tests/requirements/`; each test
carries the id of its requirement as a mark: `grep -rn 'requirement("attack:names")' tests`). This page is printed:
`python -m tests.attacks.table > docs/attacks.md`.

| attack | how | held off by |
|---|---|---|
"""


def page() -> str:
    """docs/attacks.md."""
    return _HEAD + "".join(f"| {one.name} | {one.how} | {_answer(one)} |\n" for one in ATTACKS)


def unknown() -> list[str]:
    """Ids that no requirement has."""
    return [name for one in ATTACKS for name in one.held_off_by if name not in REQUIREMENTS]


def _answer(attack: Attack) -> str:
    named = ", ".join(f"`{name}`" for name in attack.held_off_by)
    return "; ".join(part for part in (attack.instead, named) if part)


if __name__ == "__main__":
    print(page(), end="")
