"""The providers that send back only on request what they take back: reasoning, encrypted
(docs/spec/responses.md section 4).

A provider and model whose reasoning could not be sent back is asked for what can, from then on. One
that refuses to be asked is never asked again. Nothing of this outlives the process: it is learned
again with one reply.
"""

_MAX_MAKERS = 1024  # A runner may name any model


class ReplayableReasoning:
    """A memory of providers and models (``ModelResponse.maker``)."""

    def __init__(self) -> None:
        self._makers: dict[str, bool] = {}

    def is_asked_for(self, maker: str) -> bool:
        return self._makers.get(maker, False)

    def note_missing(self, maker: str) -> None:
        """Record that reasoning came that can't be sent back."""
        if len(self._makers) >= _MAX_MAKERS:
            self._makers.clear()
        if maker:
            self._makers.setdefault(maker, True)

    def note_refusal(self, maker: str) -> None:
        """Record that the provider does not take the request for it."""
        self._makers[maker] = False
