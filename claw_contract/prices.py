"""prices.json: the cost of tokens, for providers that do not report it.

The file is optional, and is in the directory of providers.json.
"""

from typing import Annotated

from pydantic import Field, RootModel

from claw_contract.base import Contract

Dollars = Annotated[float, Field(ge=0, lt=1e6, strict=False)]


class Price(Contract):
    """US dollars for a million tokens.

    ``cached_input``: input read from a cache; by default the price of other input.
    """

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None


class Prices(RootModel[dict[str, Price]]):
    """Prices by ``provider/model`` or ``model``.

    The longest name that is a prefix of the model's name counts.
    """
