"""Items of responses, by their ids."""

import time

from callboard.storage import Store

ODD = {"id": "a", "text": "NUL \0, a lone surrogate \ud800, äpple"}


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


async def test_an_item_holds_whatever_a_model_says(store: Store) -> None:
    kept = store.responses("ann")
    await kept.keep([ODD], None)
    assert (await kept.find(["a"]))["a"] == {"id": "a", "text": "NUL \0, a lone surrogate \ufffd, äpple"}


async def test_items_older_than_their_retention_are_deleted(store: Store) -> None:
    kept = store.responses("ann")
    await kept.keep([{"id": "a"}, {"id": "b"}], None)
    assert await store.drop_response_items(time.time() - 60) == 0
    assert await store.drop_response_items(time.time() + 60) == 2
    assert await kept.find(["a", "b"]) == {}


async def test_a_response_is_deleted_with_its_items_and_is_not_counted(store: Store) -> None:
    kept = store.responses("ann")
    await kept.keep([{"id": "a"}, {"id": "response"}, {"id": "resp_1"}], None)
    assert (await kept.find(["resp_1"]))["resp_1"] == {"id": "resp_1"}
    assert await store.drop_response_items(time.time() + 60) == 2
    assert await kept.find(["a", "response", "resp_1"]) == {}
