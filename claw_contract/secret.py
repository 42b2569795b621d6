"""A type for secrets that prints as dots.

``str``, ``repr``, ``format`` and JSON give dots. Only ``reveal()`` gives the value, so that one
search finds every use of it. Comparison takes constant time.
"""

import hmac
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, StringConstraints
from pydantic_core import core_schema

from claw_contract.base import Contract

DOTS = "••••••"
REVEAL = {"reveal": True}
"""A serialization context that writes values instead of dots, for 0600 files.

Use it as ``model_dump_json(context=REVEAL)``.
"""


class Secret:
    """A value that must not be seen. An empty value is rejected: it is a missing credential."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not value:
            raise ValueError("a secret must not be empty")
        self._value = value

    def reveal(self) -> str:
        """Return the value, for the one place that must send or store it."""
        return self._value

    def __repr__(self) -> str:
        return DOTS

    def __format__(self, _spec: str) -> str:
        return DOTS

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        return isinstance(other, Secret) and hmac.compare_digest(
            self._value.encode(), other._value.encode()
        )

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        from_text = core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(min_length=1)
        )
        as_is = core_schema.is_instance_schema(cls)
        to_text = core_schema.plain_serializer_function_ser_schema(_serialize, info_arg=True)

        return core_schema.json_or_python_schema(
            json_schema=from_text,
            python_schema=core_schema.union_schema([as_is, from_text]),
            serialization=to_text,
        )


def _serialize(secret: Secret, info: core_schema.SerializationInfo) -> str:
    shows_values = bool((info.context or {}).get("reveal"))
    return secret.reveal() if shows_values else DOTS


class SecretRef(Contract):
    """A reference to a file of the secrets directory, so that a manifest contains no credential."""

    secret: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
