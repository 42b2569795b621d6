"""What the service says: a status and the exact bytes of a JSON body, so that a recorded answer can be sent again."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import msgspec

_encoder = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class Answer:
    status_code: int
    body: bytes


def answer(status_code: int, content: object) -> Answer:
    return Answer(status_code, _encoder.encode(content))


def refuse(status_code: int, code: str, message: str) -> Answer:
    return answer(status_code, {"error": {"code": code, "message": message}})


def dollars(cents: int) -> Decimal:
    """Cents as a JSON number with two places: 50000.00."""
    return Decimal(cents).scaleb(-2).quantize(Decimal("0.01"))
