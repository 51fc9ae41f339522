"""Many clients of two brokers while Redis and the brokers are stopped and cut off at random.

A referee that sees all clients' clocks checks afterwards that no two ever relied on one lock at the
same time and that fences rose; and everybody gets a turn again once the faults are over.
"""

import random
import threading
import time

import pytest
from lockbroker import now_ms, wait_until

TTL_MS = 3000
FAULTS_S = 30


class Worker(threading.Thread):
    """Takes a lock, works under it for a while, gives it back, and keeps a diary."""

    def __init__(self, client, seed, keys):
        super().__init__(daemon=True)
        self.client = client
        self.rng = random.Random(seed)
        self.keys = keys
        self.stop = threading.Event()
        self.turns = []  # (key, fence, from, to): when it relied on the lock
        self.failures = {}
        self.error = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.turn(self.rng.choice(self.keys))
        except Exception as error:  # kept for the test's own thread
            self.error = error

    def turn(self, key):
        grant = self.client.request("acquire", timeout=60, key=key, ttl_ms=TTL_MS, wait_ms=4000)
        if not grant["ok"]:
            assert grant["error"] in ("timeout", "unavailable"), grant
            self.failures[grant["error"]] = self.failures.get(grant["error"], 0) + 1
            return
        time.sleep(self.rng.uniform(0, 0.3))
        ends = [now_ms(), grant["deadline_ms"]]
        ends += [m.arrived_ms for m in list(self.client.received)
                 if m.get("event") == "lost" and m["fence"] == grant["fence"]]
        if min(ends) > grant.arrived_ms:
            self.turns.append((key, grant["fence"], grant.arrived_ms, min(ends)))
        self.client.ok("release", timeout=60, key=key, fence=grant["fence"])


def stop_for_a_while(process, rng):
    process.sigstop()
    time.sleep(rng.choice([0.2, 0.8, 2, 4]))
    process.sigcont()


def make_trouble(rng, redis, daemons):
    fault = rng.randrange(4)
    if fault == 0:
        stop_for_a_while(redis, rng)
    elif fault == 1:
        stop_for_a_while(rng.choice(daemons), rng)
    elif fault == 2:
        redis.client.client_kill_filter(_type="normal", skipme=True)
    else:
        redis.client.execute_command("CLIENT", "PAUSE", rng.choice([50, 300, 1500]), "WRITE")
    time.sleep(rng.uniform(0, 0.7))


def assert_no_two_at_once(turns):
    for key in {turn[0] for turn in turns}:
        ordered = sorted((t for t in turns if t[0] == key), key=lambda turn: turn[2:])
        for one, two in zip(ordered, ordered[1:]):
            assert one[3] <= two[2], (one, two)
            assert one[1] < two[1], (one, two)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_two_hold_at_once_whatever_happens(lab, redis, key, seed):
    rng = random.Random(seed)
    daemons = [lab.daemon(redis, name=name) for name in ("one", "two")]
    keys = [f"{key}-{n}" for n in range(3)]
    workers = [Worker(daemons[n % 2].client(), seed * 100 + n, keys) for n in range(12)]
    for worker in workers:
        worker.start()
    end = time.monotonic() + FAULTS_S
    while time.monotonic() < end:
        make_trouble(rng, redis, daemons)

    # All is well again: everybody gets a turn, and at the end nothing is left behind.
    turns = [len(worker.turns) for worker in workers]
    for n, worker in enumerate(workers):
        wait_until(lambda w=worker, m=n: len(w.turns) > turns[m] or w.error, "a turn", timeout=60)
    for worker in workers:
        worker.stop.set()
    for worker in workers:
        worker.join(90)
        assert worker.error is None, worker.error
    everything = [turn for worker in workers for turn in worker.turns]
    print(len(everything), "turns;", [worker.failures for worker in workers])
    assert len(everything) > 50
    assert_no_two_at_once(everything)
    wait_until(lambda: redis.locks() == [], "no lock key is left", timeout=10)
