"""A released lock that nobody waits for stays a moment for the next on this host, and for it alone."""

import pytest
from contest import Load, Store, counters, growth, load, wait_channels
from lockbroker import wait_until

T = 3000        # ms
LONG_MS = 1000  # longer than a test's step takes, shorter than what it waits for


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


def brokers(lab, redis, count, linger_ms=LONG_MS):
    found = [lab.daemon(redis, linger=f"{linger_ms}ms") for _ in range(count)]
    wait_channels(redis, count)
    return found


def take_and_give(client, key):
    fence = client.ok("acquire", key=key, ttl_ms=T)["fence"]
    assert client.ok("release", key=key)["outcome"] == "released"
    return fence


def test_the_next_needs_no_redis(lab, redis, key):
    """Whoever it is, and be it one that does not wait."""
    daemon, = brokers(lab, redis, 1)
    one, other = daemon.client(), daemon.client()
    fences = [take_and_give(one, key)]
    scripts = redis.commands("evalsha", "eval")
    fences += [take_and_give(client, key) for client in (one, other, one, other)]
    assert redis.commands("evalsha", "eval") == scripts
    assert fences == sorted(set(fences))
    assert redis.value(key)
    wait_until(lambda: redis.value(key) is None, "the key is given back")
    assert counters(daemon)["lingers"] == 5


def test_off_by_default(redis, daemon, key):
    take_and_give(daemon.client(), key)
    assert redis.value(key) is None
    assert counters(daemon)["lingers"] == 0


def test_another_host_gets_it_at_once(lab, redis, key):
    """Its asking is the word that ends the lingering: it is granted long before the time is over.

    The machine may be busy once, but a lock that lingered to its end would do so each time.
    """
    here, there = brokers(lab, redis, 2)
    one, other = here.client(), there.client()
    waits = []
    for _ in range(5):
        first = take_and_give(one, key)
        granted = other.ok("acquire", key=key, ttl_ms=T, wait_ms=-1)
        assert granted["fence"] > first
        assert granted["waited_ms"] < LONG_MS
        waits.append(granted["waited_ms"])
        one.fails("busy", "acquire", key=key)
        other.ok("release", key=key)
        wait_until(lambda: redis.value(key) is None, "the other host's lingering is over")
    assert min(waits) < LONG_MS / 4, waits


def test_hosts_take_turns_all_the_same(lab, redis, store, key):
    """A client each that takes the lock again at once: neither host starves, nor do two have it."""
    here, there = brokers(lab, redis, 2, linger_ms=20)
    before = counters(here)
    with Load(key, here, connections=1, ms=2000, ttl=T, store=store) as one, \
            Load(key, there, connections=1, ms=2000, ttl=T, store=store) as two:
        reports = [one.report(), two.report()]
    for report in reports:
        report.assert_smooth()
    store.assert_clean(sum(report.total for report in reports))
    assert min(report.total for report in reports) >= 20
    assert growth(before, counters(here))["turns_given"] >= 10


def test_again_and_again(lab, redis, store, key):
    """One client without a rival: one look at Redis for some hundred grants."""
    daemon, = brokers(lab, redis, 1)
    take_and_give(daemon.client(), key)
    scripts = redis.commands("evalsha", "eval")
    run = load(key, daemon, connections=1, rounds=2000, ttl=T, store=store)
    run.assert_smooth()
    store.assert_clean(run.total)
    assert redis.commands("evalsha", "eval") - scripts <= run.total * 0.02 + 10 * run.seconds


def test_the_end_of_a_client_leaves_nothing(lab, redis, key):
    daemon, = brokers(lab, redis, 1)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=T)
    client.close()
    wait_until(lambda: redis.value(key) is None, "the key is given back")
    assert counters(daemon)["lingers"] == 0


def test_killed_meanwhile_it_is_free_after_the_ttl(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    take_and_give(here.client(), key)
    here.kill()
    assert 0 < redis.pttl(key) <= T
    there.client().ok("acquire", key=key, ttl_ms=T, wait_ms=-1)


def test_drain_gives_it_back(lab, redis, key):
    daemon, = brokers(lab, redis, 1)
    take_and_give(daemon.client(), key)
    daemon.sigterm()
    daemon.wait_exit()
    assert redis.value(key) is None


def test_what_is_said_of_it(lab, redis, key):
    """Held by this broker, by no client; and it can be broken."""
    daemon, = brokers(lab, redis, 1)
    client = daemon.client()
    take_and_give(client, key)
    told = client.ok("query", key=key)
    assert told["held"] and told["holder"]["kind"] == "local" and "owner" not in told["holder"]
    client.ok("break", key=key, reason="test")
    assert redis.value(key) is None
    take_and_give(client, key)
