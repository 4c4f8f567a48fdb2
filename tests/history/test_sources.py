"""What is replayed of search results is what the answer cites."""

import copy
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._history import CompactResults, HistoryCall, compact_message_tools
from callboard._history.sources import NOTHING_CITED


def record(content: object) -> HistoryCall:
    text = content if isinstance(content, str) else json.dumps(content)
    return HistoryCall("a", "search", "{}", result=text)


def compacted(content: object, text: str | None, compact_results: CompactResults = "always") -> str:
    [result] = compact_message_tools([record(content)], text, compact_results)
    assert result.result is not None
    return result.result


def source(number: object, **fields: Any) -> dict[str, Any]:
    return {"source_number": number, "title": f"T{number}", **fields}


TWO = [source(1), source(2)]
AS_WRITTEN = '[ {"source_number":1,  "t": "\\u00e4"} ]'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("see [SOURCE2]", [source(2)]),
        ("【source 2】", [source(2)]),
        ("[ Source 2 ; source 9 ]", [source(2)]),
        ("[source1, 2]", TWO),
        # It cites a source of another result.
        ("[source9]", []),
        *((text, None) for text in ("source2", "[2]", "[sources]", "[source-2]", "[resource2]")),
    ],
)
def test_an_item_that_the_text_cites_stays(text: str, kept: list[Any] | None) -> None:
    elsewhere = record([source(9)])
    here, _ = compact_message_tools([record(TWO), elsewhere], text, "always")
    assert here.result == (NOTHING_CITED if kept is None else json.dumps(kept))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (AS_WRITTEN, None),
        (AS_WRITTEN, ""),
        (AS_WRITTEN, "[source1]"),
        *((content, "cites nothing") for content in ("", "null", "[]", '["a"]', "[broken", '{"source_number": 1}')),
        *((f'[{{"source_number": {number}}}]', "cites nothing") for number in ("null", "true", "1e999")),
        ("[" * 100_000, "[source" * 10_000 + "9" * 10_000),
        ('[{"source_number": "' + "9" * 5000 + '"}]', "[source1]"),
        ('[{"source_number": ' + "9" * 5000 + "}]", "[source1]"),
    ],
    ids=range(15),
)
def test_a_result_stays_exactly_as_it_is_without_a_text_or_numbered_sources_and_if_all_are_cited(
    content: str, text: str | None
) -> None:
    assert compacted(content, text) == content


def test_a_result_of_which_nothing_is_cited_stays_whole_unless_always_is_set() -> None:
    records = [record([source(1), source(2)]), record([source(3), source(4)]), record(["note", source(5)])]
    first, *others = compact_message_tools(records, "[source1]", "cited")
    assert first.result == json.dumps([source(1)])
    assert others == records[1:]
    assert compact_message_tools(records, "I do not cite.", "cited") == records
    assert compact_message_tools(records, "[source1]", "never") == records


def test_a_list_that_mixes_both_keeps_what_is_no_source_and_numbers_are_never_changed() -> None:
    mixed = ["note", source(1), {"title": "no number"}, source("2", body="Übergröße ✓"), 5]
    kept = compacted(mixed, "[source2]")
    assert json.loads(kept) == ["note", {"title": "no number"}, source("2", body="Übergröße ✓"), 5]
    assert "Übergröße ✓" in kept
    assert json.loads(compacted(mixed, "cites nothing")) == ["note", {"title": "no number"}, 5]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.fixed_dictionaries({"source_number": st.integers(0, 5) | st.sampled_from(["1", "2", "x", None])}),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    st.lists(json_values.map(json.dumps) | st.text(), max_size=5),
    st.none() | st.text() | st.sampled_from(["[source1]", "[Source 2]", "【source5】"]),
)
def test_the_input_is_never_changed_and_nothing_raises(contents: list[str], text: str | None) -> None:
    records = [record(content) for content in contents]
    before = copy.deepcopy(records)
    for compact_results in get_args(CompactResults):
        result = compact_message_tools(records, text, compact_results)
        assert records == before
        assert len(result) == len(records)
