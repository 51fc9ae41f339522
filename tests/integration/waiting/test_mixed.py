"""Brokers and programs that know nothing of them want the same lock: all of them get it."""

import threading
import time

import pytest
import redis as redis_py
from contest import Load, Store, say, wait_channels
from lockbroker import LOCK_PREFIX, wait_until

T = 3000  # ms
STRANGERS = 4
ENOUGH = 3     # grants of each stranger
LONGEST_S = 60  # far more than it takes: a test of progress, not of speed


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


class Stranger:
    """A program that takes the lock as redis-py does, with a poll each 0.1 s."""

    def __init__(self, redis, store_path, key, number):
        self.grants = 0
        self.waits_s = []
        self.error = None
        self._number = number
        self._store = Store(store_path)
        self._client = redis_py.Redis(unix_socket_path=redis.path)
        self._lock = self._client.lock(LOCK_PREFIX + key, timeout=T / 1000)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while not self._ending.is_set():
                self._once()
        except (redis_py.RedisError, OSError) as error:
            self.error = error

    def _once(self):
        start = time.monotonic()
        if not self._lock.acquire(blocking_timeout=1):
            return
        self.waits_s.append(time.monotonic() - start)
        base = self._store.enter(-self._number)
        time.sleep(0.005)
        self._store.leave(-self._number, base)
        self._lock.release()
        self.grants += 1
        time.sleep(0.01)

    def stop(self):
        self._ending.set()
        self._thread.join(30)
        self._client.close()
        self._store.close()


def test_all_make_progress(lab, redis, store, key):
    daemons = [lab.daemon(redis) for _ in range(2)]
    wait_channels(redis, 2)
    start = time.monotonic()
    with Load(key, *daemons, connections=4, hold_us=1000, ttl=T, store=store) as main:
        strangers = [Stranger(redis, store.path, key, n) for n in range(1, STRANGERS + 1)]
        try:
            wait_until(lambda: all(s.grants >= ENOUGH or s.error for s in strangers) and
                       time.monotonic() - start > 4, "all get the lock", timeout=LONGEST_S)
        finally:
            main.end()
            for stranger in strangers:
                stranger.stop()
        run = main.report()
    took_s = time.monotonic() - start
    say(took_s=took_s, strangers=[s.grants for s in strangers], brokers=run["grants"],
        brokers_longest_ms=run["waits_us"]["max"] / 1000,
        strangers_longest_s=max(max(s.waits_s) for s in strangers))
    assert not [s.error for s in strangers if s.error]
    run.assert_smooth()
    store.assert_clean(run.total + sum(s.grants for s in strangers))
    assert min(run["grants"]) >= ENOUGH, run["grants"]
    shares = sum(run["grants"][:4]), sum(run["grants"][4:])
    assert min(shares) >= 0.25 * max(shares), shares


def test_a_stranger_meets_one_busy_host(lab, redis, store, key):
    """The host's clients hand the lock on without end; nothing says that somebody else waits."""
    daemon = lab.daemon(redis, yield_after="500ms")
    with Load(key, daemon, connections=8, hold_us=200, ttl=T, store=store) as main:
        wait_until(lambda: store.figures()["entries"] > 100, "the host is at it")
        crowd = [Stranger(redis, store.path, key, n) for n in range(1, 3)]
        try:
            wait_until(lambda: all(s.grants >= ENOUGH or s.error for s in crowd),
                       "the strangers get the lock", timeout=LONGEST_S)
        finally:
            main.end()
            for stranger in crowd:
                stranger.stop()
        run = main.report()
    say(strangers=[s.grants for s in crowd], brokers=run.total,
        longest_s=max(max(s.waits_s) for s in crowd))
    assert not [s.error for s in crowd if s.error]
    store.assert_clean(run.total + sum(s.grants for s in crowd))
    assert run["lost"] == 0 and run.total > 200


def test_a_strangers_lock_that_is_given_back_is_found(redis, daemon, client, key):
    """Nobody tells of it: it is polled for, ever more slowly, up to retry_max."""
    theirs = redis.client.lock(LOCK_PREFIX + key, timeout=T / 1000 * 10)
    assert theirs.acquire()
    waiting = client.send("acquire", key=key, wait_ms=-1)
    time.sleep(1.5)
    assert not client.has(id=waiting)
    theirs.release()
    start = time.monotonic()
    assert client.reply(waiting)["ok"] is True
    assert time.monotonic() - start < 5


def test_strangers_and_brokers_exclude_each_other(redis, daemon, client, key):
    theirs = redis.client.lock(LOCK_PREFIX + key, timeout=T / 1000 * 10)
    assert theirs.acquire()
    reply = client.fails("busy", "acquire", key=key)
    assert reply["holder"]["kind"] == "foreign"
    theirs.release()
    client.ok("acquire", key=key)
    assert not theirs.acquire(blocking=False)
    waiting = client.send("acquire", key=key, owner="next", wait_ms=-1)
    client.ok("release", key=key)
    assert client.reply(waiting)["ok"] is True
    assert not theirs.acquire(blocking=False)  # handed on: it was never free
