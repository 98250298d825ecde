"""Spans of time, as a query of a tape asks for them: text of one width in UTC, so that it compares as moments do."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Final, TypeAlias

from bub.errors import TapeError
from bub.foreign import is_list

Moment: TypeAlias = str | date | datetime | None
"""One end of a span of time: ISO 8601 text, a day, a moment, or None for an open end. What names no zone is UTC."""

_MOMENT: Final = "ISO 8601 text, a date, a datetime or None"


def wrong_field(expected: str, got: object, field: str) -> TapeError:
    """The error of a query whose field is not what it should be."""
    return TapeError(f"expected {expected}, got {got!r} - TapeQuery.{field}")


def span_of(value: object) -> tuple[str | None, str | None]:
    """The two ends of a span.

    Raises:
        TapeError: It is no pair of moments, or ends before it starts.
    """
    if not is_list(value) or len(value) != 2:
        raise wrong_field("a pair (first, last)", value, "dates")
    first, last = value
    since, until = moment_text(first, 0), moment_text(last, 1)
    if since is not None and until is not None and since > until:
        raise wrong_field("a span that ends after it starts", (since, until), "dates")
    return since, until


def moment_text(value: object, end: int) -> str | None:
    """One end of a span as text; a day is its first or its last microsecond.

    Args:
        value: The moment; None for an open end.
        end: 0 for the first end, 1 for the last.

    Raises:
        TapeError: It is no moment.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = _parsed(value, end)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.max if end else time.min)
    if not isinstance(value, datetime):
        raise wrong_field(_MOMENT, value, f"dates[{end}]")
    try:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # a moment of the year 1 or 9999 that is in another year in UTC
        raise wrong_field("a moment of the years 1 to 9999 in UTC", value, f"dates[{end}]") from None
    return moment.isoformat(timespec="microseconds")


def _parsed(text: str, end: int) -> date:
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    raise wrong_field(_MOMENT, text, f"dates[{end}]")
