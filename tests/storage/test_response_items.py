"""Items of responses, by their ids."""

import time

from callboard.storage import Store


async def test_items_are_returned_only_to_their_user(store: Store) -> None:
    await store.responses("ann").keep([{"id": "ann's"}], None)
    await store.responses(None).keep([{"id": "nobody's"}], None)
    ids = ["ann's", "nobody's", "unknown"]
    assert await store.responses("ann").find(ids) == {"ann's": {"id": "ann's"}}
    assert await store.responses(None).find(ids) == {"nobody's": {"id": "nobody's"}}
    assert await store.responses("bob").find(ids) == {}


async def test_a_response_of_thousands_of_items_is_found_again(store: Store) -> None:
    items: list[dict[str, str]] = [{"id": f"msg_{number}", "text": "x" * number} for number in range(1_200)]
    kept = store.responses("ann")
    await kept.keep(items, "chat")
    assert await kept.find([*(f"msg_{number}" for number in range(1_200)), "msg_7"]) == {
        item["id"]: item for item in items
    }


async def test_an_item_holds_whatever_a_model_says_until_its_retention_is_over(store: Store) -> None:
    kept = store.responses("ann")
    said = "NUL \0, a lone surrogate \ud800, äpple"
    # `resp_1` is the response itself, which is not counted.
    await kept.keep([{"id": "a", "text": said}, {"id": "response"}, {"id": "resp_1"}], None)
    ids = ["a", "resp_1", "response"]
    assert await store.drop_response_items(time.time() - 60) == 0
    found = await kept.find(ids)
    assert (sorted(found), found["a"]["text"]) == (ids, said.replace("\ud800", "\ufffd"))
    assert await store.drop_response_items(time.time() + 60) == 2
    assert await kept.find(ids) == {}
