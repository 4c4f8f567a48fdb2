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


@pytest.mark.parametrize(
    "text",
    [
        "See [source2].",
        "see [SOURCE2]",
        "[source 2]",
        "[source1, source2]",
        "【source2】",
        "[ Source 2 ; source 9 ]",
        "[source1, 2]",
    ],
)
def test_an_item_that_the_text_cites_stays(text: str) -> None:
    assert source(2) in json.loads(compacted([source(1), source(2), source(3)], text))
    assert source(3) not in json.loads(compacted([source(1), source(2), source(3)], text))


@pytest.mark.parametrize("text", ["source2", "[2]", "(source2)", "[sources]", "[source-2]", "[resource2]"])
def test_what_only_looks_like_a_citation_is_none(text: str) -> None:
    assert compacted([source(2)], text) == NOTHING_CITED


def test_a_result_of_which_nothing_is_cited_stays_whole_unless_always_is_set() -> None:
    records = [record([source(1), source(2)]), record([source(3), source(4)]), record(["note", source(5)])]
    first, *others = compact_message_tools(records, "[source1]", "cited")
    assert first.result == json.dumps([source(1)])
    assert others == records[1:]
    assert compact_message_tools(records, "I do not cite.", "cited") == records
    assert compact_message_tools(records, "[source1]", "never") == records


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_text_nothing_changes(text: str | None) -> None:
    content = '[ {"source_number": 1} ]'
    assert compacted(content, text) == content


def test_a_text_that_cites_nothing_turns_the_result_into_a_sentence() -> None:
    assert compacted([source(1), source(2)], "I know nothing.") == (
        "The search did not produce any relevant information that could be cited."
    )


def test_cited_elsewhere_but_not_here_leaves_an_empty_list() -> None:
    here, there = compact_message_tools([record([source(1)]), record([source(2)])], "[source2]", "always")
    assert here.result == "[]"
    assert there.result == record([source(2)]).result


@pytest.mark.parametrize(
    "content",
    [
        "plain text",
        "",
        "{}",
        '{"source_number": 1}',
        "17",
        '"x"',
        "null",
        "[]",
        "[1, 2]",
        '["a"]',
        '[{"title": 1}]',
        "[broken",
        '[{"source_number": null}]',
        '[{"source_number": true}]',
    ],
)
def test_what_is_no_such_list_is_left_exactly_as_it_is(content: str) -> None:
    assert compacted(content, "cites nothing") == content
    assert compacted(content, "[source9]") == content


def test_a_list_that_mixes_both_keeps_what_is_no_source_and_numbers_are_never_changed() -> None:
    mixed = ["note", source(1), {"title": "no number"}, source("2", body="Übergröße ✓"), 5]
    kept = compacted(mixed, "[source2]")
    assert json.loads(kept) == ["note", {"title": "no number"}, source("2", body="Übergröße ✓"), 5]
    assert "Übergröße ✓" in kept
    assert json.loads(compacted(mixed, "cites nothing")) == ["note", {"title": "no number"}, 5]


def test_a_result_of_which_all_is_cited_keeps_its_bytes() -> None:
    content = '[ {"source_number":1,  "t": "\\u00e4"} ]'
    assert compacted(content, "[source1]") == content


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '[{"source_number": ' + "9" * 5000 + "}]",
        '[{"source_number": 1e999}]',
        '[{"source_number": "' + "9" * 5000 + '"}]',
    ],
)
def test_hostile_results_raise_nothing(content: str) -> None:
    assert compacted(content, "[source1]" + "[source" * 10_000 + "9" * 10_000) == content


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
