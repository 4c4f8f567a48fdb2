"""Every fault of `tests.mutants` can be applied to the current sources; that module checks that tests find them."""

from pathlib import Path

import pytest

from tests.mutants import FAULTS, Fault, insert_fault

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_one_line_of_a_source_that_still_compiles(fault: Fault) -> None:
    source = (ROOT / fault.path).read_text()
    changed = insert_fault(source, fault)
    compile(changed, fault.path, "exec")
    pairs = zip(source.splitlines(), changed.splitlines(), strict=True)
    assert [(before.strip(), after.strip()) for before, after in pairs if before != after] == [
        (fault.before, fault.after)
    ]
    assert all((ROOT / tests).exists() for tests in fault.area)


def test_faults_are_told_apart_by_their_names() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_fault_whose_line_stands_twice_is_refused() -> None:
    fault = Fault("twice", "a.py", "x = 1", "x = 2", ())
    with pytest.raises(ValueError, match=r"a\.py has the line 'x = 1' 2 times"):
        insert_fault("x = 1\n    x = 1\n", fault)
