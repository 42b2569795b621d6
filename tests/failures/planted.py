"""Secrets and addresses that must be in nothing that leaves, and how to look for them."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

PROVIDER_KEY = "sk-planted/provider+key-0001"
TOOL_TOKEN = "planted/tool+token-0002"
AGENT_SECRET = "planted/agent+secret-0003"
ALL = (PROVIDER_KEY, TOOL_TOKEN, AGENT_SECRET)


def forms(secret: str) -> list[str]:
    """A secret as it may stand in what peers write: as it is, as JSON escapes it, percent-encoded, in base64."""
    escaped = "".join(f"\\u{ord(mark):04x}" for mark in secret)
    packed = [base64.b64encode(f"{pad}{secret}x".encode()).decode() for pad in ("", "a", "ab")]
    return [secret, secret.replace("/", "\\/"), escaped, quote(secret, safe=""), *packed]


PLAIN = " ".join(ALL)
"""What a careless peer writes into its errors."""


def found(data: bytes) -> list[str]:
    """The planted secrets that can be read in the data, whatever form they are in."""
    texts = [data.decode(errors="replace")]
    texts += [text.replace("\\/", "/") for text in texts]
    for text in list(texts):
        try:
            texts.append(json.dumps(json.loads(text), ensure_ascii=False))
        except ValueError:
            continue
    return [secret for secret in ALL if any(secret in text for text in texts)]
