"""The figures of records made by hand, whose right values are known."""

from array import array

import pytest
import records


def made(*rows):
    return records.Records(rows)


# Two contenders of one key, in turn: each holds it for 100 ns, and handing it on takes 10 ns.
FAIR = [(0, 0, 10, 110, 115), (1, 0, 120, 220, 225), (0, 116, 230, 330, 337),
        (1, 226, 340, 440, 449)]


def test_percentile_is_the_nearest_rank():
    hundred = list(range(1, 101))
    assert [records.percentile(hundred, p) for p in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]
    assert records.percentile([7], 50) == 7
    assert records.percentile([1, 2, 3, 4], 50) == 2
    assert records.percentile([1, 2, 3, 4], 51) == 3


def test_quantiles_begin_with_the_least_and_end_with_the_largest():
    found = records.quantiles([5, 1, 3])
    assert (found[0], found[50], found[-1], len(found)) == (1, 3, 5, len(records.QUANTILES))
    assert records.quantiles([]) == []


def test_jain():
    assert records.jain([3, 3, 3]) == 1
    assert records.jain([1, 0, 0, 0]) == 0.25
    assert records.jain([1, 2]) == pytest.approx(0.9)
    assert records.jain([0, 0]) == 0


def test_gaps_and_no_overlap():
    assert records.gaps(made(*FAIR)) == [10, 10, 10]
    assert records.overlaps(made(*FAIR)) == 0
    assert records.gaps(made(*reversed(FAIR))) == [10, 10, 10]


def test_an_overlap_is_a_grant_before_the_releasing():
    assert records.overlaps(made((0, 0, 10, 100, 101), (1, 0, 100, 200, 201))) == 0
    assert records.overlaps(made((0, 0, 10, 100, 101), (1, 0, 99, 200, 201))) == 1
    # The first holder is still there when the third comes, though the second is not.
    assert records.overlaps(made((0, 0, 10, 1000, 1001), (1, 0, 20, 30, 31), (2, 0, 40, 50, 51))) == 2


def test_distinct_keys_do_not_overlap():
    rows = made((0, 0, 10, 100, 101), (1, 0, 20, 200, 201))
    assert records.overlaps_by_contender(rows) == 0
    assert records.overlaps_by_contender(made((0, 0, 10, 100, 101), (0, 0, 99, 200, 201))) == 1


def test_gaps_between_daemons():
    rows = made((0, 0, 10, 20, 21), (2, 0, 25, 30, 31), (1, 0, 37, 40, 41), (3, 0, 42, 50, 51))
    assert records.gaps(rows) == [5, 7, 2]
    assert records.gaps(rows, 2) == [7]


def test_who_gets_the_lock_again_hands_nothing_on():
    rows = made((0, 0, 10, 20, 21), (0, 22, 25, 30, 31), (1, 0, 37, 40, 41))
    assert records.gaps(rows) == [7]


def test_figures_of_one_key():
    found = records.figures(made(*FAIR), 2, 0, 449, True)
    assert found["cycles"] == 4
    assert found["cycles_per_s"] == pytest.approx(4e9 / 449)
    assert (found["jain"], found["contenders_without"], found["overlaps"]) == (1, 0, 0)
    assert found["acquire_p50_us"] == pytest.approx(0.114)  # of 10, 120, 114, 114
    assert found["acquire_max_us"] == pytest.approx(0.120)
    assert found["release_p50_us"] == pytest.approx(0.005)  # of 5, 5, 7, 9
    assert found["cycle_p50_us"] == pytest.approx(0.121)  # of 15, 125, 121, 123
    assert found["gap_p50_us"] == found["gap_max_us"] == pytest.approx(0.010)
    assert found["wait_ideal_ms"] == pytest.approx(100e-6)
    assert found["wait_p99_to_ideal"] == pytest.approx(1.2)
    assert found["handoffs_per_s"] == pytest.approx(3e9 / 449)
    assert "gap_between_daemons_p50_us" not in found


def test_figures_of_two_daemons():
    found = records.figures(made(*FAIR), 2, 0, 449, True, daemons=2)
    assert found["gap_between_daemons_p99_us"] == pytest.approx(0.010)
    assert found["between_daemons_share"] == 0.75


def test_who_gets_nothing_counts():
    found = records.figures(made(*FAIR), 4, 0, 1000, True)
    assert found["contenders_without"] == 2
    assert found["jain"] == 0.5
    assert found["wait_max_ms"] == pytest.approx(1000e-6)


def test_unserved_are_those_that_wait_at_the_end():
    rows = made((0, 0, 700, 710, 720), (1, 50, 730, 740, 1000))
    assert records.unserved(rows, 3, 100, 1000) == [280, 900]


def test_what_was_granted_in_the_warm_up_is_no_figure_but_known_to_have_been():
    found = records.figures(made(*FAIR), 2, 120, 1120, True)
    assert found["cycles"] == 3
    assert found["cycles_per_s"] == 3e6
    assert found["acquire_max_us"] == pytest.approx(0.120)
    assert found["handoffs_per_s"] == 3e6
    assert records.figures(made(*FAIR), 2, 0, 339, True)["cycles"] == 3


def test_figures_of_nothing():
    found = records.figures(made(), 3, 0, 10**9, True)
    assert (found["cycles"], found["cycles_per_s"], found["contenders_without"]) == (0, 0, 3)
    assert "acquire_p50_us" not in found


def test_read(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(array("q", [1, 20, 30, 40, 50, 0, 2, 3, 4, 5]).tobytes())
    found = records.read(path)
    assert list(found.granted) == [3, 30]
    assert list(found.contender) == [0, 1]
    path.write_bytes(array("q", [1, 2]).tobytes())
    with pytest.raises(ValueError):
        records.read(path)
