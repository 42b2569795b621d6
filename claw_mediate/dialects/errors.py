"""The failure that a response, or its stream, tells of."""


class FailedResponseError(Exception):
    """A response with status 200 that tells of a failure.

    It is treated as a response with this status and this error body.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the response tells of a failure with status {status}")
        self.status = status
        self.body = body
