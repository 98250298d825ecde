"""Prompts in both forms."""

from __future__ import annotations

import typing
from typing import Any

import pytest
import republic
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import BubError, ContentError
from bub.prompt import LegacyPrompt, UserContent, as_message, to_content, to_legacy_prompt

PNG = republic.image(b"\x89PNG", media_type="image/png")
VIDEO = republic.video("https://x/film.mp4?t=1")


class Marked(str):
    """Text that knows more."""


class TestToContent:
    @pytest.mark.parametrize("text", ["", "hello", "a\nb", "\ud800", Marked("hello")])
    def test_text_is_one_part_as_it_is(self, text: str) -> None:
        (part,) = to_content(text)
        assert part is text

    def test_parts_are_handed_on_in_a_list_of_its_own(self) -> None:
        parts: list[UserContent] = ["look", PNG, Marked("x")]
        got = to_content(parts)
        assert got == parts
        assert got is not parts
        assert all(one is other for one, other in zip(got, parts, strict=True))

    def test_blocks_and_parts_may_be_mixed(self) -> None:
        got = to_content(
            [
                {"type": "text", "text": "look"},
                PNG,
                "here",
                {"type": "image", "media_type": "image/gif", "url": "https://x/a.gif"},
                {"type": "audio", "media_type": "audio/ogg", "url": "gs://bucket/a"},
                {"type": "video", "media_type": "video/mp4", "url": "data:video/mp4;base64,aGk="},
            ]
        )
        assert got == [
            "look",
            PNG,
            "here",
            republic.Image("image/gif", url="https://x/a.gif"),
            republic.Audio("audio/ogg", url="gs://bucket/a"),
            republic.Video("video/mp4", data=b"hi"),
        ]

    @pytest.mark.parametrize(
        ("url", "part"),
        [
            ("https://x/a.png?size=1#top", republic.Image("image/png", url="https://x/a.png?size=1#top")),
            ("data:image/webp;base64,aGk=", republic.Image("image/webp", data=b"hi")),
            ("data:image/svg+xml,%3Csvg/%3E", republic.Image("image/svg+xml", data=b"<svg/>")),
        ],
    )
    def test_a_missing_media_type_is_found(self, url: str, part: object) -> None:
        for block in ({"type": "image", "url": url}, {"type": "image", "url": url, "media_type": None}):
            assert to_content([block]) == [part]

    def test_nothing_is_loaded(self, tmp_path: Any) -> None:
        secret = tmp_path / "secret.png"
        secret.write_bytes(b"secret")
        for url in (str(secret), "secret.png", "C:\\secret.png", "~/secret.png"):
            with pytest.raises(ContentError, match=r"expected a URL, got .* - url of prompt\[0\]. Load a file with"):
                to_content([{"type": "image", "media_type": "image/png", "url": url}])
        (part,) = to_content([{"type": "image", "media_type": "image/png", "url": secret.as_uri()}])
        assert part == republic.Image("image/png", url=secret.as_uri())

    @pytest.mark.parametrize(
        ("block", "text"),
        [
            (3, r"got int - prompt\[1\]"),
            (None, r"got NoneType - prompt\[1\]"),
            (b"bytes", r"got bytes - prompt\[1\]"),
            (republic.Text("x"), r"got Text - prompt\[1\]"),
            ({}, r"got None - type of prompt\[1\]"),
            ({"type": "document", "url": "https://x"}, r"expected one of text, image, audio, video, got 'document'"),
            ({"type": ["image"]}, r"type of prompt\[1\]"),
            ({"type": "text"}, r"expected text, got nothing - text of prompt\[1\]"),
            ({"type": "text", "text": 3}, r"expected text, got int - text of prompt\[1\]"),
            ({"type": "image"}, r"expected text, got nothing - url of prompt\[1\]"),
            ({"type": "image", "url": b"x"}, r"expected text, got bytes - url of prompt\[1\]"),
            ({"type": "image", "url": "https://x/a.png", "media_type": 3}, r"got int - media_type of prompt\[1\]"),
            ({"type": "image", "url": "https://x/a"}, r"expected a media type .* - media_type of prompt\[1\]"),
            ({"type": "image", "url": "data:image/png;base64,!"}, r"expected base64 data.* - url of prompt\[1\]"),
            ({"type": "image", "url": "data:image/png"}, r"expected a comma .* - url of prompt\[1\]"),
        ],
    )
    def test_a_wrong_part_is_named_by_its_index(self, block: Any, text: str) -> None:
        with pytest.raises(ContentError, match=text) as caught:
            to_content(["ok", block])
        assert isinstance(caught.value, BubError)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, ValueError)

    @pytest.mark.parametrize("prompt", [None, 3, b"bytes", {"type": "text", "text": "x"}, object(), PNG, {"x"}])
    def test_what_is_no_prompt_is_refused(self, prompt: Any) -> None:
        with pytest.raises(ContentError, match="expected text or a list of parts"):
            to_content(prompt)


class TestToLegacyPrompt:
    def test_no_part_is_empty_text(self) -> None:
        assert to_legacy_prompt([]) == ""

    def test_texts_are_joined_by_line_ends(self) -> None:
        assert to_legacy_prompt(["a", "b", ""]) == "a\nb\n"

    def test_one_text_stays_the_object_it_is(self) -> None:
        text = Marked("hello")
        assert to_legacy_prompt([text]) is text
        assert to_legacy_prompt(text) is text

    def test_with_media_every_part_is_a_block(self) -> None:
        assert to_legacy_prompt(["look", PNG, VIDEO]) == [
            {"type": "text", "text": "look"},
            {"type": "image", "media_type": "image/png", "url": "data:image/png;base64,iVBORw=="},
            {"type": "video", "media_type": "video/mp4", "url": "https://x/film.mp4?t=1"},
        ]

    @pytest.mark.parametrize("part", [3, None, {"type": "text", "text": "x"}, republic.Text("x"), b"x"])
    def test_what_is_no_part_is_named_by_its_index(self, part: Any) -> None:
        with pytest.raises(ContentError, match=r"expected text or media, got \w+ - content\[1\]"):
            to_legacy_prompt(["a", part])


def test_the_alias_resolves_to_the_real_classes() -> None:
    def takes(content: list[UserContent] | LegacyPrompt | None) -> None: ...

    hints = typing.get_type_hints(takes)
    real = str | republic.Image | republic.Audio | republic.Video
    assert hints["content"] == list[real] | str | list[dict[str, Any]] | None
    assert typing.get_type_hints(to_content)["return"] == list[real]


# ------------------------------------------------------------------------------------------ properties

texts = st.text(max_size=20)
media_types = st.text(max_size=12)
urls = st.builds(str.__add__, st.sampled_from(["https://", "http://", "gs://", "s3:", "file:///"]), texts)
media = st.one_of(
    *(
        st.builds(kind, media_types, data=st.binary(max_size=20)) | st.builds(kind, media_types, url=urls)
        for kind in (republic.Image, republic.Audio, republic.Video)
    )
)


@given(st.lists(texts | media, max_size=6).filter(lambda parts: not all(isinstance(part, str) for part in parts)))
def test_parts_with_media_survive(parts: list[UserContent]) -> None:
    assert to_content(to_legacy_prompt(parts)) == parts


@given(st.lists(texts, max_size=4))
def test_parts_without_media_become_one_text(parts: list[str]) -> None:
    assert to_content(to_legacy_prompt(parts)) == ["\n".join(parts)]


@given(texts | st.lists(texts | media, max_size=6).map(to_legacy_prompt))
def test_a_legacy_prompt_survives(prompt: LegacyPrompt) -> None:
    assert to_legacy_prompt(to_content(prompt)) == prompt


def test_a_message_that_somebody_else_made() -> None:
    image = republic.image("https://example.com/a.png", media_type="image/png")
    own: list[UserContent] = ["a", image]
    assert as_message("a", "messages[0]") == ["a"]
    assert as_message(own, "messages[0]") is own
    block: Any = [{"type": "text", "text": "a"}]
    assert as_message(block, "messages[0]") == ["a"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (5, "expected text or a list of parts, got int - messages[1]"),
        (["a", 5], "expected text, media or a content block, got int - messages[1][1]"),
        ([], "expected text or at least one part, got an empty list - messages[1]"),
    ],
)
def test_a_message_that_is_none(message: Any, text: str) -> None:
    with pytest.raises(ContentError) as raised:
        as_message(message, "messages[1]")
    assert str(raised.value) == text
