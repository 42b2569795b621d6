"""The cost of requests in US dollars: by their usage, or estimated where that is not known
(docs/spec/mediation.md section 8).

    input      a token for 4 bytes of the request; for 32 bytes where it is base64 (images, files); at most 1,000,000
    output     as many tokens as the request allows, at most 128,000; 4,096 if it sets no limit; for each of its answers
    received   a token for 4 bytes of text, and at least one for each event of a stream that brings text

Nobody's tokenizer is the provider's, so that these are figures for a reservation, and for what
nobody will ever know.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from claw_contract.base import JsonObject
from claw_contract.prices import Price
from claw_mediate.core.api_paths import normalize_path
from claw_mediate.core.json_outline import JsonSpliceError, outline_request

_MILLION = 1_000_000
_MAX_AMOUNT = 1e12

BYTES_PER_TOKEN = 4
PACKED_BYTES_PER_TOKEN = 32
"""A screenshot of 200 kB is about 1,500 tokens (here 8,000), a PDF of that size some 20,000."""
DEFAULT_OUTPUT_TOKENS = 4096
_MAX_INPUT_TOKENS = 1_000_000  # No model reads more in one request
_MAX_OUTPUT_TOKENS = 128_000  # No model writes more in one answer
_MAX_ANSWERS = 128  # OpenAI's limit of ``n``
_MAX_PROMPTS = 2048
_BLOCK = 4096  # Bytes of which one sample says whether they are base64
_SAMPLE = 64
_MIN_PACKED = 1024  # Bytes; less than that is counted as text
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_WITHOUT_OUTPUT = re.compile(r"/(?:embeddings|rerank|moderations)$")


class Cost(NamedTuple):
    """The cost of a request.

    ``estimated`` comes on top of ``known``: what is charged for calls whose cost is not known.
    """

    known: float | None
    estimated: float | None = None

    @property
    def charge(self) -> float:
        return (self.known or 0.0) + (self.estimated or 0.0)

    @property
    def is_known(self) -> bool:
        return self.known is not None and self.estimated is None


FREE = Cost(0.0)


class RequestSize(NamedTuple):
    """The expected tokens of a request. ``is_limited``: the request itself limits its output."""

    input_tokens: float
    output_tokens: float
    is_limited: bool = False


def find_price(prices: Mapping[str, Price], provider: str, model: str) -> Price | None:
    """Return the price of a model: of all names that it begins with, the longest,
    with its provider before without.
    """
    for name in (f"{provider}/{model}", model):
        if matches := [known for known in prices if name.startswith(known)]:
            return prices[max(matches, key=len)]
    return None


def find_dearest_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the dearest price that a model could have, whichever provider will
    answer; else the dearest of the list.

    >>> prices = {"a/m": Price(input=1, output=2), "b/m": Price(input=1, output=3)}
    >>> prices["x"] = Price(input=9, output=9)
    >>> [find_dearest_price(prices, model).output for model in ("m-2", "a/m", "unknown")]
    [3.0, 2.0, 9.0]
    """
    providers = {name.partition("/")[0] for name in prices if "/" in name}
    prefix, _, rest = model.partition("/")
    named = find_price(prices, prefix, rest) if rest else None
    found = [named, *(find_price(prices, provider, model) for provider in ("", *sorted(providers)))]
    possible = [price for price in found if price is not None] or [*prices.values()]
    return max(possible, key=lambda price: (price.output, price.input), default=None)


def compute_cost(usage: JsonObject, price: Price | None) -> float | None:
    """Return US dollars: the provider's own figure, else the price list's, else None.

    A response without usage has no cost.
    """
    reported = _amount(usage.get("cost"))
    if reported is not None or price is None:
        return reported
    tokens = _openai_tokens(usage) or _anthropic_tokens(usage)
    if tokens is None:
        return None
    fresh, cached, output = tokens
    cached_price = price.input if price.cached_input is None else price.cached_input
    return (fresh * price.input + cached * cached_price + output * price.output) / _MILLION


def price_tokens(price: Price, input_tokens: float, output_tokens: float) -> float:
    """Return the US dollars of so many tokens."""
    return (input_tokens * price.input + output_tokens * price.output) / _MILLION


def input_tokens_of(usage: JsonObject) -> float | None:
    """Return the tokens of the prompt that a usage object names; None if it names none."""
    tokens = _openai_tokens(usage) or _anthropic_tokens(usage)
    return None if tokens is None else tokens[0] + tokens[1]


def _openai_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): the cached tokens are a part of the input."""
    chat = "prompt_tokens", "prompt_tokens_details", "completion_tokens"
    responses = "input_tokens", "input_tokens_details", "output_tokens"
    names = responses if responses[1] in usage else chat
    prompt, details, output = (usage.get(name) for name in names)
    if (tokens := _amount(prompt)) is None:
        return None
    cached = min(
        _amount(details.get("cached_tokens")) or 0.0 if isinstance(details, dict) else 0.0, tokens
    )
    return tokens - cached, cached, _amount(output) or 0.0


def _anthropic_tokens(usage: JsonObject) -> tuple[float, float, float] | None:
    """Return (fresh input, cached input, output): cache reads and writes are
    counted beside ``input_tokens``.
    """
    fresh, written, cached, output = (
        _amount(usage.get(name))
        for name in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
        )
    )
    return None if fresh is None else (fresh + (written or 0.0), cached or 0.0, output or 0.0)


def _amount(value: object) -> float | None:
    """Return a plausible amount, or None: a provider's odd numbers must not give money back."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MAX_AMOUNT
    ):
        return None
    return float(value)


class _GenerationConfig(msgspec.Struct):
    maxOutputTokens: Any = None  # noqa: N815 - Gemini's name
    candidateCount: Any = None  # noqa: N815


class _Limits(msgspec.Struct):
    """The members of any dialect that limit or multiply the output."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    best_of: Any = None
    prompt: msgspec.Raw = msgspec.Raw()
    generationConfig: Any = None  # noqa: N815
    requests: Any = None  # Of a batch of Anthropic's: each has limits of its own


_limits_decoder = msgspec.json.Decoder(_Limits)
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def measure_request(body: bytes, path: str, declared_length: int = 0) -> RequestSize:
    """Return the expected tokens of a request; ``declared_length``: bytes of a body
    that is not there yet.
    """
    input_tokens = min(count_tokens(body) or declared_length / BYTES_PER_TOKEN, _MAX_INPUT_TOKENS)
    if _WITHOUT_OUTPUT.search(normalize_path(path)):
        return RequestSize(input_tokens, 0.0, is_limited=True)

    try:
        limits = _limits_decoder.decode(outline_request(body).text)
    except (
        msgspec.DecodeError,
        RecursionError,
        UnicodeDecodeError,
        JsonSpliceError,
    ):  # a form, or no JSON object
        return RequestSize(input_tokens, DEFAULT_OUTPUT_TOKENS)

    if isinstance(limits.requests, list):
        output_tokens = sum(_expected_of_request(each) for each in limits.requests)
        return RequestSize(input_tokens, output_tokens, is_limited=True)

    config = limits.generationConfig if isinstance(limits.generationConfig, dict) else {}
    named = (
        limits.max_tokens,
        limits.max_completion_tokens,
        limits.max_output_tokens,
        config.get("maxOutputTokens"),
    )
    allowed = [tokens for tokens in map(_positive, named) if tokens is not None]
    per_answer = min(max(allowed, default=DEFAULT_OUTPUT_TOKENS), _MAX_OUTPUT_TOKENS)

    asked = (limits.n, limits.best_of, config.get("candidateCount"))
    answers = max(min(_positive(number) or 1, _MAX_ANSWERS) for number in asked)
    return RequestSize(
        input_tokens, per_answer * answers * _count_prompts(limits.prompt), bool(allowed)
    )


def _expected_of_request(request: object) -> int:
    """Return the output tokens that one request of a batch limits itself to, or the
    usual number.
    """
    params = request.get("params") if isinstance(request, dict) else None
    limit = _positive(params.get("max_tokens")) if isinstance(params, dict) else None
    return min(limit or DEFAULT_OUTPUT_TOKENS, _MAX_OUTPUT_TOKENS)


def _positive(number: object) -> int | None:
    return number if type(number) is int and number > 0 else None


def _count_prompts(prompt: msgspec.Raw) -> int:
    """Return the number of prompts of a legacy completion, each of which gets
    answers of its own.
    """
    try:
        prompts = _list_decoder.decode(prompt)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return 1
    several = sum(
        bytes(each).startswith((b'"', b"[")) for each in prompts
    )  # else it is one prompt, of tokens
    return max(1, min(several, _MAX_PROMPTS))


def count_tokens(data: bytes) -> float:
    """Return the tokens of a document by its bytes.

    Of 4 KiB one sample is looked at: a body may be long.

    >>> count_tokens(b"Once upon a time"), count_tokens(b"QUJD" * 8192)
    (4.0, 1024.0)
    """
    packed = sum(
        min(_BLOCK, len(data) - at)
        for at in range(0, len(data), _BLOCK)
        if len(data) - at >= _MIN_PACKED
        and not data[at + _SAMPLE : at + 2 * _SAMPLE].translate(None, _BASE64)
    )
    return packed / PACKED_BYTES_PER_TOKEN + (len(data) - packed) / BYTES_PER_TOKEN


_TEXTS = frozenset(
    {
        "content",
        "text",
        "reasoning",
        "reasoning_content",
        "thinking",
        "partial_json",
        "arguments",
        "refusal",
        "input",
        "delta",
    }
)
"""Members of an event that hold what the model has written."""


class _Event(msgspec.Struct):
    """The places of text in an event: OpenAI's ``choices`` (``delta``, or
    ``text``), the others' ``delta``.
    """

    choices: Any = None
    delta: Any = None


_event_decoder = msgspec.json.Decoder(_Event)


def count_event_tokens(event: bytes) -> float:
    """Return the tokens of the text that one event of a stream brings; 0.0 for one without."""
    try:
        decoded = _event_decoder.decode(event)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return 0.0
    written = _text_bytes({"delta": decoded.delta, "content": decoded.choices})
    return max(1.0, written / BYTES_PER_TOKEN) if written else 0.0


def _text_bytes(value: object, depth: int = 6) -> int:
    if not depth:
        return 0
    if isinstance(value, list):
        return sum(_text_bytes(each, depth - 1) for each in value)
    if not isinstance(value, dict):
        return 0
    texts = sum(
        len(text.encode())
        for name, text in value.items()
        if name in _TEXTS and isinstance(text, str)
    )
    return texts + sum(
        _text_bytes(each, depth - 1) for each in value.values() if isinstance(each, dict | list)
    )


class ReceivedAnswer(NamedTuple):
    """An answer as far as it came: its usage, and the tokens that were received.

    ``status``: the provider's; 0 if it was asked and gave none, None if it was not asked.
    """

    status: int | None
    usage: JsonObject
    is_usage_final: bool = False
    tokens: float = 0.0
    # A stream that broke off, or ended without its usage: what was received is all there is
    is_cut_stream: bool = False


def estimate_answer(answer: ReceivedAnswer, size: RequestSize, price: Price) -> float:
    """Return the US dollars of an answer whose final usage never came: of what was
    received, else of what was expected.
    """
    known_input = input_tokens_of(answer.usage)
    input_tokens = size.input_tokens if known_input is None else known_input
    if answer.is_cut_stream and answer.tokens:
        return price_tokens(price, input_tokens, answer.tokens)
    return price_tokens(price, input_tokens, max(size.output_tokens, answer.tokens))
