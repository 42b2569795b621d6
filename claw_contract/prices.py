"""prices.json: what tokens cost, where a provider's answer does not say it. Beside providers.json, and optional."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, RootModel

from claw_contract.base import Contract

Dollars = Annotated[float, Field(ge=0, lt=1e6, strict=False)]


class Price(Contract):
    """US dollars for a million tokens. ``cached_input`` is what input read from a cache costs; absent: as other input."""

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None


class Prices(RootModel[dict[str, Price]]):
    """By ``provider/model`` or ``model``; the longest name that the model's begins with counts."""
