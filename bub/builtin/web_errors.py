"""A request that the web channel refuses."""

from __future__ import annotations

from collections.abc import Mapping

from bub.errors import BubError, ErrorKind


class RequestError(BubError, ValueError):
    """A request cannot be answered as it is.

    Args:
        status: The status of the response.
        code: What is wrong, in one word.
        message: What is wrong, in a sentence.
        headers: Headers of the response.

    Attributes:
        status: The status of the response.
        code: What is wrong, in one word.
        headers: Headers of the response.
    """

    kind: ErrorKind = "channel"

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers: dict[str, str] = dict(headers or {})
