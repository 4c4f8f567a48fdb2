"""Sources become citations of Open WebUI, and the numbers in the text refer to them."""

from typing import Any

import pytest

from callboard_protocol import Done, Message, RunStart, Source
from tests.pipe.loader import PIPE, read_next_turn
from tests.pipe.owui_blocks import streamed_content
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import drawn, message
from tests.pipe.test_stream import METADATA, a_pipe, answer


def source(number: int | None, url: str, **fields: Any) -> dict[str, Any]:
    about = {} if number is None else {"source_number": number}
    return {"type": "source", "source": {"name": url, "url": url}, "document": ["text"], "metadata": [about], **fields}


def citations(events: list[dict[str, Any]]) -> list[str]:
    """What Open WebUI lists: one entry for each different `metadata.source`, in order (Citations.svelte)."""
    abouts = [about for event in events if event["type"] == "source" for about in event["data"]["metadata"]]
    return list(dict.fromkeys(about["source"] for about in abouts))


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize(
    ("written", "shown", "back"),
    [
        ("[source1]", "[1#source1]", "[source1]"),
        ("[source1, source2]", "[1#source1, 2#source2]", "[source1, source2]"),
        ("【source1】", "[1#source1]", "[source1]"),
        ("[source9]", "[source9]", "[source9]"),
        ("[sources]", "[sources]", "[sources]"),
        ("[source", "[source", "[source"),
    ],
)
def test_every_way_to_cite_is_linked_and_comes_back(written: str, shown: str, back: str, step: int) -> None:
    words = f"As {written} says, {written}"
    events = [message(words[at : at + step]) for at in range(0, len(words), step)]
    transcript = drawn(source(1, "http://a"), source(2, "http://b"), *events)
    transcript.close("end")
    assert transcript.render() == f"As {shown} says, {shown}"
    answer = {"role": "assistant", "content": transcript.render()}
    assert read_next_turn([answer]) == [{"role": "assistant", "content": f"As {back} says, {back}"}]


def test_one_source_twice_is_one_citation() -> None:
    transcript = drawn(
        source(1, "http://a"), source(2, "http://a"), source(3, "http://b"), message("[source2][source3]")
    )
    assert citations(transcript.events) == ["http://a", "http://b"]
    assert transcript.render() == "[1#source2][2#source3]"


def test_the_sources_that_open_webui_found_itself_come_first() -> None:
    found = [{"source": {"name": "f.pdf", "id": "f"}, "document": ["x", "y"], "metadata": [{}, {"source": "f"}]}]
    transcript = PIPE.Transcript(found=found)
    for event in (message("[source1] "), source(1, "http://a"), message("[source1]")):
        transcript.apply(event)
    assert transcript.render() == "[source1] [2#source1]"
    assert len(transcript.events) == 1


def test_a_source_that_the_message_has_already_is_not_sent_again() -> None:
    [known] = drawn(source(1, "http://a")).events
    transcript = PIPE.Transcript(found=[known["data"]])
    for event in (source(1, "http://a"), source(2, "http://b"), message("[source1][source2]")):
        transcript.apply(event)
    assert citations(transcript.events) == ["http://b"]
    assert transcript.render() == "[1#source1][2#source2]"


def test_a_source_without_a_number_or_a_text_is_shown() -> None:
    transcript = drawn(source(None, "http://a", document=[], metadata=[]), message("[source1]"))
    [event] = transcript.events
    assert event["data"]["document"] == [""]
    assert transcript.render() == "[1#source1]"


@pytest.mark.parametrize(("metadata", "shown"), [(METADATA, "[1#source3]"), ({}, "[source3]")])
async def test_only_a_reader_that_gets_the_sources_gets_linked_citations(
    server: ScriptedServer, metadata: dict[str, Any], shown: str
) -> None:
    found = Source(source={"name": "a"}, document=("text",), metadata=({"source_number": 3},))
    cited = Message(content="It rains [source3].")
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), found, cited, Done())))
    updates = await answer(a_pipe(server.url), __metadata__=metadata)
    assert streamed_content(updates) == f"It rains {shown}."
