"""What an answer holds beside text and calls: thoughts, sources, pictures, pages, attached files; and hostile text."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from examples.demo import ARCHIVE, NASTY, paint_dusk
from tests.e2e.agents import FORGERIES
from tests.e2e.conftest import BOTH, OpenWebUI, webui_client
from tests.e2e.open_webui_page import Chat, Content
from tests.e2e.server import Server
from tests.pipe.loader import PIPE

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

FILE_URL = re.compile(r"/api/v1/files/[\w-]+/content")
SMALL_CHARS = 20_000
LETTER = "Dear stage, the key is under the third plank."
"""What a user attaches."""
GLOBE = "https://archive.example/the-globe"
ROSE = "https://archive.example/the-rose"


@pytest.fixture
def content(chat: Chat) -> Content:
    """What the chat's newest answer holds."""
    return Content(chat)


@BOTH
@pytest.mark.every_version
async def test_calls_that_the_model_writes_into_its_text_and_thoughts_are_text(
    chat: Chat, content: Content, pipe: str
) -> None:
    await chat.open(f"{pipe}.forger")
    await chat.ask("forge")
    for _ in range(2):
        [thought] = await content.thoughts.all()
        await content.unfold(thought)
        await expect(chat.answer.get_by_text("That is all.")).to_be_visible()
        await chat.wait_for_chip(re.compile("look_up"))
        # A box that the model writes is text too: there is nothing to open.
        await expect(chat.answer.get_by_text("More", exact=True)).to_have_count(0)
        await expect(chat.message.locator("iframe")).to_have_count(0)
        # Once in the thought, twice in the answer.
        assert (await chat.text()).count("<\u200bdetails") == 3 * len(FORGERIES)
        await chat.reload()
        await chat.wait_until_finished()


LABEL = "Look up · ![i](http://evil.example)"


@pytest.mark.every_version
@pytest.mark.parametrize(("before", "after"), [("[a", "]: /b\n"), ("[a]: /b (", ")\n"), ("$$ x", " $$\n")])
async def test_no_text_around_a_call_hides_its_card_in_one_text(
    chat: Chat, open_webui: OpenWebUI, before: str, after: str
) -> None:
    # As a caller of the API without a chat gets it: Open WebUI has nothing but the text.
    transcript = PIPE.Transcript()
    for event in (
        {"type": "message", "content": before},
        {"type": "tool_call_start", "tool_call_id": "c", "tool_name": "look_up", "label": LABEL},
        {"type": "tool_call_complete", "tool_call_id": "c", "result": "Hamlet"},
        {"type": "message", "content": after},
        {"type": "done", "finish_reason": "stop"},
    ):
        transcript.apply(event)
    messages = {
        "q": {"id": "q", "parentId": None, "childrenIds": ["a"], "role": "user", "content": "?"},
        "a": {"id": "a", "parentId": "q", "childrenIds": [], "role": "assistant", "content": transcript.render()},
    }
    saved = {"title": "One text", "history": {"messages": messages, "currentId": "a"}}
    async with webui_client(open_webui) as client:
        made = (await client.post("/api/v1/chats/new", json={"chat": saved})).raise_for_status().json()
    await chat.page.goto(f"{open_webui.url}/c/{made['id']}")
    await chat.wait_for_chip("Look up · ![i] (http://evil.example)")
    await expect(chat.answer.locator("img, a")).to_have_count(0)


@BOTH
@pytest.mark.every_version
async def test_a_nasty_result_is_shown_as_text_and_comes_back_whole_on_the_next_turn(chat: Chat, pipe: str) -> None:
    await chat.open(f"{pipe}.demo")
    await chat.ask("nasty")
    shown = (await chat.text()).split()
    for words in ("print('still open')", "View Result from echo_nasty", "If you can read this", "not a thought"):
        assert words in " ".join(shown)
    for _ in range(2):
        # How a page breaks and indents lines says nothing about what it shows.
        assert (await chat.text()).split() == shown
        assert (await chat.result("echo_nasty")).split() == f"{NASTY}\n{NASTY}".split()
        assert "pwned" not in await chat.page.title()
        await expect(chat.answer.locator("img[src=x]")).to_have_count(0)
        await expect(chat.spinners).to_have_count(0)
        await chat.reload()
        await chat.wait_until_finished()
    await chat.ask("remember")
    text = await chat.text()
    assert "I remember 1 tool call" in text
    assert "</details><img src=x" in text
    assert "pwned" not in await chat.page.title()


@BOTH
async def test_a_thought_is_open_webuis_own_block_above_what_came_of_it(
    chat: Chat, content: Content, pipe: str
) -> None:
    await chat.open(f"{pipe}.demo")
    await chat.ask("think")
    await expect(content.thoughts).to_have_text(re.compile(r"^Thought for (less than a second|\d+ seconds?)$"))
    text = await chat.text()
    assert text.index("Thought for") < text.index("I have thought about it") < text.index("get_weather")
    assert "The user wants to see me think" not in text
    unfolded = await (await content.unfold(content.thoughts)).inner_text()
    assert "I should look at the weather first: <b>Oslo</b>, not Lisbon." in unfolded
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.text() == text
    assert await (await content.unfold(content.thoughts)).inner_text() == unfolded


async def test_citations_lead_to_their_sources(chat: Chat, content: Content, pipe: str) -> None:
    await chat.open(f"{pipe}.demo")
    for _ in range(2):
        # The second turn's are numbers 3 and 4 to the agent, and again the first two of their message.
        await chat.ask("cite")
        (_, about_globe), (_, about_rose) = ARCHIVE
        for _ in range(2):
            assert await content.sources() == [f"1 {GLOBE}", f"2 {ROSE}"]
            assert "The Rose was found again in 1989 The Rose ; the Globe had" in " ".join((await chat.text()).split())
            followed = [await content.follow(citation) for citation in await content.citations.all()]
            assert followed == [(ROSE, about_rose), (GLOBE, about_globe)]
            await chat.reload()
            await chat.wait_until_finished()


async def test_a_picture_is_drawn_under_its_call_and_kept_in_open_webuis_own_store(
    chat: Chat, content: Content, pipe: str
) -> None:
    await chat.open(f"{pipe}.demo")
    await chat.ask("picture")
    for _ in range(2):
        await expect(content.pictures).to_have_count(1)
        await expect(content.pictures).to_have_attribute("src", FILE_URL)
        await expect(content.pictures).to_have_js_property("naturalWidth", 256)
        heights = [
            box["y"]
            for place in (
                chat.answer.get_by_text("draw_picture").last,
                content.pictures,
                chat.answer.get_by_text("It is above, under the call"),
            )
            if (box := await place.bounding_box())
        ]
        assert heights == sorted(heights)
        await chat.reload()
        await chat.wait_until_finished()
    saved = json.dumps(await content.saved())
    assert FILE_URL.search(saved)
    assert "data:image" not in saved
    assert len(saved) < SMALL_CHARS
    assert "A picture, 256 by 256 pixels" in await chat.result("draw_picture")


@BOTH
async def test_results_are_drawn_below_their_cards_by_their_kind_and_run_nothing(
    chat: Chat, content: Content, pipe: str
) -> None:
    requested: list[str] = []
    chat.page.on("request", lambda request: requested.append(request.url))
    await chat.open(f"{pipe}.office")
    await chat.ask("paint offers hostile_offers then report patch then program essay count")
    lines = ("Offers: 25 rows", "Offers from outside: 2 rows", "Report: ", "Patch: ", "Program: ")
    for _ in range(2):
        await expect(content.results).to_have_text([re.compile(rf"^\s*{line}") for line in lines])
        offers, hostile, report, patch, program = [await content.unfold(line) for line in await content.results.all()]
        await content.unfold(offers.get_by_text("5 more rows"))
        await expect(offers.locator("tr")).to_have_count(27)
        await expect(offers.locator("tr").last).to_have_text("Hamlet1224")
        await expect(hostile.locator("th, td")).to_have_count(6)
        await expect(hostile.locator("th").last).to_contain_text("alert(1)")
        await expect(report.locator("h1")).to_have_text("The season")
        await expect(report.locator("li, td")).to_have_text(["Macbeth", "Lear", "Lear", "7"])
        await expect(report.get_by_role("link")).to_have_text(["the plan", "Image: d"])
        await expect(report.get_by_text("<script>document.title=1</script>")).to_be_visible()
        await expect(report.get_by_text(re.compile("img src=x"))).to_be_visible()
        await expect(patch.get_by_text("Macbeth")).to_be_visible()
        await expect(program.get_by_text("def count(plays: list[str]) -> int:")).to_be_visible()
        await expect(chat.answer.get_by_role("button", name=re.compile("Run|Preview"))).to_have_count(0)
        await expect(chat.answer.locator("img[src^=http], iframe, .katex")).to_have_count(0)
        await chat.screenshot(f"results_{pipe}")
        await chat.reload()
        await chat.wait_until_finished()
    await chat.expand("Explored")
    await expect(content.pictures).to_have_js_property("naturalWidth", 64)
    await chat.wait_for_chip("Essay · 4,000 characters")
    assert len([one for one in await chat.chips() if not one.group]) == 8
    assert not [url for url in requested if "evil.example" in url]
    assert await chat.page.title() != "1"
    await chat.ask("What have you written and read?")
    await expect(chat.answer).to_contain_text("I wrote 'Here they are.' and read the results: True.")


async def test_a_page_is_shown_and_its_calls_output_but_no_empty_input(chat: Chat, content: Content, pipe: str) -> None:
    await chat.open(f"{pipe}.demo")
    await chat.send("page")
    await expect(content.frame.locator("body")).to_contain_text("Curtain up in")
    await chat.wait_until_finished()
    for _ in range(2):
        # Its script runs.
        await expect(content.frame.locator("#c")).to_have_text("0")
        assert "The clock is on the page" in await chat.result("show_clock")
        await expect(chat.answer.get_by_text("Input", exact=True)).to_have_count(0)
        await chat.reload()
        await chat.wait_until_finished()
    [frame] = (await content.saved())["embeds"]
    assert "Stage clock" in frame


@pytest.mark.parametrize("is_searched", [False, True], ids=["open-webui-sends-it", "the-pipe-sends-it"])
async def test_what_the_user_attaches_reaches_the_model_once(
    chat: Chat, content: Content, pipe: str, server: Server, tmp_path: Path, open_webui: OpenWebUI, is_searched: bool
) -> None:
    letter, picture = tmp_path / "letter.txt", tmp_path / "dusk.png"
    letter.write_text(f"{LETTER}\n")
    picture.write_bytes(paint_dusk(16))
    # Open WebUI then puts before the model what its search in attached files finds: nothing, without embeddings.
    path = "/api/v1/retrieval/config/update"
    async with webui_client(open_webui) as client:
        (await client.post(path, json={"BYPASS_EMBEDDING_AND_RETRIEVAL": not is_searched})).raise_for_status()
        await chat.open(f"{pipe}.librarian")
        # Beside a picture, 0.12.4 itself puts what it found before the model twice.
        await content.attach([letter, picture] if is_searched else [letter])
        await chat.ask("hello")
        await chat.ask("hello again")
        (await client.post(path, json={"BYPASS_EMBEDDING_AND_RETRIEVAL": True})).raise_for_status()
    assert len(server.turns) == 2
    for turn in server.turns:
        messages = turn.bodies[0]["messages"]
        assert json.dumps(messages).count(LETTER) == 1
        parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        assert [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls] == [
            paint_dusk(16)
        ] * is_searched
