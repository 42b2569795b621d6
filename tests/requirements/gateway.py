"""Transparent mode in network namespaces, with the rules that the compiler writes."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "transparent:unaware": Requirement(
        "decision 0024",
        "Unmodified SDKs with nothing but the CA and the token complete mediated streaming turns.",
    ),
    "transparent:no-rights": Requirement(
        "decision 0024", "mitmdump runs as nobody's root, with no capability."
    ),
    "transparent:ipv6": Requirement(
        "decision 0024", "Over IPv6 a runner is mediated as over IPv4."
    ),
    "transparent:http2": Requirement(
        "docs/spec/mediation.md section 1", "A client that speaks HTTP/2 is mediated."
    ),
    "transparent:websocket": Requirement(
        "docs/spec/mediation.md section 1",
        "A WebSocket upgrade to a governed host is refused with 426.",
    ),
    "transparent:three-entrances": Requirement(
        "docs/spec/mediation.md section 1",
        "One process serves an agent at all three entrances, and its hidden rounds go on across them.",
    ),
    "transparent:no-way-round": Requirement(
        "decision 0024",
        "No other port, protocol, address or address family leads past the proxy; all are refused at once.",
    ),
    "transparent:egress-denied": Requirement(
        "docs/spec/mediation.md section 1",
        "With egress denied, TLS that names no governed host is closed, and the log says which, once.",
    ),
    "transparent:names-decide": Requirement(
        "docs/spec/mediation.md section 1",
        "A governed name at a foreign address goes to the configured provider, and no key to any other.",
    ),
    "transparent:not-opened": Requirement(
        "docs/spec/mediation.md section 1",
        "TLS that names no governed host passes unopened, whatever its address, and gets no key.",
    ),
    "transparent:plain-http": Requirement(
        "docs/spec/mediation.md section 1",
        "A Host header over plain HTTP makes nobody a provider: it is refused.",
    ),
    "transparent:passes-through": Requirement(
        "docs/spec/mediation.md section 3",
        "What is not mediated is forwarded; SSL_CERT_FILE says whom providers are trusted by, for all of it.",
    ),
    "transparent:provider-verified": Requirement(
        "decision 0024",
        "A provider's certificate is verified; whoever has none of it is told nothing.",
    ),
    "transparent:provider-down": Requirement(
        "docs/spec/mediation.md section 4, the model's side",
        "A provider that can't be reached is a 502 in the dialect, and names no address.",
    ),
    "transparent:provider-slow": Requirement(
        "docs/spec/mediation.md section 6",
        "A stream is kept alive while its provider is slow, and a runner that leaves takes it along.",
    ),
    "transparent:dns": Requirement(
        "docs/spec/compile.md, Output",
        "In a Kubernetes pod an unaware agent asks the cluster's DNS, and nobody else on its port.",
    ),
    "transparent:surfaces": Requirement(
        "docs/spec/compile.md, Output",
        "In a Kubernetes pod an agent reaches its surfaces' services on their ports, and nothing is open beside.",
    ),
    "transparent:loopback": Requirement(
        "decision 0024",
        "What stays in a runner's own pod is not redirected, and its loopback leads nowhere else.",
    ),
    "gateway:nothing-left": Requirement(
        "decision 0024",
        "The network namespaces of a test are gone when it is, also when it was killed.",
    ),
}
