"""The chat page of the web channel in Chromium, over a real gateway."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings
from bub.channels.channel import Channel, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.framework.stopping import stop_turns
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, StreamFailed, TextDelta, ToolCallRequested, ToolReturned
from tests.e2e.gateways import Gateways

pytestmark = pytest.mark.anyio

TOKEN = "the-right-token"
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;"
WEATHER = "It is sunny in Paris: 24 degrees, a light wind from the west, and no rain before the evening."


class Plugin:
    """The channel, and a model that does what it is told.

    Attributes:
        go_on: Lets a story go on.
    """

    def __init__(self, framework: BubFramework, settings: WebSettings) -> None:
        self.go_on = anyio.Event()
        self.go_on_again = anyio.Event()
        self._framework = framework
        self._settings = settings
        self.channel: WebChannel | None = None
        self.manager: ChannelManager | None = None

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        self.channel = WebChannel(
            message_handler, self._settings, events=self._framework.events, stop=partial(stop_turns, self._framework)
        )
        return [self.channel]

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        return MemorySteeringInbox()

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt) -> AsyncIterator[StreamEvent]:
        match prompt:
            case "weather":
                yield TextDelta("Let me look.")
                yield ToolCallRequested("c1", "weather", {"city": "Paris", "days": [1, 2]})
                yield ToolReturned("c1", "weather", {"sky": "clear", "degrees": 24})
                yield ToolCallRequested("c2", "weather", {"city": "Atlantis"})
                yield ToolReturned("c2", "weather", "no such city", is_error=True)
                for word in WEATHER.split(" "):
                    yield TextDelta(word + " ")
            case "story":
                yield TextDelta("Once upon")
                await self.go_on.wait()
                yield TextDelta(" a time")
            case "make it short":
                await self.go_on_again.wait()
                yield TextDelta(str(prompt))
            case "breaks":
                yield TextDelta("The beginning")
                yield StreamFailed("model", MARKUP)
            case "fail":
                raise LookupError(MARKUP)
            case "nothing":
                return
            case _:
                yield TextDelta(str(prompt))

    @hookimpl.render_outbound
    def render_outbound(self, message: Envelope, model_output: str) -> list[Envelope] | None:
        texts = {
            "two words": [model_output, "two"],
            "one two three": ["one two", "\n three "],
            "changed": ["Changed!", "changed"],
        }.get(message.content)
        if texts is None:
            return None
        return [Envelope(content=text, channel="web", chat_id=message.chat_id) for text in texts]


class Site(Plugin):
    """A plugin whose gateway runs."""

    @property
    def address(self) -> str:
        assert self.channel is not None
        assert self.channel.address is not None
        return self.channel.address


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Uvicorn and Playwright run on asyncio alone."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser() -> AsyncGenerator[Browser, None]:
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(
            executable_path=os.environ["BUB_CHROMIUM"], args=["--no-sandbox", "--no-proxy-server"]
        )
        yield found
        await found.close()


async def opened(browser: Browser, address: str, **options: object) -> Page:
    """The page, which fails its test when its script or its policy reports an error."""
    page = await browser.new_page(**options)  # type: ignore[arg-type]  # as Playwright names them
    page.on("pageerror", lambda error: pytest.fail(f"the page raised {error}"))
    await page.goto(address)
    return page


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_label("Message").press("Enter")


@pytest.fixture
async def site() -> AsyncGenerator[Site, None]:
    async with running(WebSettings(port=0)) as found:
        yield found


def running(settings: WebSettings) -> _Running:
    return _Running(settings)


class _Running:
    """A site for the time of a block; a class, because a fixture and a test enter it in tasks of their own."""

    def __init__(self, settings: WebSettings) -> None:
        framework = BubFramework()
        self._site = Site(framework, settings)
        framework.register(self._site, name="site")
        self._running = framework.running()
        self._manager = ChannelManager(framework, stream_output=True, limits=GatewayLimits(drain=0.2))
        self._site.manager = self._manager

    async def __aenter__(self) -> Site:
        await self._running.__aenter__()
        await self._manager.__aenter__()
        return self._site

    async def __aexit__(self, *raised: object) -> None:
        await self._manager.__aexit__(None, None, None)
        await self._running.__aexit__(None, None, None)


async def test_an_answer_with_its_tool_calls_in_one_line_each(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#weather", viewport={"width": 720, "height": 560})
    await expect(page.get_by_role("status")).to_have_text("connected")
    await say(page, "weather")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_attribute("aria-busy", "false")
    lines = answer.locator("p")
    await expect(lines).to_have_text(
        [
            "Let me look.",
            '⚙ weather({"city":"Paris","days":[1,2]}) → {"sky":"clear","degrees":24}',
            '⚙ weather({"city":"Atlantis"}) ✗ no such city',
            WEATHER,
        ]
    )
    tops = [(await tool.bounding_box() or {})["height"] for tool in await answer.locator(".tool").all()]
    assert max(tops) < 30  # one line
    await expect(page.get_by_role("article", name="You")).to_have_text("weather")
    if (picture := os.environ.get("BUB_SCREENSHOT")) is not None:
        await page.screenshot(path=picture)
    await page.close()


async def test_an_answer_is_shown_while_it_is_made_and_can_be_steered(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#story")
    await say(page, "story")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("Once upon")
    await expect(answer).to_have_attribute("aria-busy", "true")
    await say(page, "make it short")
    await expect(page.get_by_role("article", name="You")).to_have_count(2)
    assert site.manager is not None
    while not site.manager.snapshot("story").steering_count:  # it has arrived
        await anyio.sleep(0.01)
    site.go_on.set()
    await expect(answer.first).to_have_text("Once upon a time")
    await expect(page.get_by_text("Your message waits for an answer of its own.")).to_be_visible()
    site.go_on_again.set()
    await expect(answer.last).to_have_text("make it short")  # no turn has taken it
    assert [text.strip() for text in await page.locator("#log > *").all_inner_texts()] == [
        "story",
        "Once upon a time",
        "make it short",
        "Your message waits for an answer of its own.",
        "make it short",
    ]
    await page.reload()
    await expect(answer.last).to_have_text("make it short")
    await expect(page.get_by_role("article")).to_have_count(4)
    await page.close()


async def test_an_answer_is_stopped(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#stopped")
    stop = page.get_by_role("button", name="Stop")
    await expect(stop).to_be_hidden()
    await say(page, "story")
    await expect(page.get_by_role("article", name="Answer")).to_have_text("Once upon")
    await stop.click()
    await expect(page.get_by_text("The turn was cancelled.")).to_be_visible()
    await expect(stop).to_be_hidden()
    assert site.manager is not None
    assert not site.manager.busy_sessions
    await say(page, "still here")
    await expect(page.get_by_role("article", name="Answer").last).to_have_text("still here")
    await expect(page.get_by_text("dropped")).to_have_count(0)
    await expect(page.get_by_role("alert")).to_be_hidden()
    await page.close()


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("two words", ["two words", "two"]),
        ("one two three", ["one two three"]),
        ("changed", ["Changed!", "changed"]),
        ("nothing", []),
    ],
)
async def test_the_replies_of_a_turn_are_each_shown_once(
    site: Site, browser: Browser, message: str, shown: list[str]
) -> None:
    """S19, in a page: what was shown while it was made is not shown again, and no other reply is lost."""
    page = await opened(browser, f"{site.address}/#replies")
    for _ in range(2):
        await say(page, message)
        await say(page, "last")
        await expect(page.get_by_role("article", name="Answer").last).to_have_text("last")
        texts = await page.get_by_role("article", name="Answer").locator(".text").all_inner_texts()
        assert [text.strip() for text in texts] == [*shown, "last"]
        await expect(page.get_by_text("The answer is empty.")).to_have_count(int(not shown))
        await page.evaluate("log.replaceChildren()")
    await page.close()


async def test_an_answer_that_has_ended_meanwhile_is_not_stopped(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#late")
    stop = page.get_by_role("button", name="Stop")
    await page.route("**/events", lambda route: route.abort())  # its end does not reach the page
    await page.evaluate("SHOW.turn_started({ message_id: 'gone' })")
    await stop.click()
    await expect(stop).to_be_hidden()
    await expect(page.get_by_role("alert")).to_be_hidden()
    await page.close()


async def test_nothing_that_comes_from_outside_becomes_markup(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#safe")
    await say(page, MARKUP)
    await expect(page.get_by_role("article", name="You")).to_have_text(MARKUP)
    await expect(page.get_by_role("article", name="Answer")).to_have_text(MARKUP)
    await say(page, "breaks")
    await expect(page.get_by_text("The answer cannot be completed:")).to_contain_text(MARKUP)
    await say(page, "fail")
    await expect(page.get_by_text("The turn failed: LookupError:")).to_contain_text(MARKUP)
    await page.get_by_label("Session").fill(MARKUP)
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_role("article")).to_have_count(0)
    await say(page, "still here")
    await expect(page.get_by_role("article", name="Answer")).to_have_text("still here")
    assert await page.locator("#log img, #log script").count() == 0
    assert await page.title() == f"{MARKUP} \N{EN DASH} bub"
    await page.close()


async def test_the_page_asks_for_the_token(browser: Browser) -> None:
    async with running(WebSettings(port=0, token=TOKEN)) as site:
        page = await opened(browser, site.address)
        dialog = page.get_by_role("dialog", name="Token")
        for token in ("wrong", TOKEN):
            await expect(dialog).to_be_visible()
            await dialog.get_by_label("Token").fill(token)
            await dialog.get_by_role("button", name="Connect").click()
        await expect(page.get_by_role("status")).to_have_text("connected")
        await say(page, "hello")
        await expect(page.get_by_role("article", name="Answer")).to_have_text("hello")
        assert TOKEN not in page.url
        await page.close()


async def test_a_lost_connection_is_taken_up_again(browser: Browser) -> None:
    async with running(WebSettings(port=0)) as site:
        port = int(site.address.rpartition(":")[2])
        page = await opened(browser, f"{site.address}/#lost")
        await say(page, "one")
        await expect(page.get_by_role("article", name="Answer")).to_have_text("one")
    await expect(page.get_by_role("status")).to_have_text("connecting again")
    await say(page, "unheard")
    await expect(page.get_by_role("alert")).to_contain_text("The message was not sent")
    await expect(page.get_by_label("Message")).to_have_value("unheard")
    async with running(WebSettings(port=port)):
        await expect(page.get_by_role("status")).to_have_text("connected", timeout=20_000)
        await expect(page.get_by_text("Earlier events are not kept any more.")).to_be_visible()
        await page.get_by_label("Message").press("Enter")
        await expect(page.get_by_role("article", name="Answer").last).to_have_text("unheard")
    await page.close()


@pytest.mark.parametrize("is_stopped", [False, True], ids=["answered", "stopped"])
async def test_an_answer_that_a_restart_has_interrupted_is_shown_once(
    tmp_path: Path, browser: Browser, is_stopped: bool
) -> None:
    """The turn begins again: a page that was open and one that is new show one answer, and can stop it."""
    gateways = Gateways(tmp_path)
    answers: list[Locator] = []
    stops: list[Locator] = []

    async def open_page() -> Page:
        page = await opened(browser, f"{gateway.address}/#ann")
        answers.append(page.get_by_role("article", name="Answer"))
        stops.append(page.get_by_role("button", name="Stop"))
        return page

    with gateways.running() as gateway:
        old = await open_page()
        await say(old, "tell go")
        await expect(answers[0]).to_have_text("You said:")
        await expect(stops[0]).to_be_visible()
        gateway.signal(signal.SIGKILL)
        gateway.ended()
    await expect(old.get_by_role("status")).to_have_text("connecting again")
    with gateways.running(BUB_WEB_PORT=gateway.address.rpartition(":")[2]) as gateway:
        new = await open_page()
        await expect(old.get_by_role("status")).to_have_text("connected", timeout=20_000)
        for answer, stop in zip(answers, stops, strict=True):
            await expect(answer).to_have_text("You said:")
            await expect(answer).to_have_attribute("aria-busy", "true")
            await expect(stop).to_be_visible()
        if is_stopped:
            await stops[1].click()
        else:
            gateways.open("go")
        for page, answer, stop in zip((old, new), answers, stops, strict=True):
            await expect(stop).to_be_hidden()
            await expect(answer).to_have_text("You said:" if is_stopped else "You said: tell go")
            await expect(answer).to_have_attribute("aria-busy", "false")
            await expect(page.get_by_text("The turn was cancelled.")).to_have_count(int(is_stopped))
            await expect(page.get_by_role("article", name="You")).to_have_text("tell go")
        await say(old, "next")
        for page, answer in zip((old, new), answers, strict=True):
            await expect(answer).to_have_count(2)
            await expect(answer.last).to_have_text("You said: next")
            await expect(page.get_by_text("dropped")).to_have_count(0)
            await page.close()


async def test_an_answer_that_is_not_made_again_after_a_restart_is_over(site: Site, browser: Browser) -> None:
    page = await opened(browser, f"{site.address}/#over")
    await page.route("**/events", lambda route: route.abort())
    await page.evaluate("SHOW.turn_started({ message_id: 'gone' })")
    await page.evaluate("SHOW.text_delta({ message_id: 'gone', text: 'Half an' })")
    await page.evaluate("SHOW.turn_started({ message_id: 'waits' })")
    await page.evaluate("SHOW.gap({ missed: 3, running: ['gone', 'waits'] })")  # its own channel still makes it
    answer = page.get_by_role("article", name="Answer")
    await expect(answer.first).to_have_attribute("aria-busy", "true")
    await page.evaluate("SHOW.gap({ missed: null, running: [] })")
    await expect(answer).to_have_text("Half an")
    await expect(answer).to_have_attribute("aria-busy", "false")
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await page.close()


async def test_after_a_gap_the_page_knows_which_turns_are_in_progress(browser: Browser) -> None:
    """It was away, and neither the end of one turn nor the beginning of the next one is kept."""
    async with running(WebSettings(port=0, buffer_events=4)) as site:
        page = await opened(browser, f"{site.address}/#gap")
        answer = page.get_by_role("article", name="Answer")
        stop = page.get_by_role("button", name="Stop")
        missing = page.get_by_text("events are missing here.")
        await say(page, "story")
        await expect(answer).to_have_text("Once upon")
        await expect(stop).to_be_visible()
        assert site.manager is not None
        await page.evaluate("reading.abort()")
        site.go_on.set()
        await answered(site.manager)
        await page.evaluate("send('unheard')")
        await answered(site.manager)
        await page.evaluate("void read()")
        await expect(missing).to_have_count(1)
        await expect(stop).to_be_hidden()
        await expect(answer.first).to_have_attribute("aria-busy", "false")
        await page.evaluate("reading.abort()")
        for text in ("make it short", "one", "two", "three", "four"):
            await page.evaluate(f"send('{text}')")
        await page.evaluate("void read()")
        await expect(missing).to_have_count(2)
        await expect(stop).to_be_visible()
        site.go_on_again.set()
        await expect(answer.last).to_have_text("four")
        await expect(stop).to_be_hidden()
        await page.close()


async def answered(manager: ChannelManager) -> None:
    """Return when nothing is in progress."""
    while manager.busy_sessions:
        await anyio.sleep(0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_is_readable_in_both_schemes(site: Site, browser: Browser, scheme: str) -> None:
    """Every text has the contrast of 4.5 to 1 that WCAG asks for, and every field a name."""
    page = await opened(browser, site.address, color_scheme=scheme)
    ratios: dict[str, float] = await page.evaluate(CONTRAST)
    assert len(ratios) == 8
    assert min(ratios.values()) >= 4.5, ratios
    for field in await page.locator("input, textarea, button").all():
        assert await field.evaluate("field => (field.labels?.[0]?.textContent || field.textContent).trim()")
    await page.close()


CONTRAST = """() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const hex = style.getPropertyValue(`--${name}`).trim();
    const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
    const [r, g, b] = parts.map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [["ink", "ground"], ["ink", "raised"], ["ink", "own"], ["quiet", "ground"], ["quiet", "raised"],
                 ["on-accent", "accent"], ["bad", "ground"], ["bad", "raised"]];
  return Object.fromEntries(pairs.map(([front, back]) => {
    const [high, low] = [light(front), light(back)].sort((a, b) => b - a);
    return [`${front} on ${back}`, (high + 0.05) / (low + 0.05)];
  }));
}"""
