"""Providers of third parties, found by Python's entry points
(docs/spec/tools-host.md "Providers").
"""

from importlib.metadata import EntryPoint, entry_points

from claw_tools.provider import ENTRY_POINTS, ToolProvider


class ProviderError(ValueError):
    """A provider that can't be loaded. One sentence, with the package and the remedy."""


def load_providers() -> list[ToolProvider]:
    """Return the providers of all installed packages, by the names of their entry points.

    Raise ``ProviderError``.
    """
    return [
        _load(each) for each in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name)
    ]


def _load(entry: EntryPoint) -> ToolProvider:
    package = entry.dist.name if entry.dist is not None else "an unknown package"
    try:
        provider: ToolProvider = entry.load()()
        missing = [
            name for name in ("namespace", "list_tools", "call_tool") if not hasattr(provider, name)
        ]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others
        why = f"{type(error).__name__}: {error}"[:300]
        raise ProviderError(
            f"the tool provider {entry.name!r} of {package} can't be loaded: {why}"
        ) from None
    if missing:
        raise ProviderError(
            f"the tool provider {entry.name!r} of {package} has no {missing[0]!r}: see "
            "docs/tools-host.md"
        )
    return provider
