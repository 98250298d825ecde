"""Reading a message that a client posts."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import unquote

import msgspec

from bub.builtin.web_errors import RequestError
from bub.channels.admission import AdmitAction
from bub.envelope import MediaItem, MediaType

_LONGEST_NAME: Final = 256
_SCHEMES: Final = ("http://", "https://", "data:")


class PostedMedia(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something attached to a message: with a `url`, or with `data` in base64.

    Attributes:
        type: What it is.
        media_type: Its MIME type.
        url: Where it can be loaded from.
        data: Its bytes.
        name: The name of the file.
    """

    type: MediaType = "document"
    media_type: str = ""
    url: str | None = None
    data: bytes | None = None
    name: str | None = None


class PostedMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message as a client posts it.

    Attributes:
        content: The text.
        media: What is attached.
        action: What is to become of it while the session is busy; `follow_up` when nothing is said.
        sender: Who wrote it.
    """

    content: str = ""
    media: list[PostedMedia] = []
    action: AdmitAction = "follow_up"
    sender: str | None = None

    def items(self) -> list[MediaItem]:
        """What is attached, for an envelope."""
        return [
            MediaItem(type=one.type, media_type=one.media_type, url=one.url, data=one.data, name=one.name)
            for one in self.media
        ]


_decoder: Final = msgspec.json.Decoder(PostedMessage)


def read_message(body: bytes) -> PostedMessage:
    """The message in the body of a request.

    Raises:
        RequestError: It holds none.
    """
    try:
        posted = _decoder.decode(body)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise _invalid(_sentence(str(error))) from error
    except (msgspec.DecodeError, RecursionError) as error:
        if (half := _half_character(body)) is not None:
            raise _invalid(
                f"expected whole characters, got half of a surrogate pair, \\u{ord(half):04x} - body"
            ) from error
        raise RequestError(400, "not_json", f"expected a message as JSON, got none: {error} - body") from error
    for place, one in enumerate(posted.media):
        if (one.url is None) == (one.data is None):
            both = "neither" if one.url is None else "both"
            raise _invalid(f"expected url or data, got {both} - media[{place}]")
        if one.url is not None and not one.url.lower().startswith(_SCHEMES):
            raise _invalid(f"expected a URL that begins with {', '.join(_SCHEMES)}, got another - media[{place}].url")
    if not posted.content.strip() and not posted.media:
        raise _invalid("expected a text or media, got neither - body")
    return posted


def _half_character(body: bytes) -> str | None:
    """Half of a surrogate pair in JSON that is well-formed otherwise: an escape can write it, no encoding has it."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return error.object[error.start]
    except (ValueError, RecursionError):
        return None
    return None


def read_session(encoded: str) -> str:
    """The id of a session from a path.

    Args:
        encoded: How it stands there.

    Raises:
        RequestError: It is none.
    """
    text = unquote(encoded, errors="surrogateescape")
    if text in (".", ".."):
        raise _invalid(f"expected an id that an address can hold, got {text!r} - session")
    if not text or len(text) > _LONGEST_NAME or not text.isprintable():
        raise _invalid(f"expected 1 to {_LONGEST_NAME} printable characters, got {text[:40]!r} - session")
    if text != text.strip():
        raise _invalid(f"expected an id without a space at its beginning or end, got {text[:40]!r} - session")
    return text


def _invalid(message: str) -> RequestError:
    return RequestError(400, "invalid", message)


def _sentence(reason: str) -> str:
    """What msgspec says, as all errors are written."""
    text, _, where = reason.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".") or "body"
    text = text.replace("`", "")
    if text.startswith("Object contains unknown field "):
        return f"expected one of {', '.join(PostedMessage.__struct_fields__)}, got {text.split()[-1]} - {place}"
    return f"{text[:1].lower()}{text[1:]} - {place}"
