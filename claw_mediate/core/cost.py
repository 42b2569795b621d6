"""The cost of requests in US dollars (docs/spec/mediation.md section 8).

It is computed from their usage, or estimated if that is not known:

    input      a token for 4 bytes of the request, or for 32 bytes of base64 (images, files);
                 at most 1,000,000
    output     as many tokens as the request allows, at most 128,000; 4,096 if it sets no limit;
                 this for each of its answers
    received   a token for 4 bytes of text, and at least one for each event of a stream that
                 brings text

Nobody else has the provider's tokenizer. So these are figures for a reservation, and for costs that
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
_BLOCK = 4096  # Bytes that count as base64 if a sample of them is
_SAMPLE = 64  # Bytes, and their distance from the start of the block
_MIN_PACKED = 1024  # Bytes; a shorter block counts as text
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-"
_WITHOUT_OUTPUT = re.compile(r"/(?:embeddings|rerank|moderations)$")


class Cost(NamedTuple):
    """The cost of a request, in US dollars."""

    known: float | None
    # Charged on top of ``known``, for model calls whose cost is not known
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
    """Return the price of a model; None if the list has none.

    It is that of the longest name in the list with which the model's name begins. Names with the
    provider come before names without.
    """
    for name in (f"{provider}/{model}", model):
        matches = [listed for listed in prices if name.startswith(listed)]
        if matches:
            return prices[max(matches, key=len)]

    return None


def find_dearest_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the dearest price that a model could have, whichever provider will answer.

    If the list does not have the model, that is the dearest price of all.

    >>> prices = {
    ...     "a/m": Price(input=1, output=2),
    ...     "b/m": Price(input=1, output=3),
    ...     "x": Price(input=9, output=9),
    ... }
    >>> [find_dearest_price(prices, model).output for model in ("m-2", "a/m", "unknown")]
    [3.0, 2.0, 9.0]
    """
    possible: list[Price | None] = []

    # The name may begin with a provider's.
    prefix, _, rest = model.partition("/")
    if rest:
        possible.append(find_price(prices, prefix, rest))

    listed_providers = {name.partition("/")[0] for name in prices if "/" in name}
    providers = ("", *sorted(listed_providers))
    possible += [find_price(prices, provider, model) for provider in providers]

    found = [price for price in possible if price is not None] or [*prices.values()]
    return max(found, key=lambda price: (price.output, price.input), default=None)


def compute_cost(usage: JsonObject, price: Price | None) -> float | None:
    """Return US dollars: the provider's own figure, else one by the price list, else None."""
    reported = _amount(usage.get("cost"))
    if reported is not None or price is None:
        return reported

    tokens = _read_tokens(usage)
    if tokens is None:
        return None

    cached_price = price.input if price.cached_input is None else price.cached_input
    per_million = (
        tokens.fresh * price.input + tokens.cached * cached_price + tokens.output * price.output
    )
    return per_million / _MILLION


def price_tokens(price: Price, input_tokens: float, output_tokens: float) -> float:
    """Return the US dollars of so many tokens."""
    return (input_tokens * price.input + output_tokens * price.output) / _MILLION


def input_tokens_of(usage: JsonObject) -> float | None:
    """Return the tokens of the prompt that a usage object names; None if it names none."""
    tokens = _read_tokens(usage)
    return None if tokens is None else tokens.fresh + tokens.cached


class _Tokens(NamedTuple):
    """The tokens of a usage object."""

    fresh: float  # Of the input: those that the provider's cache did not have
    cached: float  # Of the input
    output: float


def _read_tokens(usage: JsonObject) -> _Tokens | None:
    return _openai_tokens(usage) or _anthropic_tokens(usage)


def _openai_tokens(usage: JsonObject) -> _Tokens | None:
    """Return the tokens of OpenAI's protocols, where the cached ones are a part of the input."""
    if "input_tokens_details" in usage:
        # Responses
        details = usage.get("input_tokens_details")
        all_input = _amount(usage.get("input_tokens"))
        output = _amount(usage.get("output_tokens"))
    else:
        details = usage.get("prompt_tokens_details")
        all_input = _amount(usage.get("prompt_tokens"))
        output = _amount(usage.get("completion_tokens"))
    if all_input is None:
        return None

    reported = _amount(details.get("cached_tokens")) if isinstance(details, dict) else None
    cached = min(reported or 0.0, all_input)
    return _Tokens(all_input - cached, cached, output or 0.0)


def _anthropic_tokens(usage: JsonObject) -> _Tokens | None:
    """Return the tokens of Anthropic's, where ``input_tokens`` are without those of the cache."""
    fresh = _amount(usage.get("input_tokens"))
    if fresh is None:
        return None

    written = _amount(usage.get("cache_creation_input_tokens"))
    cached = _amount(usage.get("cache_read_input_tokens"))
    output = _amount(usage.get("output_tokens"))
    return _Tokens(fresh + (written or 0.0), cached or 0.0, output or 0.0)


def _amount(value: object) -> float | None:
    """Return a plausible amount, or None: a provider's odd numbers must not give money back."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None

    return float(value) if 0 <= value < _MAX_AMOUNT else None


class _GenerationConfig(msgspec.Struct):
    maxOutputTokens: Any = None  # noqa: N815 - Gemini's name
    candidateCount: Any = None  # noqa: N815


class _OutputLimits(msgspec.Struct):
    """The members, of any dialect, that limit or multiply the output."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    n: Any = None
    best_of: Any = None
    prompt: msgspec.Raw = msgspec.Raw()
    generationConfig: Any = None  # noqa: N815
    requests: Any = None  # Of a batch of Anthropic's: each has limits of its own


_limits_decoder = msgspec.json.Decoder(_OutputLimits)
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def measure_request(body: bytes, path: str, declared_length: int = 0) -> RequestSize:
    """Return the expected tokens of a request.

    ``declared_length``: the bytes of a body that is not there yet.
    """
    input_tokens = min(count_tokens(body) or declared_length / BYTES_PER_TOKEN, _MAX_INPUT_TOKENS)
    if _WITHOUT_OUTPUT.search(normalize_path(path)):
        return RequestSize(input_tokens, 0.0, is_limited=True)

    try:
        limits = _limits_decoder.decode(outline_request(body).text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, JsonSpliceError):
        # A form, or no JSON object
        return RequestSize(input_tokens, DEFAULT_OUTPUT_TOKENS)

    if isinstance(limits.requests, list):
        output_tokens = sum(_expected_of_request(each) for each in limits.requests)
        return RequestSize(input_tokens, output_tokens, is_limited=True)

    config = limits.generationConfig if isinstance(limits.generationConfig, dict) else {}
    token_limits = (
        limits.max_tokens,
        limits.max_completion_tokens,
        limits.max_output_tokens,
        config.get("maxOutputTokens"),
    )
    allowed = [tokens for tokens in map(_positive, token_limits) if tokens is not None]
    per_answer = min(max(allowed, default=DEFAULT_OUTPUT_TOKENS), _MAX_OUTPUT_TOKENS)

    answer_counts = (limits.n, limits.best_of, config.get("candidateCount"))
    answers = max(min(_positive(number) or 1, _MAX_ANSWERS) for number in answer_counts)

    output_tokens = per_answer * answers * _count_prompts(limits.prompt)
    return RequestSize(input_tokens, output_tokens, is_limited=bool(allowed))


def _expected_of_request(request: object) -> int:
    """Return the output tokens to which a request of a batch limits itself, or the usual number."""
    params = request.get("params") if isinstance(request, dict) else None
    limit = _positive(params.get("max_tokens")) if isinstance(params, dict) else None
    return min(limit or DEFAULT_OUTPUT_TOKENS, _MAX_OUTPUT_TOKENS)


def _positive(number: object) -> int | None:
    return number if type(number) is int and number > 0 else None


def _count_prompts(prompt: msgspec.Raw) -> int:
    """Return the number of prompts of a legacy completion; each gets answers of its own."""
    try:
        prompts = _list_decoder.decode(prompt)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return 1

    # A list of numbers is one prompt, of tokens.
    texts_and_lists = sum(bytes(each).startswith((b'"', b"[")) for each in prompts)
    return max(1, min(texts_and_lists, _MAX_PROMPTS))


def count_tokens(data: bytes) -> float:
    """Return the tokens of a document, estimated by its bytes.

    A body may be long, so one sample of each 4 KiB says whether they are base64.

    >>> count_tokens(b"Once upon a time"), count_tokens(b"QUJD" * 8192)
    (4.0, 1024.0)
    """
    packed = 0
    for start in range(0, len(data), _BLOCK):
        size = min(_BLOCK, len(data) - start)
        if size < _MIN_PACKED:
            continue
        sample = data[start + _SAMPLE : start + 2 * _SAMPLE]
        is_base64 = not sample.translate(None, _BASE64)
        if is_base64:
            packed += size

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
"""Members of an event that hold text of the model."""


class _Event(msgspec.Struct):
    """The members of an event in which text may be.

    OpenAI's chat completions have it in ``choices``, all others in ``delta``.
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
    """Return the bytes of the model's text in a value, down to ``depth`` levels."""
    if not depth:
        return 0

    if isinstance(value, list):
        return sum(_text_bytes(each, depth - 1) for each in value)

    if not isinstance(value, dict):
        return 0

    size = 0
    for name, member in value.items():
        if isinstance(member, str):
            if name in _TEXTS:
                size += len(member.encode())
        elif isinstance(member, dict | list):
            size += _text_bytes(member, depth - 1)
    return size


class ReceivedAnswer(NamedTuple):
    """An answer of a provider, as far as it came."""

    # The provider's; 0 if it was asked and gave none, None if it was not asked
    status: int | None
    usage: JsonObject
    is_usage_final: bool = False
    tokens: float = 0.0  # Of the text that was received
    # True if it is a stream that broke off, or ended without its usage
    is_cut_stream: bool = False


def estimate_answer(answer: ReceivedAnswer, size: RequestSize, price: Price) -> float:
    """Return the US dollars of an answer whose final usage never came.

    They are those of what was received of a stream, else of what was expected of the request.
    """
    known_input = input_tokens_of(answer.usage)
    input_tokens = size.input_tokens if known_input is None else known_input

    if answer.is_cut_stream and answer.tokens:
        return price_tokens(price, input_tokens, answer.tokens)
    return price_tokens(price, input_tokens, max(size.output_tokens, answer.tokens))
