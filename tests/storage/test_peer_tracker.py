"""A server counts as alone only after it has seen no other server for several lease durations."""

from callboard.storage.sql.postgresql_lease import PeerTracker


def test_a_server_is_alone_before_it_sees_another_and_again_some_leases_after_the_last() -> None:
    peers = PeerTracker(lease_seconds=10)
    found = [(0.0, False), (3.0, True), (6.0, False), (32.0, False), (33.0, False), (34.0, True), (36.0, False)]
    was_alone = [peers.is_alone]
    for now, are_others_there in found:
        peers.note(are_others_there=are_others_there, now=now)
        was_alone.append(peers.is_alone)
    assert was_alone == [True, True, False, False, False, True, False, False]
