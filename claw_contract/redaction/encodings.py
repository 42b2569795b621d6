"""How a secret may be spelled where it stands in other text (``Redactor``)."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

_LEAST_BASE64 = 8
"""Characters of base64 that are no chance find."""


def encoded_forms(value: str) -> frozenset[bytes]:
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
