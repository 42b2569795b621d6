"""The credentials that an agent writes into a request itself.

If there is one, an error about a key may be about that one, and not about ours.

Google reads a key in the query. A gateway reads more: LiteLLM takes ``api_key``, ``api_base`` and
``extra_headers`` in the body, others take headers of their own. It passes the provider's error on,
with the code of a bad key or an empty account.

At a server that may pass others' errors on, only a request that is known to name nothing of the
kind is believed. So its members are a list of those that runners send, and not of those that some
gateway reads. A member that is missing here costs little: the provider is asked about the key
(``key_answers``), and the request is not sent again with the next one.

Sources: docs.litellm.ai/docs/proxy/clientside_auth, portkey.ai/docs,
developers.cloudflare.com/ai-gateway, docs.helicone.ai, and the references of the three protocols.
"""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from claw_mediate.core.http import Request
from claw_mediate.http.headers import CREDENTIALS

_MAX_READ_BYTES = 1 << 20  # A longer body is not read in the event loop, and so not believed
_IN_QUERY: Final = ("key", "token", "auth")
_IN_HEADERS: Final = re.compile(
    r"key|token|auth|secret|credential|password|cookie"
    r"|litellm|portkey|helicone|cf-aig|gateway|byok|provider|config|upstream|target|base-url|endpoint"
)
_HARMLESS_HEADERS: Final = frozenset({"idempotency-key", "x-idempotency-key"})
_MEMBERS: Final = frozenset(
    {
        # Chat completions, and what servers other than OpenAI's take there
        *("audio", "chat_template_kwargs", "enable_thinking", "frequency_penalty"),
        *("function_call", "functions", "include_reasoning", "keep_alive", "logit_bias"),
        *("logprobs", "max_completion_tokens", "max_tokens", "messages", "metadata", "min_p"),
        *("modalities", "model", "n", "options", "parallel_tool_calls", "prediction"),
        *("presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning"),
        *("reasoning_effort", "repetition_penalty", "response_format", "safety_identifier"),
        *("seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature"),
        *("think", "thinking", "tool_choice", "tool_stream", "tools", "top_k", "top_logprobs"),
        *("top_p", "transforms", "usage", "user", "verbosity", "web_search_options"),
        # Messages
        *("cache_control", "container", "context_management", "output_config", "output_format"),
        *("speed", "stop_sequences", "system"),
        # Responses
        *("background", "client_metadata", "conversation", "include", "input", "instructions"),
        *("max_output_tokens", "max_tool_calls", "previous_response_id", "prompt"),
        *("text", "truncation"),
    }
)
_TOOL_MEMBERS: Final = frozenset({"authorization", "headers", "server_url", "connector_id"})
"""Members of a tool that the provider calls elsewhere, with a credential of the agent's."""


class _Body(msgspec.Struct):
    tools: list[dict[str, msgspec.Raw]] | None = None


_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_body_decoder = msgspec.json.Decoder(_Body)


def may_hold_credential(request: Request, *, for_gateway: bool) -> bool:
    """Return True if the server could take another credential than ours from an agent's request.

    ``for_gateway``: True if that server may pass the errors of others on.
    """
    if has_credential_in_query(request.path):
        return True
    if not for_gateway:
        return False
    return has_credential_in_headers(request.headers) or not is_ordinary_body(request.body)


def has_credential_in_query(path: str) -> bool:
    """Return True if a path's query may name a credential.

    >>> has_credential_in_query("/v1/messages?beta=true")
    False
    >>> has_credential_in_query("/chat/completions?%6bey=AIza")
    True
    """
    query = path.partition("?")[2]
    if not query:
        return False

    fields = parse_qsl(query, keep_blank_values=True, max_num_fields=None)
    names = [name.lower() for name, _ in fields]
    return any(word in name for name in names for word in _IN_QUERY)


def has_credential_in_headers(headers: Sequence[tuple[str, str]]) -> bool:
    """Return True if a header for the provider may hold a credential, or say which one to use.

    >>> has_credential_in_headers([("User-Agent", "x")])
    False
    >>> has_credential_in_headers([("X_Portkey_Api_Key", "y")])
    True
    """
    names = {name.lower().replace("_", "-") for name, _ in headers}
    doubtful = names - CREDENTIALS - _HARMLESS_HEADERS
    return any(_IN_HEADERS.search(name) for name in doubtful)


def is_ordinary_body(body: bytes) -> bool:
    """Return True if a body is a short JSON object of members that can't hold a credential.

    >>> is_ordinary_body(b'{"model": "a", "messages": []}')
    True
    >>> is_ordinary_body(b'{"model": "a", "api_key": "b"}')
    False
    """
    if len(body) > _MAX_READ_BYTES:
        return False
    try:
        members: dict[str, Any] = _members_decoder.decode(body)
        tools = _body_decoder.decode(body).tools
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False

    has_only_known = members.keys() <= _MEMBERS
    return has_only_known and all(_TOOL_MEMBERS.isdisjoint(tool) for tool in tools or ())
