"""The meaning of a provider's answer for the key that was sent.

docs/spec/mediation.md section 4, "The model's side".

    accepted    the key was let in: 2xx, and any other 4xx
    bad         401 or 403 with a code of a bad key: it is dead
    doubtful    401 or 403 with no such code: a right, a region, moderation, or a bad key. The
                provider is asked
    account     402 or 429 with a code about the account: the key rests for all models
    throttled   any other 429: the key rests for that model
    unknown     3xx, 5xx, or no whole answer

A request decides about much of its answer: the endpoint may need a right that the key lacks
(OpenAI: 401 "Missing scopes"), ``max_tokens`` may cost more than the balance (OpenRouter: 402).
Such an answer must not outlive its request for others. So only codes count, and they are read at
the JSON's own places for them: an error may repeat an agent's words anywhere else. Nor do they
count where the server may have taken another credential from the request (``request_credentials``).

Sources: the pages about errors of developers.openai.com, platform.claude.com, ai.google.dev,
docs.x.ai, openrouter.ai and vercel.com/docs/ai-gateway, and bug reports of runners
(continuedev/continue 10059 and 10748, openai/codex 1352, anthropics/claude-code 5983,
Fosowl/agenticSeek 407).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from claw_contract.known_providers import KNOWN_PROVIDERS
from claw_contract.providers import ApiFormat, ProviderAuth
from claw_mediate.core.http import Request
from claw_mediate.core.model_policy import Provider
from claw_mediate.http.headers import Headers
from claw_mediate.providers.request_credentials import may_hold_credential

type KeyVerdict = Literal["accepted", "bad", "doubtful", "account", "throttled", "unknown"]

_SUCCESS = range(200, 300)
_CLIENT_ERRORS = range(400, 500)
_MAX_ERROR_BYTES = 64 << 10  # A longer error has no code that counts
_UNAUTHORIZED = frozenset({401, 403})
_BAD_REQUEST_TOO = frozenset({400, 401, 403})
_BODY_DECIDES = frozenset({400, 401, 402, 403})
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
USER_AGENT = "clawdapus (check of a key)"


@dataclass(frozen=True, slots=True)
class KeyRules:
    """One row: how a provider reports a bad key, and how to ask it whether a key is sound."""

    bad_key: frozenset[str]
    """The codes of a bad key."""
    account: frozenset[str] = frozenset()
    """The codes of an account that is empty or closed."""
    refusals: frozenset[int] = _UNAUTHORIZED
    """The statuses with which a key is refused."""
    question: str = "/models"
    """The path of a GET below ``/v1`` that needs a sound key, and no other right."""
    headers: tuple[tuple[str, str], ...] = ()
    """The headers of that GET."""
    names_bad_keys: bool = False
    """True if the answer about a bad key always has one of the codes.

    Then a refusal of the question without a code is about a right that the key lacks.
    """
    may_be_gateway: bool = False
    """True at any host except the provider's own.

    An error may then be of another server, which was asked with a key of the request or of the
    model.
    """


_ACCOUNT = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
    }
)
_OPENAI_BAD = frozenset({"invalid_api_key", "account_deactivated"})
_ANTHROPIC_VERSION = ("anthropic-version", "2023-06-01")
_ROWS: Final[dict[str, KeyRules]] = {
    # Restricted keys may lack the right to list models: "Missing scopes: api.model.read", without a
    # code.
    "openai": KeyRules(_OPENAI_BAD, _ACCOUNT, names_bad_keys=True),
    "anthropic": KeyRules(
        frozenset({"authentication_error"}), _ACCOUNT, headers=(_ANTHROPIC_VERSION,)
    ),
    # Its codes are the status, and anybody may list its models.
    "openrouter": KeyRules(frozenset(), question="/key"),
    # A bad key is 400 INVALID_ARGUMENT with the reason API_KEY_INVALID, in ``details``.
    "google": KeyRules(
        frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED"}),
        refusals=_BAD_REQUEST_TOO,
        names_bad_keys=True,
    ),
    # A bad key is 400 with no code of its own, as any bad request is. Keys may be limited to
    # endpoints and models.
    "xai": KeyRules(frozenset(), refusals=_BAD_REQUEST_TOO, question="/api-key"),
    # Anybody may list its models, and a request may hold keys of other providers: a code may be
    # about those.
    "ai-gateway": KeyRules(frozenset(), frozenset({"insufficient_funds"}), question="/credits"),
}
_SERVERS: Final[dict[ApiFormat, KeyRules]] = {
    # Others that speak a format, and take their codes from both.
    "openai": KeyRules(_OPENAI_BAD | {"authentication_error"}, _ACCOUNT),
    "anthropic": KeyRules(
        _OPENAI_BAD | {"authentication_error"}, _ACCOUNT, headers=(_ANTHROPIC_VERSION,)
    ),
}
_HOSTS: Final = {
    urlsplit(known.base_url).hostname: name
    for name, known in KNOWN_PROVIDERS.items()
    if known.base_url
}
_FORMATS: Final = frozenset({"openai", "anthropic"})


@lru_cache(maxsize=64)
def _find_rules(name: str, base_url: str, auth: ProviderAuth, api_format: ApiFormat) -> KeyRules:
    host = urlsplit(base_url).hostname
    known = _HOSTS.get(host)
    is_own_host = known is not None
    if known is None:
        # The name of a format says nothing where the base URL leads elsewhere: to a gateway, or to
        # a server of one's own.
        known = "" if name in _FORMATS else name

    rules = _ROWS.get(known, _SERVERS[api_format])
    rules = replace(rules, may_be_gateway=not is_own_host)
    if known == "anthropic" and auth == "bearer":
        # A subscription's token is refused with the code of a bad key if the agent leaves a beta
        # header out.
        beta = ("anthropic-beta", "oauth-2025-04-20")
        rules = replace(rules, bad_key=frozenset(), headers=(*rules.headers, beta))
    return rules


def key_rules(provider: Provider) -> KeyRules:
    """Return the provider's row: by its host, else by its name, else by its format."""
    return _find_rules(provider.name, provider.base_url, provider.auth, provider.api_format)


class KeyAnswer(NamedTuple):
    """An answer to a request with a key."""

    status: int
    """0 if no whole answer came."""
    body: bytes = b""
    retry_after: str = ""
    scope: str | None = None
    """The model, and the use of it, that a 429 limits; None for a request that names no model."""
    is_model_call: bool = True
    """False on a path of no dialect, where a code may be about something else."""
    request: Request | None = None
    """The agent's request, whose own credentials may have caused the error; None for ours."""


def needs_body(status: int) -> bool:
    """Return True if a status says nothing of a key without the error's code."""
    return status in _BODY_DECIDES


def judge(provider: Provider, answer: KeyAnswer) -> KeyVerdict:
    """Return what an answer says of its key: the table above."""
    status = answer.status
    if status in _SUCCESS:
        return "accepted"
    if status not in _CLIENT_ERRORS:
        return "unknown"

    rules = key_rules(provider)
    if status in rules.refusals:
        is_bad = answer.is_model_call and _has_code(rules, rules.bad_key, answer)
        return "bad" if is_bad else "doubtful"

    is_limited = status == HTTPStatus.TOO_MANY_REQUESTS
    may_be_account = is_limited or status == HTTPStatus.PAYMENT_REQUIRED
    if may_be_account and _has_code(rules, rules.account, answer):
        return "account"
    return "throttled" if is_limited else "accepted"


def _has_code(rules: KeyRules, codes: frozenset[str], answer: KeyAnswer) -> bool:
    """Return True if an error has one of these codes, and it can only be about our key."""
    if not find_code(codes, answer.body):
        return False

    request = answer.request
    return request is None or not may_hold_credential(request, for_gateway=rules.may_be_gateway)


def find_code(codes: frozenset[str], body: bytes) -> str:
    """Return the first of these codes in an error; empty if it has none."""
    for code in read_codes(body):
        if code in codes:
            return code
    return ""


def read_codes(body: bytes) -> list[str]:
    """Return the codes of an error, from the places of codes only.

    >>> read_codes(b'{"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}')
    ['invalid_api_key', 'invalid_request_error']
    """
    if len(body) > _MAX_ERROR_BYTES:
        return []
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []

    if isinstance(document, list):  # Google's endpoint for OpenAI's clients
        document = document[0] if document else None
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return []

    places = [error.get("code"), error.get("type"), *_reasons(error.get("details"))]
    return [place for place in places if isinstance(place, str)]


def _reasons(details: object) -> Iterator[object]:
    """Yield the reasons of Google's errors; other details repeat fields of the request."""
    if not isinstance(details, list):
        return

    for detail in details:
        if isinstance(detail, dict) and detail.get("@type") == _ERROR_INFO:
            yield detail.get("reason")


def key_question(provider: Provider) -> tuple[str, Headers]:
    """Return path and headers, without the key, of the GET that tells whether a key is sound."""
    rules = key_rules(provider)
    base_path = urlsplit(provider.base_url).path.rstrip("/")
    path = rules.question if base_path else f"/v1{rules.question}"
    return path, [("accept", "application/json"), ("user-agent", USER_AGENT), *rules.headers]


def answer_to_question(provider: Provider, status: int, body: bytes) -> KeyVerdict:
    """Return what the answer to ``key_question`` says: ``accepted``, ``bad``, or ``unknown``."""
    verdict = judge(provider, KeyAnswer(status, body))
    if verdict == "bad":
        return "bad"
    if verdict == "doubtful" and not key_rules(provider).names_bad_keys:
        return "bad"
    if status in _SUCCESS:
        return "accepted"
    return "unknown"
