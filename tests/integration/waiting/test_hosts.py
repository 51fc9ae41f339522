"""Several hosts want one lock: each gets its share, in turns, and is woken when it is free."""

import time

import pytest
from contest import (Load, Store, counters, growth, load, queue, queue_name, runs, say,
                     wait_channels, wait_queue, wait_waiters, wake_ms)
from lockbroker import LOCK_PREFIX, now_ms, wait_until

T = 3000         # ms
GRANTS_MAX = 16  # in a row, while another host waits: the default of handoff_grants_max
CONTEST_MS = 3000


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


def brokers(lab, redis, count, **options):
    """So many hosts, which all hear of turns."""
    found = [lab.daemon(redis, **options) for _ in range(count)]
    wait_channels(redis, count)
    return found


def assert_turns(records, hosts, bound=GRANTS_MAX):
    """No host was served more often in a row than the bound once it knew that another waits.

    It cannot know before the other's next acquire has come to Redis: who has just given the lock
    back queues again a moment later, and what is granted until then, mostly the first one, does not
    count. Hence a median, and room for moments in which this machine was busy elsewhere. The first
    runs may be without bound, since not all hosts wait yet.
    """
    in_a_row = sorted(length for _, length in runs(records)[2 * hosts:])
    assert len(in_a_row) > 4 * hosts, in_a_row
    median, most = in_a_row[len(in_a_row) // 2], in_a_row[len(in_a_row) * 9 // 10]
    say(turns=len(in_a_row), median=median, most=most, longest=in_a_row[-1])
    assert median <= bound + 2 and most <= 2 * bound, in_a_row


def passed_over(records, hosts):
    """For each turn of a host, how many turns of others lay between it and its last one."""
    order = [broker for broker, _ in runs(records)]
    last, found = {}, []
    for at, broker in enumerate(order):
        if broker in last:
            found.append(at - last[broker] - 1)
        last[broker] = at
    assert len(last) == hosts
    return found


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_take_turns(lab, redis, store, key, hosts):
    daemons = brokers(lab, redis, hosts)
    before = [counters(daemon) for daemon in daemons]
    scripts = redis.commands("evalsha", "eval")
    run = load(key, *daemons, connections=8, ms=CONTEST_MS, ttl=T, hold_us=300, store=store,
               records=True)
    scripts = redis.commands("evalsha", "eval") - scripts
    run.assert_smooth()
    store.assert_clean(run.total)
    shares = [sum(run["grants"][8 * n:8 * n + 8]) for n in range(hosts)]
    between = passed_over(run["records"], hosts)
    say(hosts=hosts, per_s=run.total / run.seconds, shares=shares, scripts_per_grant=scripts / run.total,
        between_turns_max=max(between), **run["waits_us"])
    assert all(0.8 * run.total / hosts <= share <= 1.2 * run.total / hosts for share in shares), shares
    assert_turns(run["records"], hosts)
    # Who queues is passed by each other host once.
    late = [count for count in between if count > hosts - 1]
    assert len(late) <= 2 * hosts + len(between) * 0.02, (late, len(between))
    grew = [growth(old, counters(daemon)) for old, daemon in zip(before, daemons)]
    assert sum(g["turns_taken"] for g in grew) >= 0.5 * len(runs(run["records"])), grew
    wait_until(lambda: redis.value(key) is None, "the lock is given back")
    wait_until(lambda: redis.client.get(queue_name(key)) is None, "the queue's key is gone",
               timeout=15)


def test_a_host_alone_keeps_its_lock_until_another_comes(lab, redis, store, key):
    """Runs are unbounded, then bounded, then unbounded again."""
    here, there = brokers(lab, redis, 2)
    with Load(key, here, connections=4, ms=3000, hold_us=300, store=store, records=True) as main:
        wait_until(lambda: store.figures()["entries"] > 200, "a run that nothing bounds")
        guest = load(key, there, connections=4, rounds=100, hold_us=300, store=store, records=True)
        run = main.report()
    for report in (run, guest):
        report.assert_smooth()
    store.assert_clean(run.total + guest.total)
    for record in guest["records"]:
        record[1] = 1
    guest_fences = sorted(record[0] for record in guest["records"])
    first, last = guest_fences[0], guest_fences[-1]
    assert sum(record[0] < first for record in run["records"]) >= 200
    between = [record for record in run["records"] + guest["records"] if first <= record[0] <= last]
    assert_turns(between, 2)
    alone_after = [record for record in run["records"] if record[0] > last]
    say(before=sum(record[0] < first for record in run["records"]), between=len(between),
        after=len(alone_after))


def test_each_gets_the_lock_that_comes_first_also_over_hosts(lab, redis, key):
    """Three hosts come in a known order and are served in it."""
    daemons = brokers(lab, redis, 4)
    holder, *others = [daemon.client() for daemon in daemons]
    holder.ok("acquire", key=key, ttl_ms=10000)
    asked = []
    for n, client in enumerate(others, 1):
        asked.append(client.send("acquire", key=key, ttl_ms=10000, wait_ms=-1))
        wait_queue(redis, key, n)
    order = queue(redis, key)
    fences = [holder.ok("check", key=key)["fence"]]
    holder.ok("release", key=key)
    for n, client in enumerate(others):
        fences.append(client.reply(asked[n])["fence"])
        assert not any(others[m].has(id=asked[m]) for m in range(n + 1, 3))
        assert queue(redis, key) == order[n + 1:]
        assert client.ok("release", key=key)["outcome"] == "released"
    assert fences == sorted(set(fences))
    assert redis.client.get(queue_name(key)) is None


def test_a_key_of_the_queue_always_expires(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    with Load(key, here, there, connections=4, ms=2000) as run:
        seen, end = 0, time.monotonic() + 1.5
        while time.monotonic() < end:
            pipe = redis.client.pipeline(transaction=True)
            pipe.exists(queue_name(key))
            pipe.pttl(queue_name(key))
            exists, ttl_ms = pipe.execute()
            seen += exists
            assert not exists or 0 < ttl_ms <= 60000, ttl_ms
            time.sleep(0.002)
        run.report().assert_smooth()
    assert seen > 10, seen
    names = [name for name in redis.client.scan_iter("*", count=1000)
             if not name.startswith(LOCK_PREFIX)]
    assert set(names) <= {"lockbroker:meta:fence", "lockbroker:meta:epoch", queue_name(key)}, names


def deaf_broker(lab, redis):
    """A broker that may not subscribe."""
    redis.client.execute_command("ACL", "SETUSER", "deaf", "on", ">word", "~*", "+@all", "&*",
                                 "-subscribe")
    return lab.daemon(f"redis://deaf:word@127.0.0.1:{redis.port}/0")


def test_push_is_much_quicker_than_polling(lab, key):
    redis = lab.redis(tcp=True)
    here, there = (daemon.client() for daemon in brokers(lab, redis, 2))
    deaf = deaf_broker(lab, redis).client()
    assert here.ok("ping")["backend"] == deaf.ok("ping")["backend"] == "up"
    polled = wake_ms(key + "-polled", here, deaf, 9, 0.4)
    pushed = wake_ms(key + "-pushed", here, there, 25, 0.05)
    say(pushed_ms=pushed, polled_ms=polled, ratio=polled / pushed)
    assert pushed * 5 <= polled, (pushed, polled)


def test_a_deaf_host_among_others(lab, store, key):
    """It polls, bars nobody's way, and gets the lock all the same."""
    redis = lab.redis(tcp=True)
    deaf, *others = deaf_broker(lab, redis), *brokers(lab, redis, 2)
    run = load(key, deaf, *others, connections=4, ms=3000, hold_us=200, store=store)
    run.assert_smooth()
    store.assert_clean(run.total)
    shares = [sum(run["grants"][4 * n:4 * n + 4]) for n in range(3)]
    say(shares=shares, **run["waits_us"])
    assert min(shares) >= 0.02 * run.total, shares


@pytest.mark.parametrize("other", ["hears", "deaf"])
def test_a_deaf_host_and_one_more(lab, store, key, other):
    """Nobody gives turns: each has to leave the lock free now and then by itself."""
    redis = lab.redis(tcp=True)
    deaf = deaf_broker(lab, redis)
    [second] = brokers(lab, redis, 1) if other == "hears" else [deaf_broker(lab, redis)]
    with Load(key, second, connections=8, hold_us=200, store=store) as crowd:
        wait_until(lambda: store.figures()["entries"] > 100, "the other host is at it")
        run = load(key, deaf, connections=8, rounds=5, hold_us=200, store=store)
        crowd.end()
        main = crowd.report()
    say(other=other, seconds=run.seconds, others=main.total, **run["waits_us"])
    run.assert_smooth()
    main.assert_smooth()
    store.assert_clean(run.total + main.total)


def test_waiters_of_one_host_are_one_in_the_queue(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=10000)
    crowd = there.client()
    asked = [crowd.send("acquire", key=key, owner=f"o{n}", wait_ms=-1) for n in range(200)]
    wait_waiters(there, key, 200)
    wait_queue(redis, key, 1)
    assert redis.client.strlen(queue_name(key)) < 60
    scripts, start = redis.commands("evalsha", "eval"), time.monotonic()
    time.sleep(1.5)
    scripts = redis.commands("evalsha", "eval") - scripts
    assert scripts <= 10 * (time.monotonic() - start), scripts
    holder.ok("release", key=key)
    fences = []
    for n, request in enumerate(asked):
        fences.append(crowd.reply(request)["fence"])
        crowd.send("release", key=key, owner=f"o{n}")
    assert fences == sorted(set(fences))


def test_a_handed_on_lock_is_excluded_elsewhere(lab, redis, key):
    """Between two grants of one host the key is never free."""
    here, there = brokers(lab, redis, 2)
    with Load(key, here, connections=6, ms=1500, ttl=T):
        probe, tries = there.client(), 0
        wait_until(lambda: redis.value(key), "it is held")
        end = now_ms() + 1200
        while now_ms() < end:
            reply = probe.request("acquire", key=key, wait_ms=0, owner=f"o{tries}")
            assert reply["ok"] is False and reply["error"] == "busy", reply
            assert reply["holder"]["kind"] == "broker", reply
            tries += 1
    assert tries > 20
