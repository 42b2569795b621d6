"""How a service is reached, and with whose credential."""

from __future__ import annotations

from claw_compile.codes.registry import error, warning

BAD_BASE_URL = error(
    "bad-base-url", "A base URL is http(s)://host[:port][/path], without user, query or fragment.", "Correct it."
)
BAD_PORT = error("bad-port", "An entry of `expose` or `ports` holds no port.", "Correct it, or set `x-claw.base-url`.")
PORT_RANGE = error(
    "port-range", "A range of ports does not say on which one the service listens.", "Set `x-claw.base-url`."
)
SEVERAL_PORTS = warning(
    "several-ports", "The service has several TCP ports; the first is taken.", "Choose with `x-claw.base-url`."
)
NO_PORT = warning(
    "no-port", "The service has no TCP port; port 80 is taken.", "Add `expose`, or set `x-claw.base-url`."
)
TOKEN_MISSING = error(
    "token-missing",
    "A service wants a credential, and its environment holds none (missing or empty).",
    "Set the variable in the environment of the service that provides the tools.",
)
BAD_TOKEN = error(
    "bad-token", "A credential holds characters that an HTTP header can't carry.", "Use visible ASCII characters."
)
BAD_FEED = error("bad-feed", "A feed's name, path or TTL makes no request.", "Correct the feed.")
BEARER_ONLY = error(
    "bearer-only",
    "A feed or a memory is asked for with a bearer token or with none, and the service wants another kind of credential.",
    "Give the agent a `service-auth` of its own, or let the service take a bearer token.",
)
UNPINNED_IMAGE = warning(
    "unpinned-image",
    "An agent, or a service that one uses, has an image without a tag, or with `latest`: another image may be run tomorrow.",
    "Name a version (`api:1.4.2`) or a digest (`api@sha256:…`).",
)
