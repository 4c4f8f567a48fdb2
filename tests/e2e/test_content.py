"""What an answer holds beside text and calls, in both renderings: thoughts, sources, pictures, pages, usage, files."""

from __future__ import annotations

import base64
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from examples.demo import ARCHIVE, paint_dusk
from tests.e2e import box_office as box_offices
from tests.e2e.answer_content import Content, Dialog
from tests.e2e.box_office import AFTER, THOUGHT, BoxOffice
from tests.e2e.cashier import DRAFTS, FORGERIES, THOUGHTS, ledger
from tests.e2e.conftest import OpenWebUI
from tests.e2e.open_webui_page import TIMEOUT_MS, Chat
from tests.e2e.recording_proxy import RecordingProxy

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120, func_only=True)]

FILE_URL = re.compile(r"/api/v1/files/[\w-]+/content")
SMALL_CHARS = 20_000
LETTER = "Dear stage, the key is under the third plank."
"""What a user attaches."""
GLOBE = "https://archive.example/the-globe"
ROSE = "https://archive.example/the-rose"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def box_office(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BoxOffice]:
    """A server that makes links to long results."""
    data = tmp_path_factory.mktemp("box-office")
    async with box_offices.opened(data, artifacts, RESULT_LINK_SECONDS="600") as opened:
        yield opened


@pytest.fixture
def agents(box_office: BoxOffice, open_webui: OpenWebUI, rendering: str) -> str:
    """The beginning of its agents' ids."""
    box_office.forget()
    return box_office.models(open_webui, "box_office", rendering)


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    """A text file of the user's."""
    file = tmp_path / "letter.txt"
    file.write_text(f"{LETTER}\n")
    return file


@pytest.fixture
def content(chat: Chat) -> Content:
    """What the chat's newest answer holds."""
    return Content(chat)


async def test_a_thought_is_open_webuis_own_block_above_what_came_of_it(
    chat: Chat, content: Content, demo: str
) -> None:
    await chat.open(demo)
    await chat.ask("think")
    await expect(content.thoughts).to_have_text(re.compile(r"^Thought for (less than a second|\d+ seconds?)$"))
    text = await chat.text()
    assert text.index("Thought for") < text.index("I have thought about it") < text.index("get_weather")
    assert "The user wants to see me think" not in text
    unfolded = await content.unfold(content.thoughts)
    assert "I should look at the weather first: <b>Oslo</b>, not Lisbon." in unfolded
    await chat.screenshot("thought")
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.text() == text
    assert await content.unfold(content.thoughts) == unfolded


async def test_the_editor_shows_a_thought_as_text_where_it_is_native_and_as_markup_otherwise(
    chat: Chat, demo: str, rendering: str
) -> None:
    await chat.open(demo)
    await chat.ask("think")
    before = await chat.text()
    shown: list[str] = []

    def keep(text: str) -> str:
        shown.append(text)
        return text

    await chat.rewrite_answer(0, keep)
    if rendering == "native":
        assert [text for text in shown if text.startswith("The user wants to see me think.")]
        assert not [text for text in shown if not text or "<details" in text]
    else:
        assert [text for text in shown if '<details type="reasoning"' in text]
    await chat.reload()
    await chat.wait_until_finished()
    assert await chat.text() == before


async def test_thoughts_stand_before_and_between_calls_with_their_time(
    chat: Chat, content: Content, agents: str
) -> None:
    await chat.open(f"{agents}.thinker")
    await chat.send("think")
    await expect(content.thoughts.first).to_have_text(re.compile("^Thinking"))
    await chat.screenshot("thinking")
    await chat.wait_until_finished()
    for _ in range(2):
        # Open WebUI folds them together with the calls that they stand between.
        await chat.expand("Explored")
        thoughts = await content.thoughts.all()
        unfolded = [await content.unfold(thought) for thought in thoughts]
        assert unfolded == [f"Thought for 1 seconds\n\n{thought}" for thought in THOUGHTS]
        lines = (await chat.text()).splitlines()
        # Above them stand what the run took, and what Open WebUI folded.
        assert [line.partition(" · ")[0] for line in lines if line][2:] == [
            *("Thought for 1 seconds", THOUGHTS[0], "View Result from look_up"),
            *("Thought for 1 seconds", THOUGHTS[1], "View Result from look_up"),
            "It is Hamlet.",
        ]
        await chat.screenshot("thoughts-between-calls")
        await chat.reload()
        await chat.wait_until_finished()


@pytest.mark.cell("hostile text")
async def test_calls_that_the_model_writes_into_its_text_and_thoughts_are_text(
    chat: Chat, content: Content, agents: str
) -> None:
    await chat.open(f"{agents}.forger")
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


async def test_calls_inside_a_call_are_lines_of_its_card(
    chat: Chat, content: Content, agents: str, rendering: str
) -> None:
    dialog = Dialog(chat)
    await chat.open(f"{agents}.leader")
    await chat.send("ask")
    await dialog.wait("Go on?")
    await chat.wait_for_chip("ask_expert · a storm · look_up · rain · 1.5 s")
    await chat.screenshot(f"inside-live-{rendering}")
    await dialog.press("Confirm")
    await chat.wait_until_finished()
    for _ in range(2):
        [chip] = await chat.chips()
        assert chip.label == "View Result from ask_expert · a storm · 12 s"
        assert (await chat.result("ask_expert")).splitlines() == [
            *("↳ look_up · wind · 1.5 s", "↳ look_up · rain · 1.5 s", "", "It is wet."),
        ]
        await chat.screenshot(f"inside-{rendering}")
        await chat.reload()
        await chat.wait_until_finished()


async def test_drafts_that_are_taken_back_leave_the_page_and_do_not_come_back(
    chat: Chat, content: Content, agents: str
) -> None:
    dialog = Dialog(chat)
    await chat.open(f"{agents}.hesitant")
    await chat.send("hello")
    for draft in DRAFTS[:-1]:
        await dialog.wait(f"Take back {draft}?")
        # The question and the text come to the page by two ways.
        await expect(chat.answer).to_contain_text(draft)
        text = await chat.text()
        assert [one for one in DRAFTS if one in text] == [draft]
        await dialog.press("Confirm")
    await chat.wait_until_finished()
    for _ in range(2):
        text = await chat.text()
        took, *lines = [line.partition(" · ")[0] for line in text.splitlines() if line]
        assert took.startswith("1 call, ")
        assert lines == ["Let me look.", "View Result from look_up", DRAFTS[-1]]
        await expect(content.thoughts).to_have_count(0)
        await expect(chat.spinners).to_have_count(0)
        saved = json.dumps(await content.saved())
        assert not any(draft in saved for draft in DRAFTS[:-1])
        await chat.screenshot("taken-back")
        await chat.reload()
        await chat.wait_until_finished()


async def test_a_thought_is_told_on_the_next_turn_beside_its_call_and_in_no_text(
    chat: Chat, content: Content, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.ask("think, and read the ledger")
    await chat.expand("Explored")
    assert THOUGHT in await content.unfold(content.thoughts.first)
    await chat.ask("hello")
    assert AFTER in await chat.text()
    told = box_office.told[-1]
    [asking] = [message for message in told if message.get("tool_calls")]
    assert asking["tool_calls"][0]["function"]["name"] == "read_ledger"
    assert THOUGHT in asking["reasoning_content"]
    texts = json.dumps([message["content"] for message in told])
    assert not any(words in texts for words in (THOUGHT, "Thought", "<details"))


async def test_citations_lead_to_their_sources(chat: Chat, content: Content, demo: str) -> None:
    await chat.open(demo)
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


async def test_the_model_reads_its_citations_as_it_wrote_them(
    chat: Chat, content: Content, agents: str, box_office: BoxOffice
) -> None:
    await chat.open(f"{agents}.cashier")
    for _ in range(2):
        await chat.ask("search")
        await expect(content.citations).to_have_count(2)
    await chat.ask("hello")
    said = [message["content"] for message in box_office.told[-1] if message["role"] == "assistant"]
    assert [re.findall(r"\[.*?\]", words) for words in said if words] == [
        ["[source2]", "[source1]"],
        ["[source4]", "[source3]"],
    ]


async def test_a_picture_is_drawn_under_its_call_and_kept_in_open_webuis_own_store(
    chat: Chat, content: Content, demo: str
) -> None:
    await chat.open(demo)
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
        await chat.screenshot("picture")
        await chat.reload()
        await chat.wait_until_finished()
    saved = json.dumps(await content.saved())
    assert FILE_URL.search(saved)
    assert "data:image" not in saved
    assert len(saved) < SMALL_CHARS
    assert "A picture, 256 by 256 pixels" in await chat.result("draw_picture")


async def test_a_page_is_shown_and_its_calls_input_and_output_too(chat: Chat, content: Content, demo: str) -> None:
    await chat.open(demo)
    await chat.send("page")
    await expect(content.frame.locator("body")).to_contain_text("Curtain up in")
    await chat.wait_until_finished()
    for _ in range(2):
        # Its script runs.
        await expect(content.frame.locator("#c")).to_have_text("0")
        assert "The clock is on the page" in await chat.result("show_clock")
        await expect(chat.answer.get_by_text("Input", exact=True)).to_be_visible()
        await chat.screenshot("page")
        await chat.reload()
        await chat.wait_until_finished()
    [frame] = (await content.saved())["embeds"]
    assert "Stage clock" in frame


async def test_a_page_can_be_read_in_dark_mode(chat: Chat, content: Content, demo: str) -> None:
    await chat.page.add_init_script("localStorage.setItem('theme', 'dark')")
    await chat.open(demo)
    await chat.ask("page")
    colours = await content.frame.locator("body").evaluate(
        "body => [getComputedStyle(body).color, getComputedStyle(body).backgroundColor]"
    )
    await chat.screenshot("page-in-dark-mode")
    assert sorted(colours) == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"], "it has its own background"


async def test_the_info_button_shows_the_tokens(
    chat: Chat, content: Content, recorded_demo: str, proxy: RecordingProxy
) -> None:
    await chat.open(recorded_demo)
    await chat.ask("fail")
    events = [json.loads(line) for line in re.findall(rb'data: (\{.*"type":"usage".*\})', proxy.turns[0].stream)]
    names = ("input_tokens", "output_tokens", "total_tokens")
    for _ in range(2):
        shown = await content.usage()
        assert {name: shown[name] for name in names} == {name: events[-1][name] for name in names}
        assert shown["total_tokens"] > 0
        await chat.screenshot("usage")
        await chat.reload()
        await chat.wait_until_finished()


async def test_an_answer_that_is_continued_adds_to_what_it_took(chat: Chat, agents: str, box_office: BoxOffice) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.ask("read the ledger")
    line = chat.answer.locator("xpath=ancestor::*[starts-with(@id, 'message-')][1]")
    await expect(line).to_contain_text("1 call, ", timeout=TIMEOUT_MS)
    await line.get_by_role("button", name="Continue Response").click()
    await expect(line).to_contain_text("2 calls, ", timeout=TIMEOUT_MS)
    await chat.wait_until_finished()
    await chat.screenshot("activity-continued")
    assert len(box_office.told) > 1


async def test_what_the_user_attaches_reaches_the_model_once(
    chat: Chat,
    content: Content,
    agents: str,
    box_office: BoxOffice,
    letter: Path,
    tmp_path: Path,
    open_webui: OpenWebUI,
) -> None:
    picture = tmp_path / "dusk.png"
    picture.write_bytes(paint_dusk(16))
    with whole_files_are_left_to_the_pipe(open_webui):
        await chat.open(f"{agents}.cashier")
        await content.attach([letter, picture])
        await chat.ask("hello")
        await chat.screenshot("attached")
        await chat.ask("hello again")
    assert len(box_office.told) == 2
    for messages in box_office.told:
        assert json.dumps(messages).count(LETTER) == 1
        assert images_of(messages) == [paint_dusk(16)]


async def test_a_file_that_open_webui_puts_before_the_model_itself_is_not_sent_again(
    chat: Chat, content: Content, agents: str, box_office: BoxOffice, letter: Path
) -> None:
    await chat.open(f"{agents}.cashier")
    await content.attach([letter])
    await chat.ask("hello")
    await chat.ask("hello again")
    assert len(box_office.told) == 2
    for messages in box_office.told:
        assert json.dumps(messages).count(LETTER) == 1


async def test_a_result_that_is_cut_has_a_link_to_the_whole(chat: Chat, agents: str) -> None:
    await chat.open(f"{agents}.cashier")
    await chat.ask("read the ledger")
    result = await chat.result("read_ledger")
    found = re.search(r"… \[[\d,]+ more characters: (http://\S+)\]$", result)
    assert found, result[-400:]
    await chat.screenshot("result-link")
    page = await chat.page.context.new_page()
    await page.goto(found[1])
    assert await page.locator("body").inner_text() == ledger()
    await page.goto(found[1][:-1] + ("0" if found[1][-1] != "0" else "1"))
    assert ledger()[:100] not in await page.locator("body").inner_text()
    await page.close()


@contextmanager
def whole_files_are_left_to_the_pipe(open_webui: OpenWebUI) -> Iterator[None]:
    """Have Open WebUI put before the model what its search in attached files finds: nothing, without embeddings."""
    _configure(open_webui, {"BYPASS_EMBEDDING_AND_RETRIEVAL": False})
    yield
    _configure(open_webui, {"BYPASS_EMBEDDING_AND_RETRIEVAL": True})


def _configure(open_webui: OpenWebUI, settings: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {open_webui.token}", "Content-Type": "application/json"}
    url = f"{open_webui.url}/api/v1/retrieval/config/update"
    body = json.dumps(settings).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30):
            pass
    except urllib.error.HTTPError as error:
        # 0.8 takes them, and then stumbles over its answer.
        if error.code != 500:
            raise


def images_of(messages: list[dict[str, Any]]) -> list[bytes]:
    """The images that a model was sent."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]
