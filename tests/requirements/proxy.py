"""The real mitmdump: entrances and identity, forwarded requests, start and stop, and failing closed."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "proxy:hidden-loop": Requirement(
        "docs/spec/mediation.md section 4, table",
        "The runner sees the answer; the managed call and its round stay hidden.",
    ),
    "proxy:streaming": Requirement(
        "docs/spec/mediation.md section 6",
        "A runner that asked for a stream gets one that its SDK accepts.",
    ),
    "proxy:native-handed-back": Requirement(
        "docs/spec/mediation.md section 4, table",
        "The runner gets its native calls, and goes on with them.",
    ),
    "proxy:execution-hidden": Requirement(
        "docs/spec/mediation.md section 3, item 2",
        "The model sees name, description and schema; nothing of execution.",
    ),
    "proxy:credentials-swapped": Requirement(
        "docs/spec/mediation.md section 2",
        "The agent's credential never goes upstream; provider key and tool token never leave otherwise.",
    ),
    "proxy:identity": Requirement(
        "docs/spec/mediation.md section 2",
        "401 for a missing or malformed credential, 403 for a wrong one, same body.",
    ),
    "proxy:agents-live": Requirement(
        "docs/spec/contract.md, layout",
        "Agents and grants change at the next request, without a restart.",
    ),
    "proxy:broken-agent": Requirement(
        "docs/spec/contract.md, layout",
        "A file that does not parse fails that agent alone: 403, and one line in the log.",
    ),
    "proxy:two-conversations": Requirement(
        "docs/spec/mediation.md section 7",
        "Conversations of one agent at once never disturb each other.",
    ),
    "proxy:no-way-round": Requirement(
        "docs/spec/mediation.md section 1",
        "A path counts by what a lenient provider would make of it.",
    ),
    "proxy:headers-survive": Requirement(
        "docs/spec/mediation.md section 3, item 5",
        "Headers that are not ours go through, in any bytes.",
    ),
    "runner:leaves": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "A runner that disconnects cancels the model call.",
    ),
    "runner:leaves-before-the-first-chunk": Requirement(
        "docs/spec/mediation.md section 4, the runner's side; decision 0014",
        "A runner that leaves a stream before its first chunk has left: the last one takes the turn along.",
    ),
    "runner:leaves-while-writing": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "A write that was sent may finish, and is recorded.",
    ),
    "entrance:forward-proxy": Requirement(
        "docs/spec/mediation.md section 1", "HTTPS_PROXY and the CA are all that a runner needs."
    ),
    "entrance:by-connection-and-sni": Requirement(
        "docs/spec/mediation.md section 1",
        "The destination is taken from the connection and SNI, never from the Host header.",
    ),
    "entrance:direct-connection": Requirement(
        "docs/spec/mediation.md section 1",
        "A connection to the transparent listener that no redirect led there is closed with one line; the proxy lives.",
    ),
    "entrance:any-spelling": Requirement(
        "docs/spec/mediation.md section 1",
        "No spelling of a governed host or address is a way round.",
    ),
    "egress:not-opened": Requirement(
        "docs/spec/mediation.md section 1", "TLS of hosts that are not governed is not opened."
    ),
    "egress:not-itself": Requirement(
        "docs/spec/mediation.md section 1",
        "With egress allowed, the proxy is a way to everything but itself: its entrances, its metrics.",
    ),
    "egress:deny": Requirement(
        "docs/spec/mediation.md section 1",
        "cllama_egress=deny refuses hosts that are not governed.",
    ),
    "egress:untouched": Requirement(
        "docs/spec/mediation.md section 1",
        "What goes to a host that is not governed streams through, WebSockets too.",
    ),
    "closed:fault-in-a-turn": Requirement(
        "docs/spec/mediation.md section 4, the runner's side",
        "A fault inside a turn is a 502, or an event of its stream, and is in history.",
    ),
    "closed:hook-fails": Requirement(
        "docs/spec/mediation.md section 2, fail closed",
        "A hook that raises or is cancelled answers 502.",
    ),
    "closed:script-broken": Requirement(
        "docs/spec/mediation.md section 2, fail closed",
        "A script broken by hot reload leaves the guard: 503.",
    ),
    "closed:script-deleted": Requirement(
        "docs/spec/mediation.md section 2, fail closed",
        "A script that is deleted leaves the guard: 503.",
    ),
    "closed:stream-large-bodies": Requirement(
        "docs/spec/mediation.md section 2, fail closed", "stream_large_bodies can't be switched on."
    ),
    "closed:body-limit": Requirement(
        "decision 0004", "A body over the limit is a 413, and nothing goes out."
    ),
    "start:missing-configuration": Requirement(
        "docs/settings.md", "What is missing is said in one line; the exit is not 0."
    ),
    "start:unsafe-options": Requirement(
        "decision 0004", "Options that let requests out undecided are refused."
    ),
    "start:no-flags": Requirement(
        "docs/spec/mediation.md section 1", "With no flag: base URL and forward proxy."
    ),
    "start:prepared": Requirement(
        "decision 0029",
        "Before it listens it reads the agents' files and tries the state, so that no request waits for that.",
    ),
    "start:explicit-mode": Requirement("docs/settings.md", "Explicit modes are respected."),
    "start:options-over-environment": Requirement(
        "docs/settings.md", "Options have the environment as their defaults."
    ),
    "start:hangup": Requirement(
        "decision 0029", "A hangup does not end a proxy that has no terminal."
    ),
    "own:health-ready": Requirement(
        "docs/spec/mediation.md section 1", "GET /health and GET /ready on the proxy's own port."
    ),
    "own:websocket-426": Requirement(
        "docs/spec/mediation.md section 1",
        "WebSocket upgrades to a governed host are refused with 426.",
    ),
    "own:head-root": Requirement(
        "docs/spec/mediation.md section 1", "HEAD / is answered, with a credential and without."
    ),
    "stop:answers-end": Requirement(
        "decision 0029", "A stream under way is sent to its end when the proxy is stopped."
    ),
    "hostile:smuggling": Requirement(
        "docs/spec/mediation.md section 2, fail closed",
        "A body without a length is framed before it goes out.",
    ),
    "hostile:large-bodies": Requirement(
        "decision 0004", "A body that is no conversation, or is ambiguous, is a 400."
    ),
    "hostile:cookies": Requirement(
        "docs/spec/mediation.md section 2",
        "Nothing that an answer sets is part of another request.",
    ),
    "hostile:token-elsewhere": Requirement(
        "docs/spec/mediation.md section 2", "The agent's credential goes upstream under no name."
    ),
    "hostile:odd-usage": Requirement(
        "docs/spec/contract.md, history.jsonl",
        "An odd usage costs neither the answer nor the line of history.",
    ),
    "dispatch:same": Requirement(
        "decision 0008",
        "With the fast dispatch every addon hears what it hears without, also after hot reload.",
    ),
    "dispatch:headers": Requirement(
        "decision 0008", "Headers are looked up faster, with the same results as mitmproxy's."
    ),
    "dispatch:options": Requirement(
        "decision 0008", "Options are read faster, and a list that is changed changes no option."
    ),
    "dispatch:local-files": Requirement(
        "decision 0008",
        "Local files are served by `map_local`, and cost nothing where it names none.",
    ),
    "dispatch:log": Requirement(
        "decision 0008",
        "A record of the log reaches addons that ask for records, and costs nothing while none does.",
    ),
    "dispatch:writes": Requirement(
        "decision 0008",
        "Writes that follow each other go out as one: the same bytes, before what came after them.",
    ),
    "dispatch:choice": Requirement(
        "decision 0008", "The fast dispatch is on, and one option turns it off."
    ),
    "dispatch:asserted": Requirement(
        "decision 0008",
        "On a mitmproxy that is built differently the fast dispatch is off, with one line that says so.",
    ),
    "connections:http": Requirement(
        "decision 0013",
        "What a peer says over HTTP/1.1 is read whole or is one kind of error; no answer is taken for another's.",
    ),
    "connections:apart": Requirement(
        "docs/spec/mediation.md section 4, executing over HTTP",
        "No two agents share a connection, nor two services of one agent.",
    ),
    "bench:alive": Requirement(
        "CONTRIBUTING.md, Tests", "One command measures every row, and prints a table and JSON."
    ),
    "bench:honest": Requirement(
        "docs/performance.md",
        "An operation that does not ask provider and service as its row's name says stops the bench.",
    ),
    "identity:forms": Requirement(
        "docs/spec/mediation.md section 2", "Both header forms work for every dialect."
    ),
    "identity:refused": Requirement(
        "docs/spec/mediation.md section 2",
        "401 for missing, malformed or disagreeing credentials; one 403 for all that are wrong.",
    ),
    "identity:told": Requirement(
        "docs/spec/inspect.md", "The log says who was not admitted and why, never what was shown."
    ),
    "identity:shapes": Requirement(
        "docs/spec/mediation.md section 2", "A refusal has the shape of its dialect."
    ),
}
