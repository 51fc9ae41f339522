"""Chaos: a workload under faults at random, then the judgement; by hand for as long as you like.

    LOCKBROKERD=build/bin/lockbrokerd CHAOS_SECONDS=1800 python3 tests/integration/chaos/run.py

CHAOS_SEED sets the seed (else a fresh one), CHAOS_CLIENTS how many clients there are, CHAOS_FAULTS
the names of the faults, with commas between them (else all of faults.py). CHAOS_DATA_LOSS=ignore
shows what happens without the quarantine.

The seed settles which faults each troublemaker chooses and how long they last; what the processes
make of it no two runs have in common. It ends with a table, and with 0 only if nothing was wrong
and locks were granted.
"""

import collections
import contextlib
import io
import os
import random
import secrets
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))

from faults import KINDS, Hands  # noqa: E402
from judge import Verdict  # noqa: E402
from world import World  # noqa: E402

TROUBLEMAKERS = 2
CLIENTS = 12


class Trouble(threading.Thread):
    """Makes one fault after the other, all kinds before any comes again."""

    def __init__(self, world, hands, names, number, counts):
        super().__init__(daemon=True)
        self.world = world
        self.hands = hands
        self.names = names
        self.rng = random.Random(f"{world.seed}/{number}")
        self.counts = counts
        self.ending = threading.Event()
        self.bag = []
        self.error = None

    def run(self):
        try:
            while not self.ending.is_set():
                self.next_fault()
        except Exception as error:  # for the main thread
            self.error = error

    def next_fault(self):
        if not self.bag:
            self.bag = [kind for kind in KINDS.values() for _ in range(kind.times)
                        if kind.needs(self.world) and kind.name in (self.names or KINDS)]
            self.rng.shuffle(self.bag)
        kind = self.bag.pop()
        taken = self.hands.take(kind, self.rng)
        if not taken:
            self.bag.insert(0, kind)
            self.ending.wait(0.02)
            return
        thing, locks = taken
        try:
            kind.act(self.world, self.rng, thing)
        finally:
            for lock in locks:
                lock.release()
        self.counts[kind.name] += 1
        self.ending.wait(self.rng.choice([0, 0.1, 0.5, 1]))


def make_trouble(world, seconds, names, counts):
    hands = Hands(world)
    troubles = [Trouble(world, hands, names, n, counts) for n in range(TROUBLEMAKERS)]
    for trouble in troubles:
        trouble.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(trouble.error for trouble in troubles):
        time.sleep(0.1)
        if int(end - time.monotonic()) % 60 == 0 and seconds > 120:
            print(f"{seconds - int(end - time.monotonic())} s, {sum(counts.values())} faults, "
                  f"{len(world.store.accesses)} accesses", flush=True)
            time.sleep(1)
    for trouble in troubles:
        trouble.ending.set()
    for trouble in troubles:
        trouble.join(120)
        if trouble.error:
            raise trouble.error
        assert not trouble.is_alive(), "a fault does not end"


def table(seed, verdict, diaries, store, counts):
    refusals = sum((diary.refusals for diary in diaries), collections.Counter())
    releases = sum((diary.releases for diary in diaries), collections.Counter())
    refused = sum(not access.accepted for access in store.accesses)
    yield f"-- seed {seed}"
    yield f"{'operations':24} {sum(diary.operations for diary in diaries)}"
    yield f"{'grants':24} {verdict.grants}, {verdict.used} of them used"
    yield f"{'refusals':24} " + ", ".join(f"{name} {n}" for name, n in refusals.most_common())
    yield f"{'releases':24} " + ", ".join(f"{name} {n}" for name, n in releases.most_common())
    yield f"{'updates':24} {sum(store.writes.values())}; accesses fenced off: {refused}"
    yield f"{'faults':24} {sum(counts.values())} of {len(counts)} kinds"
    yield from (f"  {name:38} {count}" for name, count in sorted(counts.items()))
    yield from verdict.lines()


def chaos(seed, seconds, clients=CLIENTS, names=(), flaw=None):
    """Runs it, with faults of these names or of all, prints the table, and returns the verdict."""
    print(f"chaos: seed {seed}; again: CHAOS_SEED={seed} CHAOS_SECONDS={seconds}", flush=True)
    counts = collections.Counter()
    with contextlib.ExitStack() as stack:
        world = World(seed, clients, flaw)
        logs = io.StringIO()  # of the brokers; shown only where something is wrong
        stack.callback(stop_quietly, world, logs)
        for missing in world.missing:
            print(f"NOT TRIED: {missing}", flush=True)
        make_trouble(world, seconds, names, counts)
        world.wait_up()
        starved = world.starved()
        orphans = world.finish()
        diaries = world.diaries()
        verdict = Verdict(diaries, world.store, orphans, starved)
        print("\n".join(table(seed, verdict, diaries, world.store, counts)), flush=True)
    if not verdict.is_good:
        print(logs.getvalue()[-100000:])
    return verdict


def stop_quietly(world, logs):
    with contextlib.redirect_stdout(logs):
        world.stop()


def fresh_seed():
    return secrets.randbelow(2 ** 31)


def settings():
    """The seed and the seconds that the environment asks for, or None each."""
    seed, seconds = os.environ.get("CHAOS_SEED"), os.environ.get("CHAOS_SECONDS")
    return int(seed) if seed else None, int(seconds) if seconds else None


def main():
    seed, seconds = settings()
    names = [name for name in os.environ.get("CHAOS_FAULTS", "").split(",") if name]
    assert set(names) <= set(KINDS), set(names) - set(KINDS)
    verdict = chaos(fresh_seed() if seed is None else seed, seconds or 60,
                    int(os.environ.get("CHAOS_CLIENTS", CLIENTS)), names)
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
