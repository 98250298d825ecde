"""Requests to the Bot API, and its flood control. It needs the extra, so it is imported only when it is used."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final

import msgspec
from telegram import Update
from telegram.error import TelegramError
from telegram.request import HTTPXRequest
from typing_extensions import override

from bub.framework.failure_line import failure_line

logger: Final = logging.getLogger("bub.telegram")

_DEFAULT_WAIT: Final = 5.0


class FloodError(TelegramError):
    """Telegram has had too many requests.

    Attributes:
        seconds: How long it wants to be left alone.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Telegram wants to be left alone for {seconds:g} s")
        self.seconds: Final = seconds


class BotRequest(HTTPXRequest):
    """Requests whose flood control is a `FloodError`; the library's own error warns about itself."""

    @override
    async def do_request(self, *args: Any, **options: Any) -> tuple[int, bytes]:  # Any: handed on as it is
        """The status and the body of the answer.

        Raises:
            FloodError: There were too many requests.
            NetworkError: There was no answer.
        """
        status, body = await super().do_request(*args, **options)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise FloodError(_wanted_wait(body))
        return status, body


class UpdatesRequest(BotRequest):
    """Requests for updates. One that the library cannot read becomes one without a content, which can be confirmed."""

    @staticmethod
    @override
    def parse_json_payload(payload: bytes) -> dict[str, Any]:  # Any: JSON
        """The answer to a request, with updates that can be read."""
        answer = BotRequest.parse_json_payload(payload)
        if isinstance(answer.get("result"), list):
            answer["result"] = [*map(_readable, answer["result"])]
        return answer


def _readable(update: Any) -> Any:  # Any: JSON
    """An update, without what it holds when that is not as the library expects it."""
    try:
        Update.de_json(update, None)
    except Exception as error:
        try:
            number = msgspec.convert(update, _Numbered).update_id
        except msgspec.ValidationError:
            return update  # nothing can confirm it
        logger.error("telegram.unreadable_update %s: %s", number, failure_line(error))
        return {"update_id": number}
    return update


class _Numbered(msgspec.Struct):
    update_id: int


class _Parameters(msgspec.Struct):
    retry_after: float = _DEFAULT_WAIT


class _Answer(msgspec.Struct):
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


def _wanted_wait(body: bytes) -> float:
    try:
        return max(msgspec.json.decode(body, type=_Answer).parameters.retry_after, 0.0)
    except msgspec.DecodeError:  # a server between here and there may answer with anything
        return _DEFAULT_WAIT
