"""The judge sees each wrong that it is there for, and nothing where all is right."""

import json

import pytest
from judge import Diary, Verdict
from store import Access, Store


class Stories:
    """Diaries made up by hand; times are in seconds, deadlines too."""

    def __init__(self, path):
        self.store = Store(path)
        self.diaries = []

    def client(self, *notes, killed_at=None):
        lines = [json.dumps(note) for note in notes]
        self.diaries.append(Diary(f"c{len(self.diaries)}", lines, killed_at))

    def grant(self, fence, begin, end, deadline, key="k"):
        notes = [["granted", begin, key, fence], ["deadline", begin, key, fence, deadline]]
        self.client(*notes, *([["end", end, key, fence, "released"]] if end else []))

    def wrong(self, **options):
        verdict = Verdict(self.diaries, self.store, **options)
        found = {kind for kind, things in verdict.wrong.items() if things}
        assert verdict.is_good == (not found and verdict.used > 0)
        assert len(verdict.lines()) >= 6
        return found


@pytest.fixture
def stories(lab):
    it = Stories(lab.path("store"))
    yield it
    it.store.stop()


def test_one_after_the_other(stories):
    stories.grant(5, 1.0, 2.0, 3.0)
    stories.grant(6, 2.0, 9.0, 4.0)
    stories.grant(7, 4.0, None, 5.0)
    stories.grant(1, 1.0, 4.0, 5.0, key="another")
    assert stories.wrong() == set()


def test_nothing_granted_is_not_good(stories):
    assert stories.wrong() == set()
    assert not Verdict(stories.diaries, stories.store).is_good


def test_overlap(stories):
    stories.grant(5, 1.0, 2.0, 3.0)
    stories.grant(6, 1.999, 3.0, 4.0)
    assert stories.wrong() == {"overlaps"}


def test_overlap_with_one_that_is_not_its_neighbour(stories):
    stories.grant(5, 1.0, 9.0, 9.0)
    stories.grant(6, 2.0, 2.1, 4.0)
    stories.grant(7, 8.0, 8.1, 9.0)
    assert len(Verdict(stories.diaries, stories.store).wrong["overlaps"]) == 2


def test_overlap_until_a_deadline_that_came_later(stories):
    stories.client(["granted", 1.0, "k", 5], ["deadline", 1.0, "k", 5, 2.0],
                   ["deadline", 1.5, "k", 5, 3.0])
    stories.grant(6, 2.5, 2.6, 4.0)
    assert stories.wrong() == {"overlaps"}


def test_a_client_that_sleeps_past_its_deadline_relies_on_nothing(stories):
    stories.grant(5, 1.0, 9.0, 2.0)
    stories.grant(6, 2.0, 3.0, 3.0)
    stories.grant(4, 9.0, 9.5, 1.0)  # read when its time was over
    assert stories.wrong() == set()


def test_a_killed_client_relies_until_its_death(stories):
    stories.client(["granted", 1.0, "k", 5], ["deadline", 1.0, "k", 5, 4.0],
                   ["asked", 1.1, 1, "release"], killed_at=2.0)
    stories.grant(6, 2.0, 3.0, 4.0)
    assert stories.wrong() == set()
    stories.grant(7, 1.5, 1.6, 4.0)
    assert stories.wrong() == {"overlaps", "fence regressions"}


def test_a_client_without_its_broker_relies_until_its_deadline(stories):
    stories.client(["granted", 1.0, "k", 5], ["deadline", 1.0, "k", 5, 4.0], ["hangup", 1.5])
    stories.grant(6, 4.0, 5.0, 6.0)
    assert stories.wrong() == set()
    stories.grant(7, 3.9, 3.95, 6.0)
    assert stories.wrong() == {"overlaps", "fence regressions"}


def test_half_a_last_line(stories):
    stories.diaries.append(Diary("c", ['["granted", 1.0, "k", 5]', '["deadli'], 2.0))
    assert stories.wrong() == set()


def test_fence_regression(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    stories.grant(5, 2.0, 3.0, 4.0)
    assert stories.wrong() == {"fence regressions"}


def test_a_fence_given_twice(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    stories.grant(6, 5.0, 5.0, 4.0)
    assert stories.wrong() == {"fence regressions"}


def test_lost_update(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    assert stories.store.access("read", "k", 6, None) == 0
    assert stories.store.access("write", "k", 6, 0) == 1
    assert stories.wrong() == set()
    assert stories.store.access("write", "k", 6, 0) == 1
    assert stories.wrong() == {"lost updates"}


def test_writes_that_do_not_add_up(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    stories.store.access("write", "k", 6, 0)
    stories.store.values["k"] = 7
    assert stories.wrong() == {"lost updates"}


def test_the_store_refuses_old_fences(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    assert stories.store.access("read", "k", 7, None) == 0
    assert stories.store.access("write", "k", 6, 0) is None
    assert stories.store.access("read", "k", 6, None) is None
    assert stories.store.values["k"] == 0 and stories.wrong() == set()


def test_refused_by_the_store_while_the_grant_is_good(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    stories.store.accesses.append(Access(2.5, "k", 6, "write", False))
    assert stories.wrong() == set()
    stories.store.accesses.append(Access(1.5, "k", 6, "write", False))
    assert stories.wrong() == {"overlaps"}


def test_orphans_and_the_starved(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    assert stories.wrong(orphans=["k"]) == {"orphans"}
    assert stories.wrong(starved=["c0"]) == {"starved"}


def test_unanswered(stories):
    stories.grant(6, 1.0, 2.0, 3.0)
    stories.client(["asked", 1.0, 1, "acquire"], ["hangup", 2.0], ["connected", 2.1],
                   ["asked", 3.0, 1, "check"], ["answered", 3.1, 1])
    assert stories.wrong() == set()
    stories.client(["asked", 1.0, 1, "acquire"])
    assert stories.wrong() == {"unanswered"}
