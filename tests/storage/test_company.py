"""A server takes itself for alone where nobody else was there for a while, and not where one is away for a moment."""

from callboard.storage.company import Company


def test_a_server_is_alone_until_it_has_seen_another_and_again_a_while_after_it_has_seen_the_last() -> None:
    company = Company(lease_seconds=10)
    found = [(0.0, False), (3.0, True), (6.0, False), (32.0, False), (33.0, False), (34.0, True), (36.0, False)]
    was_alone = [company.is_missing]
    for now, are_others_there in found:
        company.note(are_others_there=are_others_there, now=now)
        was_alone.append(company.is_missing)
    assert was_alone == [True, True, False, False, False, True, False, False]
