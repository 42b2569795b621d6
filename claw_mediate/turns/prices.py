"""The price list beside providers.json, read again when it changes. Without one, only what providers tell is known."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from claw_contract.base import JsonObject, error_line
from claw_contract.prices import Prices
from claw_mediate.core.pricing import compute_cost, find_price
from claw_mediate.file_cache import Identity, identity, read_at
from claw_mediate.telemetry.event_log import EventLog


class PriceList:
    """``<auth dir>/prices.json``."""

    def __init__(self, directory: Path, log: EventLog) -> None:
        self._file = directory / "prices.json"
        self._log = log
        self._known: Identity = None
        self._prices = Prices({})

    def cost(self, provider: str, model: str, usage: JsonObject) -> float | None:
        """US dollars for the usage of a request; None where nobody tells what it cost."""
        self._reload()
        return compute_cost(usage, find_price(self._prices.root, provider, model))

    def _reload(self) -> None:
        """A list that is broken is no list, with one event: a price that is wrong is worse than none."""
        if (now := identity(self._file)) == self._known:
            return
        self._known, self._prices = now, Prices({})
        if now is None:
            return
        try:
            self._prices = Prices.model_validate_json(read_at(self._file))
        except (OSError, ValidationError) as error:
            reason = error.strerror or "unreadable" if isinstance(error, OSError) else error_line(error)
            self._log.event("error", error="prices_not_read", reason=reason)
