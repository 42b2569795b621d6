"""The providers and models that are asked in another way than the rest.

Nothing of this outlives the process: it is learned again with one response.
"""

_MAX_MAKERS = 1024  # A runner may name any model


class ReplayableReasoning:
    """A memory of those (``ModelResponse.maker``) that encrypt reasoning only on request.

    Only in that form do they take it back (docs/spec/responses.md section 4). Once a model returned
    reasoning that cannot be replayed, later requests ask it for encrypted reasoning. One that
    refuses such a request is never asked for it again.
    """

    def __init__(self) -> None:
        self._makers: dict[str, bool] = {}
        """True for each that is asked for encrypted reasoning, False for each that refused."""

    def is_asked_for(self, maker: str) -> bool:
        return self._makers.get(maker, False)

    def note_missing(self, maker: str) -> None:
        """Record that reasoning came that can't be sent back."""
        if len(self._makers) >= _MAX_MAKERS:
            self._makers.clear()
        if maker:
            self._makers.setdefault(maker, True)

    def note_refusal(self, maker: str) -> None:
        """Record that the provider refuses a request for encrypted reasoning."""
        self._makers[maker] = False


class StreamUsageRefusals:
    """A memory of those that refuse a request for the usage of a stream."""

    def __init__(self) -> None:
        self._makers: set[str] = set()

    def __contains__(self, maker: str) -> bool:
        return maker in self._makers

    def note(self, maker: str) -> None:
        """Record that the provider refuses such a request."""
        if len(self._makers) >= _MAX_MAKERS:
            self._makers.clear()
        self._makers.add(maker)
