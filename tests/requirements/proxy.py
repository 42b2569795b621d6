"""Through the real mitmdump: who comes in, what goes out, how it starts and stops, and that it fails closed."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "proxy:hidden-loop": Requirement(
        "mediation 4, table; seed 000", "The runner sees the answer; the managed call and its round stay hidden."
    ),
    "proxy:streaming": Requirement("mediation 6", "A runner that asked for a stream gets one that its SDK accepts."),
    "proxy:native-handed-back": Requirement(
        "mediation 4, table; seed 000, case 4", "The runner gets its native calls, and goes on with them."
    ),
    "proxy:execution-hidden": Requirement(
        "mediation 3.2", "The model sees name, description and schema; nothing of execution."
    ),
    "proxy:credentials-swapped": Requirement(
        "mediation 2", "The agent's credential never goes upstream; provider key and tool token never leave otherwise."
    ),
    "proxy:identity": Requirement(
        "mediation 2", "401 for a missing or malformed credential, 403 for a wrong one, same body."
    ),
    "proxy:agents-live": Requirement(
        "contract, layout", "Agents and grants change at the next request, without a restart."
    ),
    "proxy:broken-agent": Requirement(
        "contract, layout", "A file that does not parse fails that agent alone: 403, and one line in the log."
    ),
    "proxy:two-conversations": Requirement(
        "mediation 7", "Conversations of one agent at once never disturb each other."
    ),
    "proxy:no-way-round": Requirement("mediation 1", "A path counts by what a lenient provider would make of it."),
    "proxy:headers-survive": Requirement("mediation 3.5", "Headers that are not ours go through, in any bytes."),
    "runner:leaves": Requirement("mediation 4, the runner's side", "A runner that disconnects cancels the model call."),
    "runner:leaves-before-the-first-chunk": Requirement(
        "mediation 4, the runner's side; decision 0014",
        "A runner that leaves a stream before its first chunk has left: the last one takes the turn along.",
    ),
    "runner:leaves-while-writing": Requirement(
        "mediation 4, the runner's side", "A write that was sent may finish, and is recorded."
    ),
    "entrance:forward-proxy": Requirement("mediation 1", "HTTPS_PROXY and the CA are all that a runner needs."),
    "entrance:by-connection-and-sni": Requirement(
        "design, the guard", "The destination is taken from the connection and SNI, never from the Host header."
    ),
    "entrance:direct-connection": Requirement(
        "issue 11, part 1",
        "A connection to the transparent listener that no redirect led there is closed with one line; the proxy lives.",
    ),
    "entrance:any-spelling": Requirement(
        "design, the guard", "No spelling of a governed host or address is a way round."
    ),
    "egress:not-opened": Requirement("mediation 1", "TLS of hosts that are not governed is not opened."),
    "egress:not-itself": Requirement(
        "mediation 1", "With egress allowed, the proxy is a way to everything but itself: its entrances, its metrics."
    ),
    "egress:deny": Requirement("mediation 1", "cllama_egress=deny refuses hosts that are not governed."),
    "egress:untouched": Requirement(
        "mediation 1", "What goes to a host that is not governed streams through, WebSockets too."
    ),
    "closed:fault-in-a-turn": Requirement(
        "mediation 4, the runner's side",
        "A fault inside a turn is a 502, or an event of its stream, and is in history.",
    ),
    "closed:hook-fails": Requirement("mediation 2, fail closed", "A hook that raises or is cancelled answers 502."),
    "closed:script-broken": Requirement(
        "mediation 2, fail closed", "A script broken by hot reload leaves the guard: 503."
    ),
    "closed:script-deleted": Requirement("mediation 2, fail closed", "A script that is deleted leaves the guard: 503."),
    "closed:stream-large-bodies": Requirement("mediation 2, fail closed", "stream_large_bodies can't be switched on."),
    "closed:body-limit": Requirement("mitmproxy reference 4", "A body over the limit is a 413, and nothing goes out."),
    "start:missing-configuration": Requirement(
        "issue 2, build 5", "What is missing is said in one line; the exit is not 0."
    ),
    "start:unsafe-options": Requirement("design, the guard", "Options that let requests out undecided are refused."),
    "start:no-flags": Requirement("mediation 1", "With no flag: base URL and forward proxy."),
    "start:explicit-mode": Requirement("issue 2, build 5", "Explicit modes are respected."),
    "start:options-over-environment": Requirement(
        "issue 2, build 5", "Options have the environment as their defaults."
    ),
    "start:hangup": Requirement("issue 3, item 7", "A hangup does not end a proxy that has no terminal."),
    "own:health-ready": Requirement("mediation 1", "GET /health and GET /ready on the proxy's own port."),
    "own:websocket-426": Requirement("mediation 1", "WebSocket upgrades to a governed host are refused with 426."),
    "own:head-root": Requirement("gateways 2.5", "HEAD / is answered, with a credential and without."),
    "stop:answers-end": Requirement(
        "issue 2, review", "A stream under way is sent to its end when the proxy is stopped."
    ),
    "hostile:smuggling": Requirement(
        "mediation 2, fail closed", "A body without a length is framed before it goes out."
    ),
    "hostile:large-bodies": Requirement("gateways 4", "A body that is no conversation, or is ambiguous, is a 400."),
    "hostile:cookies": Requirement("mediation 2", "Nothing that an answer sets is part of another request."),
    "hostile:token-elsewhere": Requirement("mediation 2", "The agent's credential goes upstream under no name."),
    "hostile:odd-usage": Requirement(
        "contract, history", "An odd usage costs neither the answer nor the line of history."
    ),
    "dispatch:same": Requirement(
        "issue 3, dispatch", "With the fast dispatch every addon hears what it hears without, also after hot reload."
    ),
    "dispatch:choice": Requirement("issue 3, dispatch", "The fast dispatch is on, and one option turns it off."),
    "dispatch:asserted": Requirement(
        "issue 3, dispatch",
        "On a mitmproxy that is built differently the fast dispatch is off, with one line that says so.",
    ),
    "connections:http": Requirement(
        "issue 3, failure and bench",
        "What a peer says over HTTP/1.1 is read whole or is one kind of error; no answer is taken for another's.",
    ),
    "connections:apart": Requirement(
        "mediation 4, executing over HTTP", "No two agents share a connection, nor two services of one agent."
    ),
    "bench:alive": Requirement("issue 3, bench", "One command measures every row, and prints a table and JSON."),
    "identity:forms": Requirement("mediation 2", "Both header forms work for every dialect."),
    "identity:refused": Requirement(
        "mediation 2", "401 for missing, malformed or disagreeing credentials; one 403 for all that are wrong."
    ),
    "identity:told": Requirement("inspect.md", "The log says who was not admitted and why, never what was shown."),
    "identity:shapes": Requirement("mediation 2", "A refusal has the shape of its dialect."),
}
