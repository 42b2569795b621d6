"""Known attacks on similar systems, and the requirements that prevent each of them here.

``python -m tests.attacks.table`` prints docs/attacks.md. The tests of a requirement carry its id as
their mark.
"""

from __future__ import annotations

from tests.attacks.attack import Attack
from tests.attacks.endpoints import write_tables
from tests.attacks.tools_host import TOOLS_HOST
from tests.requirements import REQUIREMENTS

ATTACKS = (
    Attack(
        "Forged identity",
        "no token, two different tokens, both headers, differences in case, white space, another "
        "agent's token, "
        "a browser's Host and Origin",
        (
            "identity:refused",
            "identity:forms",
            "attack:no-credential",
            "contract:agent-id",
            "contract:token-forms",
        ),
    ),
    Attack(
        "Using another agent's tools over MCP",
        (
            "another agent's token, path or session, a web page's Origin, an id that comes "
            "again, thousands of sessions, garbage"
        ),
        (
            "broker:identity",
            "broker:session-owner",
            "broker:origin",
            "broker:delivery",
            "broker:same-id",
            "broker:disconnect",
            "broker:hostile",
        ),
    ),
    Attack(
        "Reading another agent's conversation at the provider",
        "its stored response or conversation by id: with tools or without, twice, in escapes, "
        "through another proxy, "
        "by a path in every spelling",
        (
            "responses:owner-only",
            "responses:named-once",
            "responses:owned-ids",
            "responses:state-down",
            "responses:paths-owner",
            "responses:paths-rows",
        ),
    ),
    Attack(
        "Unlisted paths of a provider",
        "a path that is in no table, below another prefix, in any spelling; one that mints or "
        "lists credentials, "
        "also where a setting opens all; another method by header, query or body",
        (
            "paths:closed",
            "paths:credentials",
            "paths:spelling",
            "paths:override",
            "paths:endpoints",
        ),
    ),
    Attack(
        "Using a model that the policy forbids",
        "`models`, `fallbacks`, `preset`, `agent`, a deployment, a model within `extra_body`, a "
        "tool, a plugin, a grader, a "
        "form, the query or a header; as an object or a list of lists; twice, in escapes, in "
        "another case; a JSON array; a "
        "packed body that is read in two ways; JSON that is called a form or UTF-7; no model at "
        "all beside an object of the "
        "agent's own",
        (
            *("policy:other-names", "policy:other-paths", "policy:own-objects", "packed:requests"),
            *("wire:repeated-member", "wire:read-as-json"),
        ),
    ),
    Attack(
        "Using another agent's files, batches and threads at the provider",
        "reading, listing, deleting or naming them: by path, query, body or form, twice, in "
        "escapes, in another case, in "
        "camel case, as Google's address of a file, packed, through a stored "
        "completion, an eval or another proxy; an id that the agent or its model wrote where an "
        "answer repeats it, or that a "
        "provider was made to repeat where it gives ids",
        (
            "objects:paths",
            "objects:stored-completions",
            "objects:members",
            "objects:bodies",
            "objects:evals",
            "objects:lists",
            "objects:given",
            "objects:first-owner",
            "objects:setting",
            "objects:state-down",
        ),
    ),
    Attack(
        "Disabling the keys that agents share",
        "a request that needs a scope which the key lacks, or costs more than the balance; a "
        "flood of them; a credential "
        "of its own in the URL; words that the provider's error repeats; a count of tokens that "
        "is throttled; a thousand "
        "models; the trial of a dead key held or thrown away; at a gateway `api_key`, "
        "`api_base`, `extra_headers`, a header "
        "for keys, or a model whose own provider has no sound key",
        (
            "keys:request-only",
            "keys:gateway",
            "keys:asked",
            "keys:codes",
            "keys:scopes",
            "keys:trial",
            "keys:other-paths",
            "keys:account-headers",
        ),
    ),
    Attack(
        "Bypassing the decision",
        "a hook that raises, a script that breaks or is deleted, unusual paths, framing, Host "
        "headers, WebSockets, "
        "large bodies",
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
        "Leaking the agent's token to a provider",
        (
            "the token in a header, cookie or URL of the forwarded request, percent-encoded "
            "once or often"
        ),
        ("hostile:token-elsewhere", "proxy:credentials-swapped", "attack:planted-secrets"),
    ),
    Attack(
        "Echoed secrets",
        (
            "a peer returns a secret of a provider, a service or the agent: verbatim, "
            "escaped, percent-encoded or in base64; a model spreads it over the deltas of a stream"
        ),
        (
            "attack:planted-secrets",
            "live:secrets",
            "failure:matrix",
            "service:no-echo",
            "mcp:refused-words",
            "contract:redaction",
            "feeds:redaction",
        ),
    ),
    Attack(
        "Hostile path arguments",
        (
            "`..`, `%2e%2e`, separators, NUL, line breaks, `?`, `#`, `;`, very long "
            "arguments, unusual numbers"
        ),
        ("attack:path-arguments", "calls:path-segment", "calls:exact-numbers"),
    ),
    Attack(
        "Requests to other hosts (SSRF)",
        "redirects, URLs as arguments, proxies in the environment, the proxy's own loopback and "
        "networks through the forward "
        "proxy, names that lead elsewhere a moment later",
        (
            "egress:no-private",
            "egress:refusals-logged",
            "egress:shell-defaults",
            "results:redirect",
            "service:own-host-only",
            "contract:base-url",
            "feeds:own-host-only",
        ),
    ),
    Attack(
        "Mixing credentials or sessions",
        "two agents that call one service at the same time; cookies",
        ("attack:shared-service", "attack:two-protocols", "hostile:cookies", "store:own"),
    ),
    Attack(
        "Confusing who owns a tool",
        "native tools named like managed ones, differences in case, prefixes, look-alike "
        "characters, hashed aliases, "
        "tools that were never granted",
        ("attack:names", "names:native-wins", "names:owner", "names:case", "loop:unknown-tool"),
    ),
    Attack(
        "Repeating a side effect",
        "the same call twice in one reply, in a later reply, after an error of the provider, or "
        "in a runner's retry; "
        "the same request again, as no retry, after a proxy was killed while its answer was on "
        "the way; "
        "the clock set by hours or years, while the turn runs or between two starts",
        (
            "attack:double-execution",
            "loop:terminates",
            "calls:signature",
            "failure:matrix",
            "journal:resume",
            "journal:delivered",
            "crash:unheard",
            "journal:clock",
            "journal:lease-ahead",
        ),
    ),
    Attack(
        "Injection through results",
        (
            "tool results that contain fake results, roles, prompts, envelopes, stream "
            "framing or terminal sequences"
        ),
        ("attack:injected-results", "stream:sdk-accepts", "results:body-kinds"),
    ),
    Attack(
        "Malformed answers of a provider",
        (
            "every JSON type at every place of an answer: text, null or numbers for parts, "
            "lists for ids; streamed and not"
        ),
        ("stream:any-reply", "stream:same-verdict"),
    ),
    Attack(
        "Workers that hang, or outlive their supervisor",
        (
            "SIGSTOP of a worker, or of the whole proxy; kill -9 of the supervisor and a "
            "start at the same address"
        ),
        ("workers:silent", "workers:gone", "workers:no-orphans", "workers:at-most-once"),
    ),
    Attack(
        "Exhausting resources",
        "ten thousand calls, deep or huge JSON, endless results, slow responses, gzip bombs, "
        "hostile schemas, "
        "headers with thousands of credentials, heads of megabytes that mitmweb keeps and "
        "quotes, a thousand idle "
        "connections, an agent's thousand connections, two agents that take all of them, half a "
        "head, "
        "endless refusals, many large bodies, and ones of millions of values or escapes, a "
        "thousand streams of MCP, "
        "names of tools that nobody knows",
        (
            "connections:unreadable-directory",
            "connections:descriptors",
            "connections:strangers",
            "connections:agent-share",
            "connections:head",
            "connections:idle",
            "connections:refusals-limited",
            "wrapper:streams",
            "bodies:bounded",
            "bodies:beside-the-loop",
            "bodies:outline",
            "bodies:too-many-values",
            "bodies:escapes",
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
            "redaction:cost",
            "redaction:reports",
            "hidden:bounded",
            "objects:saves-end",
        ),
    ),
    Attack(
        "Exhausting the wrapper and the tools host",
        "at the wrapper and the tools host: thousands of connections without a token, half heads "
        "and half bodies that go "
        "on for ever, answers that nobody reads, long requests at once, subscriptions without "
        "end, a log full of bad requests; "
        "one caller with a thousand streams, with all connections, with long bodies that it "
        "never lets go, or with endless "
        "calls of tools that are not there; a web page, or a stranger who asks for `/health`",
        (
            *(
                "server:callers",
                "wrapper:sessions",
                "server:health-details",
                "wrapper:hosts",
                "tools:audit-refusals",
            ),
            *(
                "server:connections",
                "server:idle-connections",
                "server:unread-answers",
                "server:refused-unread",
            ),
            *("server:long-bodies", "wrapper:subscriptions-bounded", "wrapper:faults-limited"),
        ),
    ),
    Attack(
        "Hostile MCP servers",
        "floods of events, comments and notifications, answers of 16 MB, packed, cut or odd "
        "answers and refusals, changes of "
        "tools while they are listed, answers twice, to another id, or in arrays",
        (
            *(
                "mcp:turns",
                "mcp:bounded",
                "mcp:odd-answers",
                "mcp:refused-words",
                "mcp:drift",
                "mcp:ignored",
            ),
            *("mcp:server-requests", "mcp:long-session", "mcp:line-ends", "mcp:statuses"),
        ),
    ),
    Attack(
        "Using a revoked token",
        (
            "metadata.json renamed, linked, removed, or written in place with its old size "
            "and time; no inotify to be had; a head with the token before, and the body after its end"
        ),
        ("agents:reload", "agents:reload-in-place", "agents:reload-after-error", "proxy:late-body"),
    ),
    Attack(
        "Learning a provider's key",
        "an error in which the provider repeats it, packed or not; a key that is rotated while a "
        "request waits for a feed",
        ("redaction:errors", "redaction:rotated-key", "redaction:forwarded"),
    ),
    Attack(
        "Injecting text into a log",
        "in the logs of proxy, wrapper and tools host: a credential that lies at the cut of a "
        "line; line breaks of Unicode, "
        "escapes of a terminal and marks of direction in the name of a model or a tool, or in a "
        "path",
        (
            "wrapper:log-cut",
            "wrapper:log-characters",
            "wrapper:stderr",
            "wrapper:log",
            "log:unseen",
            "log:any-text",
        ),
    ),
    Attack(
        "A credential in an agent's container",
        (
            "a key in a variable, file, folder or other service's volume that Compose gives "
            "the agent; power over its host"
        ),
        ("compile:starvation", "compile:folders", "compile:planted-secrets"),
    ),
    Attack(
        "Escaping from an agent's pod in Kubernetes",
        "a capability in another spelling or one that nobody listed, the user of the proxy, a "
        "surface's ports elsewhere, "
        "metadata services, private addresses through NAT64 or 6to4, another namespace, a "
        "variable that the cluster fills in",
        (
            "kubernetes:guarded",
            "kubernetes:surfaces",
            "kubernetes:world",
            "kubernetes:policies",
            "kubernetes:commands",
        ),
    ),
    Attack(
        "Erasing one's own history",
        "an agent fills its history with requests that cost nothing, until a turn of its own is "
        "rotated away; "
        "a line is edited, cut off or removed",
        (
            "audit:pushed-out",
            "history:free-turns-short",
            "audit:verify-anchor",
            "audit:verify-property",
            "log:history-cut",
        ),
    ),
    Attack(
        "Incomplete or malformed calls",
        (
            "half a JSON document, JSON that is not an object, repeated keys, a response that "
            "ran out of tokens"
        ),
        ("calls:invalid-arguments", "calls:cut-off", "wire:repeated-member"),
    ),
    Attack(
        "Spending more than the budget's dollars",
        "forty requests at one time, over workers and proxies; a stream whose usage is not asked "
        "for; leaving before it comes; "
        "a kill of the proxy in the middle, a clock that jumps; `n`, a negative or huge "
        "`max_tokens`; leaving while the budget "
        "is counted or the provider connected, many streams of HTTP/2 that are reset",
        (
            "budget:reserved",
            "budget:runner-leaves",
            "budget:hidden-cost",
            "budget:reservation-lapses",
            "budget:usage-asked-for",
            "budget:broken-off",
            "budget:estimate",
            "budget:cost-unknown",
        ),
    ),
    Attack(
        "Errors that look like success",
        "status 3xx or 204, an empty body, an error with status 200",
        ("results:envelope", "calls:error-results", "failure:matrix"),
    ),
    Attack(
        "Bypassing a check by streaming",
        "the same request with `stream: true`",
        ("transcript:valid", "failure:matrix"),
    ),
    Attack(
        "False annotations",
        "a DELETE that is annotated as a read",
        ("calls:duplicate-exceptions", "loop:terminates"),
        "annotations come from the operator's descriptors, never from a live server",
    ),
    Attack(
        "Changing a tool after it was granted",
        "a new description or schema for a granted tool",
        ("mcp:drift",),
        "the model sees what was compiled",
    ),
    Attack(
        "Reusing an approval",
        "an approval used twice, or for other arguments",
        (),
        "there are no approvals yet",
    ),
    Attack(
        "Command injection through configuration",
        "a process that is started with data from the network",
        ("compile:no-traceback",),
        "the proxy starts no process but its workers",
    ),
    *TOOLS_HOST,
)

_HEAD = """# Attacks

Known attacks on systems like this one, and the requirements that prevent them here.
The ids are those of `tests/requirements/`.
Each test carries the id of its requirement as a mark: `grep -rn 'requirement("attack:names")' tests` finds it.

This page is generated: `python -m tests.attacks.table > docs/attacks.md`.

| attack | method | prevented by |
|---|---|---|
"""


_ENDPOINTS = """
## Every endpoint of the providers

What happens to a request for each endpoint of the providers' API references, as of November 2026.
It is computed from the tables by which the proxy decides (`claw_mediate/core/known_paths.py`).
Any other path is 403 `path_not_allowed` too.
`…` is the provider's base path; a path without it is from the root of the provider's host.
"""


def page() -> str:
    """Return the text of docs/attacks.md."""
    attacks = "".join(f"| {one.name} | {one.how} | {_answer(one)} |\n" for one in ATTACKS)
    return _HEAD + attacks + _ENDPOINTS + write_tables()


def unknown() -> list[str]:
    """Return the ids in the table that are no requirement's."""
    return [name for one in ATTACKS for name in one.held_off_by if name not in REQUIREMENTS]


def _answer(attack: Attack) -> str:
    named = ", ".join(f"`{name}`" for name in attack.held_off_by)
    return "; ".join(part for part in (attack.instead, named) if part)


if __name__ == "__main__":
    print(page(), end="")
