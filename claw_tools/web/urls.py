"""URLs as they are connected to, and the policy for them (docs/spec/tools-host.md "web_fetch").

Rules. What two parsers could read differently is refused: userinfo, backslashes, spaces, control
characters, an address that is not in its usual spelling. What goes out (Host, SNI, request line) is
made from the parsed parts, not from the text. Domains match by whole labels. An entry of the policy
that is no host is an error at the start, since it would match nothing.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urljoin

import httpx2

from claw_contract.addresses import Address
from claw_contract.toolhost_file import MAX_PORT, UrlPolicySection
from claw_tools.errors import ErrorCode, ToolError

MAX_URL: Final = 2_048  # Characters
_PORTS: Final = {"http": 80, "https": 443}
_URL = re.compile(r"(https?)://([^/?#]+)([/?#].*)?", re.IGNORECASE)
_HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_DELIMITERS = frozenset("/?#@\\")


@dataclass(frozen=True, slots=True)
class OutboundUrl:
    """A URL of HTTP in parts.

    ``host`` is a lower-case name in ASCII without a final dot, or an address.
    """

    scheme: str
    host: str
    port: int
    target: str  # Path and query, in ASCII

    @property
    def authority(self) -> str:
        """The value of Host: the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def address(self) -> Address | None:
        """The address that the host is, if it is no name."""
        return _read_address(self.host)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> OutboundUrl:
    """Return the parts of an absolute URL.

    Raise ``ToolError``: INVALID_ARGS, or PERMISSION_DENIED for an odd host.
    """
    if len(text) > MAX_URL:
        raise _invalid(f"it is longer than {MAX_URL} characters")
    if any(unicodedata.category(each)[0] in "CZ" or each == "\\" for each in text):
        raise _invalid("it has a space, a control character or a backslash")
    match = _URL.fullmatch(text)
    if match is None:
        raise _invalid("it is no absolute http:// or https:// URL")
    scheme, raw_authority, raw_target = match.groups()
    if "@" in raw_authority:
        raise _invalid("it holds a user name")

    # Full-width forms of "/" or "#" would move the end of the host
    authority = unicodedata.normalize("NFKC", raw_authority)
    if _DELIMITERS & set(authority):
        raise _odd_host()
    _, colon, port = authority.rpartition(":")
    has_port = colon and "]" not in port
    if has_port and not (_PORT.fullmatch(port) and 0 < int(port) <= MAX_PORT):
        raise _invalid("its port is none")

    try:
        url = httpx2.URL(f"{scheme}://{authority}{raw_target or '/'}")
    except httpx2.InvalidURL:
        raise _odd_host() from None
    return OutboundUrl(
        scheme=url.scheme,
        host=normalize_host(url.raw_host.decode("ascii")),
        port=url.port or _PORTS[url.scheme],
        target=url.raw_path.decode("ascii"),
    )


def normalize_host(host: str) -> str:
    """Return a name or an address in its one spelling.

    Raise ``ToolError`` with PERMISSION_DENIED for any other spelling.
    """
    name = host.lower().removesuffix(".")
    address = _read_address(name)
    if address is not None:
        return str(address)

    # A name whose last label is a number is an address to some resolvers
    last_label = name.rpartition(".")[2]
    if not _HOST.fullmatch(name) or _NUMBER.fullmatch(last_label):
        raise _odd_host()
    return name


def join_url(base: OutboundUrl, location: str) -> OutboundUrl:
    """Return where a redirect leads. Raise ``ToolError`` with PERMISSION_DENIED."""
    try:
        url = parse_url(urljoin(str(base), location))
    except (ToolError, ValueError):
        raise ToolError(
            ErrorCode.PERMISSION_DENIED, "it redirects to a URL that is not fetched."
        ) from None

    if base.scheme == "https" and url.scheme != "https":
        raise ToolError(
            ErrorCode.PERMISSION_DENIED, "it redirects from https to http, which is not followed."
        )
    return url


class UrlGuard:
    """The policy for names and ports.

    Addresses are vetted where they are connected to (``Dialer``).
    """

    def __init__(self, policy: UrlPolicySection) -> None:
        """Raise ``ValueError`` for an entry that is no host."""
        self._ports = frozenset(policy.ports)
        self.allow_private = _read_hosts("allow_private", policy.allow_private)
        self._allowed = _read_hosts("allowed_domains", policy.allowed_domains)
        self._blocked = _read_hosts("blocked_domains", policy.blocked_domains)

    def check(self, url: OutboundUrl) -> None:
        """Raise ``ToolError`` for a URL that the policy refuses, whatever its address is."""
        if url.port not in self._ports:
            ports = ", ".join(map(str, sorted(self._ports)))
            raise _invalid(f"its port is not one that is fetched from ({ports})")

        if _matches(self._blocked, url.host):
            raise ToolError(
                ErrorCode.PERMISSION_DENIED, "its host is in url_policy.blocked_domains."
            )
        if self._allowed and not _matches(self._allowed, url.host):
            raise ToolError(
                ErrorCode.PERMISSION_DENIED, "its host is not in url_policy.allowed_domains."
            )


def _matches(domains: frozenset[str], host: str) -> bool:
    """Return whether a host is one of the domains, or below one; an address is below none."""
    if _read_address(host) is not None:
        return host in domains

    labels = host.split(".")
    return any(".".join(labels[start:]) in domains for start in range(len(labels)))


def _read_hosts(key: str, entries: Iterable[str]) -> frozenset[str]:
    try:
        return frozenset(map(read_host, entries))
    except ValueError as error:
        raise ValueError(f"url_policy.{key}: {error}") from None


def read_host(entry: str) -> str:
    """Return a host of a setting in its one spelling. Raise ``ValueError``."""
    problem = ValueError(
        f"{entry[:64]!r} is no host: write a name such as example.com, or an address"
    )
    authority = f"[{entry}]" if ":" in entry else entry
    try:
        url = parse_url(f"http://{authority}")
    except ToolError:
        raise problem from None

    has_more = url.port != _PORTS["http"] or url.target != "/"
    if has_more:
        raise problem
    return url.host


def _read_address(host: str) -> Address | None:
    is_ipv6 = ":" in host and "%" not in host
    try:
        return IPv6Address(host) if is_ipv6 else IPv4Address(host)
    except AddressValueError:
        return None


def _invalid(reason: str) -> ToolError:
    return ToolError(ErrorCode.INVALID_ARGS, f"this URL can't be fetched: {reason}.")


def _odd_host() -> ToolError:
    return ToolError(
        ErrorCode.PERMISSION_DENIED,
        "this URL can't be fetched: its host is no name, and no address in its usual spelling.",
    )
