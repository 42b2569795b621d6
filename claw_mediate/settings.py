"""The settings: environment variables of docs/spec/contract.md.

Each is also an option of mitmproxy.
"""

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final, Literal

from claw_contract.addresses import Network
from claw_contract.opened_paths import OpenedPath, parse_opened_paths
from claw_contract.whole_numbers import whole_number
from claw_mediate.dialects.base import KeepaliveSetting
from claw_state.url import Place, parse_place


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str  # Of the option, without ``cllama_``
    env: str  # The environment variable
    default: str
    help: str
    is_word: bool = False
    """True if an empty variable is refused: a missing value must not decide about safety."""
    is_secret: bool = False  # True if the value may contain a password


SETTINGS = (
    Setting(
        "context",
        "CLAW_CONTEXT_ROOT",
        "/claw/context",
        "Directory with one context directory for each agent.",
    ),
    Setting("auth", "CLAW_AUTH_DIR", "/claw/auth", "Directory of providers.json."),
    Setting(
        "key_states",
        "CLAW_KEY_STATES_DIR",
        "",
        "Directory of the states of provider keys; empty: beside providers.json.",
    ),
    Setting(
        "secrets",
        "CLAW_SECRETS_DIR",
        "/run/secrets",
        "Directory that token references are resolved in.",
    ),
    Setting(
        "history",
        "CLAW_SESSION_HISTORY_DIR",
        "",
        "Directory of session history; empty: no history.",
    ),
    Setting(
        "history_max_bytes",
        "CLLAMA_SESSION_HISTORY_MAX_BYTES",
        "268435456",
        "Size at which history rotates.",
    ),
    Setting(
        "history_files",
        "CLLAMA_SESSION_HISTORY_FILES",
        "4",
        "How many older files of history each agent keeps.",
    ),
    Setting(
        "state",
        "CLAW_STATE",
        "",
        "Store of what outlives a turn: a file, or redis://HOST:PORT/DB; empty: memory.",
        is_secret=True,
    ),
    Setting("pod", "CLAW_POD", "", "Name of the pod."),
    # By default only loopback, and no other hosts. Who wants more says so: compiled files and the
    # image do.
    Setting(
        "listen",
        "LISTEN_ADDR",
        "127.0.0.1:8080",
        "Address of the base-URL entrance, when no --mode is given.",
    ),
    Setting(
        "proxy",
        "CLAW_PROXY_ADDR",
        "127.0.0.1:8082",
        "Address of the forward proxy, when no --mode is given.",
    ),
    Setting(
        "hosts", "CLLAMA_HOSTS", "", "More governed hosts, comma separated, each as HOST=PROVIDER."
    ),
    Setting(
        "paths",
        "CLLAMA_PATHS",
        "",
        "Paths opened beside the known ones, comma separated, each as METHOD /prefix*.",
    ),
    Setting(
        "ca",
        "CLLAMA_CA",
        "",
        "Directory of the CA that claw certs created; empty: mitmproxy's own, in confdir.",
    ),
    Setting(
        "egress",
        "CLLAMA_EGRESS",
        "deny",
        "What happens to hosts that are not governed: allow or deny.",
        is_word=True,
    ),
    Setting(
        "egress_networks",
        "CLLAMA_EGRESS_NETWORKS",
        "",
        "Private addresses and networks that allowed egress reaches, comma separated; empty: none.",
    ),
    Setting(
        "max_agent_body_bytes",
        "CLLAMA_MAX_AGENT_BODY_BYTES",
        "134217728",
        "Most bytes of request bodies that one agent has in flight in one process.",
    ),
    Setting(
        "max_body_bytes",
        "CLLAMA_MAX_BODY_BYTES",
        "536870912",
        "Most bytes of request bodies that one process holds for all agents.",
    ),
    Setting(
        "dispatch",
        "CLLAMA_DISPATCH",
        "fast",
        "How mitmproxy calls its addons: fast, or plain (mitmproxy's own way).",
    ),
    Setting(
        "keep_flows", "CLLAMA_KEEP_FLOWS", "5000", "How many flows mitmweb and the console keep."
    ),
    Setting(
        "keep_bytes",
        "CLLAMA_KEEP_BYTES",
        "268435456",
        "How many bytes of flows mitmweb and the console keep.",
    ),
    Setting(
        "file_look_ms",
        "CLLAMA_FILE_LOOK_MS",
        "50",
        "Time for which a look at the agents' files, providers.json, the key states and "
        "prices.json holds, in milliseconds; 0: each request looks.",
    ),
    Setting(
        "keepalive_ms",
        "CLLAMA_KEEPALIVE_MS",
        "1000",
        "Longest silence of a mediated stream, in milliseconds.",
    ),
    Setting(
        "keepalive_first_ms",
        "CLLAMA_KEEPALIVE_FIRST_MS",
        "2000",
        "Longest time until a mediated stream begins, in ms.",
    ),
    Setting(
        "keepalive_openai",
        "CLLAMA_KEEPALIVE_OPENAI",
        "comment",
        "Keepalive of OpenAI streams: comment, native or off.",
    ),
    Setting(
        "keepalive_responses",
        "CLLAMA_KEEPALIVE_RESPONSES",
        "auto",
        "The same of OpenAI Responses: auto (comments, and events after 30 s), comment, native "
        "or off.",
    ),
    Setting(
        "keepalive_anthropic",
        "CLLAMA_KEEPALIVE_ANTHROPIC",
        "native",
        "The same of Anthropic: comment, native or off.",
    ),
    Setting(
        "keepalive_names",
        "CLLAMA_KEEPALIVE_NAMES",
        "on",
        "Whether keepalives name the tools that a stream waits for: on or off.",
    ),
    Setting(
        "live_first_ms",
        "CLLAMA_LIVE_FIRST_MS",
        "10000",
        "Longest time until a live stream begins, in ms.",
    ),
    Setting(
        "live_idle_ms",
        "CLLAMA_LIVE_IDLE_MS",
        "120000",
        "Longest silence of a model in a reply that flows to its runner, in ms.",
    ),
    Setting(
        "live_max_ms",
        "CLLAMA_LIVE_MAX_MS",
        "1800000",
        "Longest time for which the replies of one turn flow to its runner, in ms.",
    ),
    Setting(
        "feed_max_response_bytes",
        "CLLAMA_FEED_MAX_RESPONSE_BYTES",
        "32768",
        "Most bytes of a feed in a prompt.",
    ),
    Setting(
        "feed_max_total_bytes",
        "CLLAMA_FEED_MAX_TOTAL_BYTES",
        "65536",
        "Most bytes of all feeds in a prompt.",
    ),
    Setting(
        "feed_fetch_timeout_ms",
        "CLLAMA_FEED_FETCH_TIMEOUT_MS",
        "3000",
        "Time-out of a feed, 100 to 120000 ms.",
    ),
    Setting(
        "time_line",
        "CLLAMA_TIME_LINE",
        "off",
        "Whether prompts contain the current time: on or off.",
    ),
    Setting(
        "drain_ms",
        "CLLAMA_DRAIN_MS",
        "4000",
        "Longest time for requests under way at a stop, 1 to 600000 ms.",
    ),
    Setting(
        "budget_fail_mode",
        "CLLAMA_BUDGET_FAIL_MODE",
        "open",
        "What happens when an agent's spending can't be read: open (its requests pass) or closed "
        "(503).",
        is_word=True,
    ),
    Setting(
        "stored_ids",
        "CLLAMA_STORED_IDS",
        "own",
        "Ids of stored responses and conversations that an agent may name: own, or any (also those "
        "from before the proxy).",
        is_word=True,
    ),
    Setting("metrics", "CLAW_METRICS_ADDR", "", "Address that serves /metrics; empty: no metrics."),
)


_MAX_PORT = 65535
ADDRESS_SECONDS: Final = 5.0
"""Seconds for which the first worker waits for an address.

Workers whose supervisor was killed give theirs up at once.
"""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; an empty host means all addresses."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


type KeepaliveKind = Literal["auto", "comment", "native", "off"]


@dataclass(frozen=True, slots=True)
class Pace:
    """The keepalive of a stream."""

    first: float  # Seconds until its headers are sent
    every: float  # Longest silence in seconds
    kind: KeepaliveKind
    names_tools: bool = True  # Whether it names the tools that the stream waits for


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed settings of one mediator."""

    context: Path
    auth: Path
    key_states: Path
    secrets: Path
    history: Path | None
    history_max_bytes: int
    history_files: int
    state: Place
    stored_ids: Literal["own", "any"]
    pod: str

    hosts: dict[str, str]
    paths: tuple[OpenedPath, ...]
    ca: Path | None
    egress: Literal["allow", "deny"]
    egress_networks: tuple[Network, ...]
    budget_fail_mode: Literal["open", "closed"]

    max_agent_body_bytes: int
    max_body_bytes: int
    keep_flows: int
    keep_bytes: int
    file_look: float  # Seconds
    drain: float  # Seconds
    dispatch: Literal["fast", "plain"]
    metrics: ListenAddress | None

    keepalive: float  # Seconds
    keepalive_first: float  # Seconds
    keepalive_openai: KeepaliveKind
    keepalive_responses: KeepaliveKind
    keepalive_anthropic: KeepaliveKind
    keepalive_names: bool
    live_first: float  # Seconds
    live_idle: float  # Seconds
    live_max: float  # Seconds

    feed_bytes: int
    feeds_bytes: int
    feed_seconds: float
    time_line: bool

    def pace(self, setting: KeepaliveSetting) -> Pace:
        """Return the keepalive of the streams that have this setting."""
        kinds: dict[KeepaliveSetting, KeepaliveKind] = {
            "openai": self.keepalive_openai,
            "responses": self.keepalive_responses,
            "anthropic": self.keepalive_anthropic,
        }
        kind = kinds[setting]
        return Pace(self.keepalive_first, self.keepalive, kind, self.keepalive_names)

    @classmethod
    def of(cls, values: dict[str, str]) -> "Settings":
        """Parse the values by name.

        Raise ``ValueError`` with one line that names the setting and what it takes.
        """
        return cls(
            # Directories and stores
            context=Path(values["context"]),
            auth=Path(values["auth"]),
            key_states=Path(values["key_states"] or Path(values["auth"], "key-states")),
            secrets=Path(values["secrets"]),
            history=Path(values["history"]) if values["history"] else None,
            history_max_bytes=_positive(values, "history_max_bytes"),
            history_files=_between(values, "history_files", 1, 100),
            state=_place(values["state"]),
            stored_ids=_word(values, "stored_ids", "own", "any"),
            pod=values["pod"],
            # What is governed, and what happens to the rest
            hosts=_hosts(values["hosts"]),
            paths=_paths(values["paths"]),
            ca=Path(values["ca"]).expanduser() if values["ca"] else None,
            egress=_word(values, "egress", "allow", "deny"),
            egress_networks=_networks(values, "egress_networks"),
            budget_fail_mode=_word(values, "budget_fail_mode", "open", "closed"),
            # Bounds of the process
            max_agent_body_bytes=_positive(values, "max_agent_body_bytes"),
            max_body_bytes=_positive(values, "max_body_bytes"),
            keep_flows=_positive(values, "keep_flows"),
            keep_bytes=_positive(values, "keep_bytes"),
            file_look=_between(values, "file_look_ms", 0, 60_000) / 1000,
            drain=_between(values, "drain_ms", 1, 600_000) / 1000,
            dispatch=_word(values, "dispatch", "fast", "plain"),
            metrics=_listener(values, "metrics"),
            # Streams
            keepalive=_positive(values, "keepalive_ms") / 1000,
            keepalive_first=_positive(values, "keepalive_first_ms") / 1000,
            keepalive_openai=_word(values, "keepalive_openai", "comment", "native", "off"),
            keepalive_responses=_word(
                values, "keepalive_responses", "auto", "comment", "native", "off"
            ),
            keepalive_anthropic=_word(values, "keepalive_anthropic", "comment", "native", "off"),
            keepalive_names=_word(values, "keepalive_names", "on", "off") == "on",
            live_first=_positive(values, "live_first_ms") / 1000,
            live_idle=_positive(values, "live_idle_ms") / 1000,
            live_max=_positive(values, "live_max_ms") / 1000,
            # Prompts
            feed_bytes=_positive(values, "feed_max_response_bytes"),
            feeds_bytes=_positive(values, "feed_max_total_bytes"),
            feed_seconds=_between(values, "feed_fetch_timeout_ms", 100, 120_000) / 1000,
            time_line=_word(values, "time_line", "off", "on") == "on",
        )


def parse_address(text: str, name: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``:port``. Raise ``ValueError`` with one line."""
    host, _, port_text = text.rpartition(":")
    port = whole_number(port_text, _MAX_PORT)
    if not port:
        raise ValueError(f"cllama_{name} takes HOST:PORT or :PORT, not {text!r}")
    return host, port


def _listener(values: dict[str, str], name: str) -> ListenAddress | None:
    if not values[name]:
        return None

    host, port = parse_address(values[name], name)
    return ListenAddress(host.removeprefix("[").removesuffix("]"), port)


def _networks(values: dict[str, str], name: str) -> tuple[Network, ...]:
    parts = (part.strip() for part in values[name].split(","))
    try:
        return tuple(ip_network(part) for part in parts if part)
    except ValueError as error:
        raise ValueError(
            f"cllama_{name} takes addresses and networks, comma separated: {error}"
        ) from None


def _place(text: str) -> Place:
    try:
        return parse_place(text)
    except ValueError as error:
        raise ValueError(f"cllama_state: {error}") from None


def _paths(text: str) -> tuple[OpenedPath, ...]:
    try:
        return parse_opened_paths(text)
    except ValueError as error:
        raise ValueError(f"cllama_paths: {error}") from None


def _positive(values: dict[str, str], name: str) -> int:
    text = values[name]
    number = whole_number(text)
    if not number:
        raise ValueError(f"cllama_{name} takes a whole number above 0, not {text!r}")
    return number


def _between(values: dict[str, str], name: str, minimum: int, maximum: int) -> int:
    text = values[name]
    number = whole_number(text, maximum)
    if number is None or number < minimum:
        raise ValueError(
            f"cllama_{name} takes a whole number from {minimum} to {maximum}, not {text!r}"
        )
    return number


def _word[T: str](values: dict[str, str], name: str, *words: T) -> T:
    for word in words:
        if values[name] == word:
            return word

    choices = " or ".join(map(repr, words))
    raise ValueError(f"cllama_{name} takes {choices}, not {values[name]!r}")


def _hosts(text: str) -> dict[str, str]:
    hosts: dict[str, str] = {}
    for part in text.split(","):
        entry = part.strip()
        if not entry:
            continue

        host, separator, provider = entry.partition("=")
        if not (host and separator and provider):
            raise ValueError(f"cllama_hosts takes HOST=PROVIDER, comma separated, not {entry!r}")
        hosts[host.lower()] = provider
    return hosts
