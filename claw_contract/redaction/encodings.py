"""The encodings in which a secret may appear inside other text."""

import base64
import json
from urllib.parse import quote

_MIN_BASE64 = 8  # The shortest base64 text that is unlikely to appear by chance


def encoded_forms(value: str) -> frozenset[bytes]:
    """Return the value itself, and its forms in JSON, URLs and base64."""
    texts = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    texts |= {text.replace("/", "\\/") for text in texts}
    texts |= {text.translate(_HTML_SAFE) for text in texts}
    texts |= {json.dumps(text)[1:-1] for text in texts}
    forms = {text.encode(errors="surrogatepass") for text in texts}
    raw = value.encode(errors="surrogatepass")
    forms |= {quote(raw, safe=safe).encode() for safe in ("", "/", "!'()*")}
    return frozenset(forms | {form for form in _in_base64(raw) if len(form) >= _MIN_BASE64})


_HTML_SAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "&<>"}
"""Escapes of JSON writers whose output may be part of an HTML page."""


def _in_base64(raw: bytes) -> set[bytes]:
    """Return the base64 that is the same wherever the value is in a longer text, for each of the three alignments."""
    encoded = set()
    for skipped in range(3):
        whole = raw[skipped : len(raw) - (len(raw) - skipped) % 3]
        encoded |= {base64.b64encode(whole), base64.urlsafe_b64encode(whole)}
    return encoded
