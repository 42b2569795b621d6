"""``web_fetch``, ``web_search`` and ``message``: what they do, and each attack that they withstand."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

FETCH = 'docs/spec/tools-host.md, "web_fetch"'
SEARCH = 'docs/spec/tools-host.md, "The tools"'
MESSAGE = 'docs/spec/tools-host.md, "The tools"'

REQUIREMENTS: dict[str, Requirement] = {
    "fetch:result": Requirement(
        FETCH,
        "A page is `{status, url, content_type, bytes, truncated, notice, text}`, of any status, with the last URL.",
    ),
    "fetch:external": Requirement(
        FETCH, "A field says that the text is external content, and no instruction."
    ),
    "fetch:charset": Requirement(
        FETCH,
        "Text is decoded by its mark, header or HTML; a charset that is unknown, or costly to decode, is UTF-8.",
    ),
    "fetch:binary": Requirement(FETCH, "What is no text is named and counted, but not shown."),
    "fetch:start-index": Requirement(FETCH, "A model reads on in a long text with `start_index`."),
    "fetch:spellings": Requirement(
        FETCH,
        "An address in decimal, octal, hexadecimal, short or full-width spelling, or with a zone, is refused.",
    ),
    "fetch:addresses": Requirement(
        FETCH,
        "Private, loopback, link-local, shared, multicast, reserved and documentation addresses are never connected to.",
    ),
    "fetch:ipv4-in-ipv6": Requirement(
        FETCH,
        "No IPv6 that holds an IPv4 address is connected to: mapped, compatible, translated, NAT64, 6to4, Teredo.",
    ),
    "fetch:metadata": Requirement(FETCH, "No setting opens an address of a metadata service."),
    "fetch:private-host": Requirement(
        FETCH, "`allow_private` opens one host, and no other at the same address."
    ),
    "fetch:every-answer": Requirement(
        FETCH, "One refused address among a name's addresses refuses the name."
    ),
    "fetch:rebinding": Requirement(
        FETCH,
        "A name is resolved once for a connection, and the address that was vetted is the one that is connected to.",
    ),
    "fetch:no-address": Requirement(
        FETCH, "A name without an address fails, and is not let through."
    ),
    "fetch:url-tricks": Requirement(
        FETCH,
        "Userinfo, backslashes, spaces, control characters, other schemes and ports, and long URLs are refused.",
    ),
    "fetch:domains": Requirement(
        FETCH,
        "`allowed_domains` and `blocked_domains` match by whole labels, in any case and with a final dot.",
    ),
    "fetch:policy-entries": Requirement(
        FETCH, "An entry of the policy that is no host is an error at the start."
    ),
    "fetch:redirects": Requirement(
        FETCH,
        "Five redirects are followed, each vetted as the first URL; none from https to http, none to another scheme.",
    ),
    "fetch:own-headers": Requirement(
        FETCH, "Headers that a model chose do not go to another origin."
    ),
    "fetch:headers": Requirement(
        FETCH,
        "Headers are those of the list with printable values: no Host, Cookie, Authorization, Transfer-Encoding or CRLF.",
    ),
    "fetch:get-only": Requirement(FETCH, "The only method is GET."),
    "fetch:host-stays": Requirement(
        FETCH, "Host and SNI are the name, not the address; TLS is verified for the name."
    ),
    "fetch:no-proxy": Requirement(FETCH, "Proxies of the environment are not used."),
    "fetch:one-dialer": Requirement(
        FETCH,
        "Only `Dialer` opens connections, and every connection goes to an address that it vetted.",
    ),
    "fetch:body-limit": Requirement(
        FETCH, "10 MB of a body are read, whatever Content-Length says; the result says so."
    ),
    "fetch:bombs": Requirement(
        FETCH,
        "A body unpacks to 10 MB at most, in bounded memory and time; two codings, or one not asked for, fail.",
    ),
    "fetch:broken-body": Requirement(
        FETCH, "A body that breaks off is truncated, one that can't be unpacked fails."
    ),
    "fetch:slow": Requirement(
        FETCH, "A slow or endless head or body ends at the deadline, and the connection with it."
    ),
    "fetch:large-head": Requirement(
        FETCH, "A large head, and a flood of informational responses or chunks, are ended."
    ),
    "search:backends": Requirement(
        SEARCH,
        "generic, brave and searxng are asked as each expects; the answer is `{query, results: [{title, url, snippet}]}`.",
    ),
    "search:count": Requirement(
        SEARCH, "There are 1 to 20 results, 5 by default; other numbers do not fit the schema."
    ),
    "search:encoding": Requirement(
        SEARCH, "A query arrives as it was written, whatever characters it has."
    ),
    "search:failures": Requirement(
        SEARCH,
        "A status, a redirect, HTML, JSON without results, a long answer and a broken one fail, and say why.",
    ),
    "search:unconfigured": Requirement(
        SEARCH, "Without an endpoint there is no `web_search`; one that is no URL is refused."
    ),
    "search:key": Requirement(SEARCH, "The key goes to the endpoint, and into no result or error."),
    "message:list": Requirement(
        MESSAGE, "Only channels on the list are sent to; without any there is no tool."
    ),
    "message:webhook": Requirement(
        MESSAGE,
        "A webhook gets one POST of `{channel, chat_id, content, principal}` with its token; no redirect is followed.",
    ),
    "message:stream": Requirement(
        MESSAGE, "A stream of Redis or Valkey gets one bounded XADD with the same fields."
    ),
    "message:once": Requirement(
        MESSAGE, "A message is never sent twice; where its outcome is unknown, the error says so."
    ),
    "message:redis-extra": Requirement(
        MESSAGE, "Without the redis client, the error of the channel says what to install."
    ),
    "message:secrets": Requirement(MESSAGE, "No error holds a token, a password or an address."),
}
