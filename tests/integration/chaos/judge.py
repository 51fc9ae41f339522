"""Judges what happened: the clients' diaries and the store's accesses against what locks promise.

A grant was relied on from when its client had read it until the client stopped, was killed, or the
last deadline that it had been told was over, whichever came first. Nothing here knows how brokers
work.
"""

import collections
import json

COUNTS = ("overlaps", "lost updates", "fence regressions", "orphans", "unanswered", "starved")


class Grant:
    def __init__(self, client, key, fence, begin):
        self.client = client
        self.key = key
        self.fence = fence
        self.begin = begin
        self.deadline = begin
        self.stopped = None

    @property
    def end(self):
        """Until when it was relied on."""
        return self.deadline if self.stopped is None else min(self.stopped, self.deadline)

    @property
    def was_used(self):
        return self.begin < self.end

    def __repr__(self):
        return (f"{self.key} fence {self.fence} of {self.client}: {self.begin:.4f} .. "
                f"{self.end:.4f}, deadline {self.deadline:.4f}")


class Diary:
    """What one process of a client wrote, read after its end."""

    def __init__(self, client, lines, killed_at=None):
        self.client = client
        self.grants = {}
        self.pending = {}    # id: (operation, when)
        self.operations = 0
        self.refusals = collections.Counter()
        self.releases = collections.Counter()
        for line in lines:
            try:
                word, at, *details = json.loads(line)
            except ValueError:
                continue  # the last one, when it was killed within it
            self._take_in(word, at, details)
        if killed_at is not None:
            self.pending.clear()
            for grant in self.grants.values():
                if grant.stopped is None:
                    grant.stopped = killed_at

    def _take_in(self, word, at, details):
        if word == "granted":
            key, fence = details
            self.grants[key, fence] = Grant(self.client, key, fence, at)
        elif word == "deadline":
            key, fence, deadline = details
            self.grants[key, fence].deadline = deadline
        elif word == "end":
            self.grants[details[0], details[1]].stopped = at
        elif word == "asked":
            self.pending[details[0]] = (details[1], at)
            self.operations += 1
        elif word == "answered":
            self.pending.pop(details[0])
        elif word == "hangup":
            self.pending.clear()
        elif word == "connected":
            assert not self.pending
        elif word == "refused":
            self.refusals[details[1] if not details[2] else f"{details[1]}/{details[2]}"] += 1
        elif word == "released":
            self.releases[details[2]] += 1


def overlaps(grants):
    """Pairs of grants of one key that were relied on at one time."""
    found = []
    latest = {}
    for grant in sorted((g for g in grants if g.was_used), key=lambda g: g.begin):
        before = latest.get(grant.key)
        if before and grant.begin < before.end:
            found.append((before, grant))
        if not before or grant.end > before.end:
            latest[grant.key] = grant
    return found


def regressions(grants):
    """Pairs of grants of one key whose fences are the same, or in another order than their use."""
    found = []
    highest = {}
    for grant in sorted((g for g in grants if g.was_used), key=lambda g: g.begin):
        before = highest.get(grant.key)
        if before and grant.fence <= before.fence:
            found.append((before, grant))
        else:
            highest[grant.key] = grant
    known = {}
    for grant in grants:
        before = known.setdefault((grant.key, grant.fence), grant)
        if before is not grant and (before, grant) not in found:
            found.append((before, grant))
    return found


def fenced_while_valid(grants, accesses):
    """Accesses that were refused for their fence although their grant was still good."""
    by_name = {(grant.key, grant.fence): grant for grant in grants}
    found = []
    for access in accesses:
        grant = by_name.get((access.key, access.fence))
        if not access.accepted and grant and grant.begin <= access.at < grant.end:
            found.append((grant, access))
    return found


class Verdict:
    """What is wrong, by kind: each a list of the things themselves."""

    def __init__(self, diaries, store, orphans=(), starved=()):
        grants = [grant for diary in diaries for grant in diary.grants.values()]
        self.grants = len(grants)
        self.used = sum(grant.was_used for grant in grants)
        self.wrong = {
            "overlaps": overlaps(grants) + fenced_while_valid(grants, store.accesses),
            "lost updates": ["an update"] * store.lost_updates + [
                f"{key}: {count} writes made {store.values[key]}"
                for key, count in store.writes.items()
                if count != store.values[key] and not store.lost_updates],
            "fence regressions": regressions(grants),
            "orphans": list(orphans),
            "unanswered": [(diary.client, *pending) for diary in diaries
                           for pending in diary.pending.values()],
            "starved": list(starved),
        }

    @property
    def is_good(self):
        return self.used > 0 and not any(self.wrong.values())

    def lines(self):
        """For people: a count each, and the first few of what is wrong."""
        told = [f"{kind:24} {len(self.wrong[kind])}" for kind in COUNTS]
        for kind, things in self.wrong.items():
            told += [f"  {kind}: {thing}" for thing in things[:5]]
        return told
