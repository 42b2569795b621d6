"""Every endpoint of the providers' API references, and what happens to a request there: computed
from the tables of the proxy.

``endpoints.txt`` has the endpoints. ``table.py`` prints them into docs/attacks.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast

from claw_contract.opened_paths import find_credentials
from claw_mediate.core.known_paths import ApiBase, Family, KnownPath, PathMatch, find_known_path

FILE = Path(__file__).with_name("endpoints.txt")
CLOSED, MINTS = "403 `path_not_allowed`", "403 `path_not_allowed`; no setting opens it"
_BY_MODEL = {
    "nowhere": "allowed",
    "optional": "allowed; policy and budget, where it names a model",
    "required": "allowed; policy and budget by its `model`",
    "hidden": "allowed and counted; 403 under a model policy, because the model can't be seen",
}


class Endpoint(NamedTuple):
    provider: Family
    method: str
    path: str  # Below the provider's base path; behind "//" from the host's root

    @property
    def sent(self) -> str:
        """Return a path that a request may have, below a base path ``/v1``."""
        filled = self.path.replace("{}", "some-1")
        return filled.removeprefix("/") if filled.startswith("//") else f"/v1{filled}"


def read_endpoints() -> Iterator[Endpoint]:
    provider = ""
    for line in FILE.read_text(encoding="utf-8").partition("\n\n")[2].splitlines():
        if line.startswith("# "):
            provider = line.removeprefix("# ")
            continue
        *methods, path = line.split()
        yield from (Endpoint(cast("Family", provider), method, path) for method in methods)


def find(endpoint: Endpoint) -> PathMatch | None:
    return find_known_path(ApiBase(endpoint.provider, ("/v1",)), endpoint.method, endpoint.sent)


def verdict(endpoint: Endpoint) -> str:
    """Return in a few words what happens to a request for an endpoint."""
    match = find(endpoint)
    if match is None:
        return CLOSED if find_credentials(endpoint.sent) is None else MINTS
    row = match.row
    if row.endpoint is not None:
        return "mediated" if row.is_counted else "mediated; a count of tokens costs nothing"
    parts = [_BY_MODEL[row.model], *_ownership(row, match)]
    if parts[0] == "allowed" and len(parts) > 1:
        parts = parts[1:]
    return "; ".join(parts)


def _ownership(row: KnownPath, match: PathMatch) -> Iterator[str]:
    if "stored_completion" in match.ids or row.lists == "stored_completion":
        yield "404: stored completions can't be read"
        return
    for kind in match.ids:
        yield f"the agent's own {kind.replace('_', ' ')}, else 404"
    if row.lists:
        yield "the agent's own only, or 404"
    if row.creates:
        yield f"the {row.creates.replace('_', ' ')} is the agent's"


def write_tables() -> str:
    """Return a table for each provider. Closed endpoints below one segment are one row."""
    parts: list[str] = []
    for provider, endpoints in groupby(read_endpoints(), lambda each: each.provider):
        parts.append(f"\n### {provider}\n\n| endpoint | what happens |\n|---|---|\n")
        closed: dict[tuple[str, str], list[Endpoint]] = {}
        for (path, said), same in groupby(endpoints, lambda each: (each.path, verdict(each))):
            found = [*same]
            if said in (CLOSED, MINTS):
                closed.setdefault((_beginning(path), said), []).extend(found)
            else:
                parts.append(
                    f"| `{' '.join(each.method for each in found)} {_shown(path)}` | {said} |\n"
                )
        for (beginning, said), found in closed.items():
            is_one = len({each.path for each in found}) == 1 and _shown(found[0].path) == beginning
            shown = (
                f"`{' '.join(each.method for each in found)} {beginning}`"
                if is_one
                else f"`{beginning}…` ({len(found)})"
            )
            parts.append(f"| {shown} | {said} |\n")
    return "".join(parts)


def _shown(path: str) -> str:
    return path.removeprefix("/") if path.startswith("//") else f"…{path}"


def _beginning(path: str) -> str:
    """Return the first segments of a path, by which closed endpoints are put together."""
    segments = _shown(path).split("/")
    kept = 3 if path.startswith("//") else 2
    return "/".join(segments[:kept])
