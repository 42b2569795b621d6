"""The errors of a call (docs/spec/tools-host.md "Errors")."""

from enum import StrEnum


class ErrorCode(StrEnum):
    """The variants of ``ToolError``, as a model reads them."""

    NOT_FOUND = "not_found"  # No tool has this name, or none that the caller may see
    INVALID_ARGS = "invalid_args"  # The arguments do not fit the schema, or contradict each other
    EXECUTION_FAILED = "execution_failed"  # The tool ran, and could not do it
    PERMISSION_DENIED = "permission_denied"  # A rule forbids it
    FILE_NOT_FOUND = "file_not_found"
    INVALID_PATH = "invalid_path"  # The path leads out of the workspace, or to what is no file
    TIMEOUT = "timeout"
    BUSY = "busy"  # Too many calls at once: the same call may succeed later
    MEMORY_FULL = "memory_full"


class ToolError(Exception):
    """A call that failed.

    ``message`` is for the model: it holds no path outside the workspace, no address and no secret.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        """Keep the code, and one or two sentences with the remedy."""
        super().__init__(message)
        self.code = code
        self.message = message
