"""Where the value of a variable comes from: the process's environment over ``.env`` (spec/compile.md "Interpolation")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Variables:
    """``lookup`` gives a variable's value, or None. It has no repr: its values are secrets."""

    environ: Mapping[str, str]
    dotenv: Mapping[str, str]

    def lookup(self, name: str) -> str | None:
        return self.environ.get(name, self.dotenv.get(name))
