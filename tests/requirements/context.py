"""Context that is added to a prompt, an agent's spending, and a runner's side requests."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "context:system-end": Requirement(
        "docs/spec/mediation.md section 8",
        "Context stands at the end of the system prompt; every other byte stays.",
    ),
    "context:order": Requirement(
        "docs/spec/mediation.md section 8",
        "Memory, blocks, feeds, blocks and time, in this order, behind one sentence that says whose text it is.",
    ),
    "context:fence": Requirement(
        "docs/spec/mediation.md section 8",
        "What a service says stands in a fence that nothing in it can end.",
    ),
    "context:end-to-end": Requirement(
        "docs/spec/mediation.md section 8",
        "A turn knows its feeds and memories, is remembered, and nothing hidden crosses a border with them.",
    ),
    "context:forwarded": Requirement(
        "docs/spec/mediation.md section 8",
        "Requests that are forwarded or only count tokens get the context, and stay as they are else.",
    ),
    "context:none": Requirement(
        "docs/spec/mediation.md section 8",
        "An agent without context gets no text, and no service is asked.",
    ),
    "context:no-topology": Requirement(
        "docs/spec/mediation.md section 2", "No address of a service is in a prompt or a log."
    ),
    "context:blocks": Requirement(
        "docs/spec/mediation.md section 8", "Context blocks are cut to their length, in characters."
    ),
    "context:quarantine": Requirement(
        "docs/spec/mediation.md section 8",
        "A block that can't be placed is left out, with one event.",
    ),
    "context:broken-file": Requirement(
        "docs/spec/contract.md, layout",
        "A broken context file fails that agent closed, and no other.",
    ),
    "context:time-line": Requirement(
        "docs/spec/mediation.md section 8",
        "The time is told in the agent's zone; an unknown one is UTC.",
    ),
    "feeds:fetch": Requirement(
        "docs/spec/mediation.md section 8",
        "A feed is fetched as the agent, with its credential, and shown as it is.",
    ),
    "feeds:reference": Requirement(
        "docs/spec/mediation.md section 8",
        "A feed's credential may be a reference to the secrets directory; missing, the feed is not asked.",
    ),
    "feeds:ttl": Requirement(
        "docs/spec/mediation.md section 8", "A feed is fetched once in its TTL, for each agent."
    ),
    "feeds:revalidate": Requirement(
        "docs/spec/mediation.md section 8",
        "A copy that has just expired is used and refreshed beside the turn; a much older one is not.",
    ),
    "feeds:stale-while-error": Requirement(
        "docs/spec/mediation.md section 8",
        "When the fetch fails the old copy is used, with its age.",
    ),
    "feeds:rest": Requirement(
        "docs/spec/mediation.md section 8",
        "A feed that failed is left alone for a while: turns do not wait for it again.",
    ),
    "feeds:concurrent": Requirement(
        "docs/spec/mediation.md section 8", "Feeds are fetched side by side; turns share a fetch."
    ),
    "feeds:caps": Requirement(
        "docs/spec/mediation.md section 8",
        "Each feed is cut with a mark; those beyond the total are left out with a line.",
    ),
    "feeds:bounded": Requirement(
        "docs/spec/mediation.md section 8",
        "Slow, broken and unreachable services cost no more than the feed's time.",
    ),
    "feeds:own-host-only": Requirement(
        "docs/spec/mediation.md section 4", "Redirects are refused, environment proxies unused."
    ),
    "feeds:redaction": Requirement(
        "docs/spec/mediation.md section 2",
        "No credential that a feed says back reaches the prompt.",
    ),
    "feeds:url": Requirement(
        "docs/spec/mediation.md section 8", "A feed's URL is checked when the file is read."
    ),
    "memory:recall": Requirement(
        "docs/spec/mediation.md section 8",
        "What a service recalls for the request stands in the prompt.",
    ),
    "memory:bounds": Requirement(
        "docs/spec/mediation.md section 8",
        "Eight memories, 8 KiB, and none that is the conversation itself.",
    ),
    "memory:failure": Requirement(
        "docs/spec/mediation.md section 8",
        "A service that fails costs the memory, and at most its time.",
    ),
    "memory:redaction": Requirement(
        "docs/spec/mediation.md section 8",
        "What looks like a credential is blanked out, both ways.",
    ),
    "memory:retain": Requirement(
        "docs/spec/mediation.md section 8",
        "A turn is retained beside it, redacted with its tool results, bounded, and before the end.",
    ),
    "housekeeping:forwarded": Requirement(
        "docs/spec/mediation.md section 8",
        "A side request gets no tools and no context, is not remembered, and passes byte for byte.",
    ),
    "housekeeping:told-apart": Requirement(
        "docs/spec/mediation.md section 8",
        "A runner's side requests are told by its program's own words, never by a user's text.",
    ),
    "budget:window": Requirement(
        "docs/spec/mediation.md section 8",
        "What has left the window does not count, and is deleted.",
    ),
    "budget:max-requests": Requirement(
        "docs/spec/mediation.md section 8",
        "A request too many is 429 in its dialect's shape; each agent has its own.",
    ),
    "budget:retry-after": Requirement(
        "docs/spec/mediation.md section 8",
        "Retry-After is the time until there is room, and at least a second.",
    ),
    "budget:admission": Requirement(
        "docs/spec/mediation.md section 8",
        "Requests are counted when they are admitted, across processes, also those that are refused then; what is refused "
        "before does not count.",
    ),
    "budget:durable": Requirement(
        "docs/spec/mediation.md section 8", "Spending survives a restart without reading history."
    ),
    "budget:soft-alert": Requirement(
        "docs/spec/mediation.md section 8", "soft_alert is an event and no refusal."
    ),
    "budget:cost": Requirement(
        "docs/spec/mediation.md section 8",
        "A cost is the provider's, else the price list's, and is never below zero.",
    ),
    "budget:cost-unknown": Requirement(
        "docs/spec/mediation.md section 8",
        "With a limit in dollars a request of unknown cost is charged an estimate, marked as one, and told once a window.",
    ),
    "budget:estimate": Requirement(
        "docs/spec/mediation.md section 8",
        "An estimate is of a request's bytes and of the output that it allows, within bounds, whatever it claims.",
    ),
    "budget:hidden-cost": Requirement(
        "docs/spec/mediation.md section 8",
        "With a limit in dollars, what begins any number of model calls out of the proxy's sight is refused.",
    ),
    "budget:reserved": Requirement(
        "docs/spec/mediation.md section 8",
        "With a limit in dollars an estimate is reserved at admission, across processes, and corrected at the end.",
    ),
    "budget:reservation-lapses": Requirement(
        "docs/spec/mediation.md section 8",
        "A reservation is renewed while its request runs; that of a dead process is charged, and blocks nobody for long.",
    ),
    "budget:runner-leaves": Requirement(
        "docs/spec/mediation.md section 8",
        "A runner that leaves at any moment leaves no reservation behind: it is given back, or what came is charged.",
    ),
    "budget:usage-asked-for": Requirement(
        "docs/spec/mediation.md section 8",
        "With a limit in dollars a stream's usage is asked for, and hidden from a runner that did not ask; "
        "without one nothing is edited.",
    ),
    "budget:broken-off": Requirement(
        "docs/spec/mediation.md section 8",
        "What broke off is charged by what was received, or else by the estimate.",
    ),
    "budget:shared": Requirement(
        "docs/spec/mediation.md section 8", "Proxies on one state have one budget between them."
    ),
    "budget:fail-mode": Requirement(
        "docs/spec/mediation.md section 8",
        "An unreadable table lets pass, or is a 503, as it was set.",
    ),
    "budget:end-to-end": Requirement(
        "docs/spec/mediation.md section 8",
        "Real SDKs see a spent budget as 429, and get through when they wait.",
    ),
}
