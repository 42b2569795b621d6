"""Secrets are a type that prints as dots (CONTRIBUTING.md, "Security is a feature").

Rules. ``str``, ``repr``, ``format`` and JSON give dots; only ``reveal()`` gives the value, so that every place that
needs the value is found with one search. Comparison takes constant time.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import GetCoreSchemaHandler, StringConstraints
from pydantic_core import core_schema

from claw_contract.base import Contract

DOTS = "••••••"
REVEAL = {"reveal": True}
"""Serialization context that writes values instead of dots: ``model_dump_json(context=REVEAL)``, for 0600 files."""


class Secret:
    """A value that must not be seen. Empty values are refused: an empty credential is a missing one."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not value:
            raise ValueError("a secret must not be empty")
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one place that must send or store it."""
        return self._value

    def __repr__(self) -> str:
        return DOTS

    def __format__(self, _spec: str) -> str:
        return DOTS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        from_text = core_schema.no_info_after_validator_function(cls, core_schema.str_schema(min_length=1))
        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), from_text]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda secret, info: secret.reveal() if (info.context or {}).get("reveal") else DOTS, info_arg=True
            ),
        )


class SecretRef(Contract):
    """A reference to a file of the secrets directory, so that a manifest itself holds no credential."""

    secret: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]


class Redactor:
    """Replaces known secrets, by value, in what leaves the process (history, log, errors, tool results).

    A secret is also known as JSON spells it (and JSON within JSON), percent-encoded, and in base64. A peer that means to
    hide one can always do so; what is caught is what echoes and error texts hold.
    """

    def __init__(self, secrets: Iterable[Secret | str]) -> None:
        self._values = _values(secrets)
        self._forms = _forms(self._values)

    def including(self, secrets: Iterable[Secret | str]) -> Redactor:
        """The same, with these too."""
        more = _values(secrets)
        return self if more <= self._values else Redactor(self._values | more)

    @property
    def longest(self) -> int:
        """Bytes of the longest form of a secret."""
        return max(map(len, self._forms), default=0)

    def text(self, text: str) -> str:
        return self.data(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Any bytes, without the secrets."""
        parts: list[bytes] = []
        position = 0
        for start, end in self._spans(data):
            parts += [data[position:start], DOTS.encode()]
            position = end
        return b"".join([*parts, data[position:]])

    def document(self, document: bytes) -> bytes:
        """JSON without the secrets, and still JSON: a number that holds one becomes text. Other bytes: as ``data``."""
        if not self._spans(document) and not (self._forms and _HIDING.search(document)):
            return document
        try:
            json.loads(document)
        except (ValueError, RecursionError):
            return self.data(document)
        return _TOKEN.sub(lambda token: self._token(token[0]), document)

    def cut(self, data: bytes, limit: int) -> bytes:
        """The first ``limit`` bytes, and never the first half of a secret."""
        for start, end in self._spans(data):
            if start < limit < end:
                return data[:start]
        return data[:limit]

    def _token(self, token: bytes) -> bytes:
        if token[:1] != b'"':
            return json.dumps(DOTS, ensure_ascii=False).encode() if self._spans(token) else token
        if b"\\" not in token and not self._spans(token):
            return token
        text = json.loads(token)
        # JSON within JSON, as a call's arguments are.
        inside = text[:1] in ("{", "[") and self.document(text.encode(errors="surrogatepass"))
        clear = self.text(inside.decode(errors="surrogatepass") if inside else text)
        return token if clear == text else json.dumps(clear, ensure_ascii=False).encode(errors="replace")

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets stand; those that overlap are one, so that none leaves its tail behind."""
        found: list[tuple[int, int]] = []
        for form in self._forms:
            start = data.find(form)
            while start >= 0:
                found.append((start, start + len(form)))
                start = data.find(form, start + 1)
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


MIN_REDACTED = 6
"""Shorter values are not replaced: they would blank out ordinary words and protect nothing."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:{}\[\]"]++', re.DOTALL)
"""A string or a scalar of a JSON document. Possessive: hostile text must not make it backtrack."""


_HIDING = re.compile(rb"\\u00[2-7]")
"""An ASCII character that need not be escaped, and is: what stands there can only be read by decoding it."""
_LEAST_BASE64 = 8
"""Characters of base64 that are no chance find."""


def _values(secrets: Iterable[Secret | str]) -> frozenset[str]:
    values = (secret.reveal() if isinstance(secret, Secret) else secret for secret in secrets)
    return frozenset(value for value in values if len(value) >= MIN_REDACTED)


@lru_cache(maxsize=256)
def _forms(values: frozenset[str]) -> tuple[bytes, ...]:
    return tuple(sorted({form for value in values for form in _spellings(value)}))


@lru_cache(maxsize=1024)
def _spellings(value: str) -> frozenset[bytes]:
    """The value itself, and as JSON writers, URLs and base64 spell it."""
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    texts |= {text.replace("/", "\\/") for text in texts}
    texts |= {text.translate(_HTML_SAFE) for text in texts}
    texts |= {json.dumps(text)[1:-1] for text in texts}
    forms = {text.encode(errors="surrogatepass") for text in texts}
    raw = value.encode(errors="surrogatepass")
    forms |= {quote(raw, safe=safe).encode() for safe in ("", "/", "!'()*")}
    return frozenset(forms | {form for form in _in_base64(raw) if len(form) >= _LEAST_BASE64})


_HTML_SAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "&<>"}
"""How writers of JSON that may stand in a page spell these."""


def _in_base64(raw: bytes) -> set[bytes]:
    """What is the same of it wherever it stands in a longer text: by the three ways in which it can fall into groups."""
    packed = set()
    for skipped in range(3):
        whole = raw[skipped : len(raw) - (len(raw) - skipped) % 3]
        packed |= {base64.b64encode(whole), base64.urlsafe_b64encode(whole)}
    return packed
