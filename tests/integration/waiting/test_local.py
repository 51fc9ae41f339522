"""Many clients of one host: who comes first is served first, and Redis has no part in it."""

import json
import time

import pytest
from contest import Load, Store, counters, growth, jain, load, say
from lockbroker import connect, lease_ms, margin_ms, now_ms, wait_until

T = 3000  # ms


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


def quiet_start(redis, daemon):
    """What the calls are counted from; commands of the start are not among them."""
    client = daemon.client()
    client.ok("acquire", key="first")
    client.ok("release", key="first")
    client.close()
    return redis.commands("evalsha", "eval"), redis.commands("del"), counters(daemon)


@pytest.mark.parametrize("clients, rounds", [(8, 500), (100, 100)])
def test_hand_off_needs_no_redis(redis, daemon, store, key, clients, rounds):
    scripts, deleted, before = quiet_start(redis, daemon)
    run = load(key, daemon, connections=clients, rounds=rounds, ttl=T, store=store)
    run.assert_smooth()
    store.assert_clean(clients * rounds)
    grew = growth(before, counters(daemon))
    scripts = redis.commands("evalsha", "eval") - scripts
    say(clients=clients, grants=run.total, per_s=run.total / run.seconds, scripts=scripts,
        handoffs=grew["handoffs"], refills=grew["refills"], **run["waits_us"])
    assert run.total == clients * rounds
    assert scripts <= run.total * 0.02 + 10 * run.seconds, "more than renewals and refills"
    # Who comes while nobody else waits, or nobody waits any more, is at the two ends.
    assert redis.commands("del") - deleted <= 10 + run.total * 0.005
    assert grew["handoffs"] >= run.total * 0.9
    assert grew["granted"] == run.total
    # Refills are renewals too, as counted.
    assert grew["renewals"] + grew["attempts"] <= run.total * 0.02 + 10 * run.seconds


@pytest.mark.parametrize("clients", [8, 100])
def test_the_order_of_arrival_is_the_order_of_grants(daemon, store, key, clients):
    """All on one connection, so that the broker's order of arrival is that of the sending."""
    run = load(key, daemon, connections=1, owners=clients, rounds=2000 // clients, store=store)
    run.assert_smooth()
    store.assert_clean()
    assert run["out_of_order"] == 0, run["passed_max"]


def test_everybody_gets_the_same_share(daemon, store, key):
    run = load(key, daemon, connections=40, ms=1500, store=store)
    run.assert_smooth()
    store.assert_clean(run.total)
    say(jain=jain(run["grants"]), grants=run.total)
    assert jain(run["grants"]) >= 0.99 or max(run["grants"]) - min(run["grants"]) <= 1


def test_a_queue_behind_a_holder_is_served_in_order(daemon, key):
    """Connections of their own, one after the other; some leave in between."""
    holder, waiters = daemon.client(), [daemon.client() for _ in range(12)]
    holder.ok("acquire", key=key)
    asked = []
    for client in waiters:
        asked.append(client.send("acquire", key=key, wait_ms=-1))
        client.ok("ping")  # by now the acquire before it is in the queue
    for n in (0, 5, 11):
        waiters[n].ok("cancel", target=asked[n])
        assert waiters[n].reply(asked[n])["error"] == "cancelled"
    waiters[7].close()
    fences = [holder.ok("check", key=key)["fence"]]
    holder.ok("release", key=key)
    for n in (1, 2, 3, 4, 6, 8, 9, 10):
        fences.append(waiters[n].reply(asked[n])["fence"])
        assert not any(waiters[m].has(id=asked[m]) for m in range(n + 1, 12) if m not in (5, 7, 11))
        assert waiters[n].ok("release", key=key)["outcome"] == "released"
    assert fences == sorted(set(fences))


def lines(sock, count):
    """So many lines, and in how many reads they came."""
    data, reads = b"", 0
    while data.count(b"\n") < count:
        more = sock.recv(65536)
        assert more, data
        data, reads = data + more, reads + 1
    return [json.loads(line) for line in data.splitlines()], reads


def test_release_and_next_grant_come_together(daemon, key):
    """The releaser's answer and the next grant are made in one turn, and so written at once."""
    together = 0
    with connect(daemon.socket_path) as sock:
        def send(op, number, owner):
            sock.sendall(json.dumps({"id": number, "op": op, "key": key, "owner": owner,
                                     **({"wait_ms": -1} if op == "acquire" else {})}).encode()
                         + b"\n")
        send("acquire", 1, "a")
        [grant], _ = lines(sock, 1)
        fence = grant["fence"]
        for n in range(20):
            send("acquire", 2, "b" if n % 2 == 0 else "a")
            sock.sendall(b'{"id":9,"op":"ping"}\n')
            [pong], _ = lines(sock, 1)
            assert pong["id"] == 9
            send("release", 3, "a" if n % 2 == 0 else "b")
            (released, granted), reads = lines(sock, 2)
            assert released["id"] == 3 and released["outcome"] == "released", released
            assert granted["id"] == 2 and granted["fence"] > fence, granted
            fence = granted["fence"]
            together += reads == 1
    # Before the first hand-off the fences may have to be fetched.
    assert together >= 18, together


def test_each_is_told_no_more_than_it_asked_for(redis, daemon, key):
    """Waiters with leases of their own, one after the other on one token."""
    ttls = [10000, 1000, 5000, 2000, 20000, 1500, 30000, 1000]
    clients = [daemon.client() for _ in ttls]
    holder = daemon.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    asked = []
    for client, ttl_ms in zip(clients, ttls):
        asked.append(client.send("acquire", key=key, ttl_ms=ttl_ms, wait_ms=-1))
        client.ok("ping")
    holder.ok("release", key=key)
    for client, request, ttl_ms in zip(clients, asked, ttls):
        grant = client.reply(request)
        assert grant["ttl_ms"] == ttl_ms
        assert margin_ms(ttl_ms) < grant["valid_ms"] <= lease_ms(ttl_ms) + 2, grant
        assert grant["valid_ms"] >= ttl_ms / 2 - 2, grant  # enough to work with
        assert grant["deadline_ms"] <= grant.arrived_ms + lease_ms(ttl_ms) + 2
        # The key lives at least as long as was told.
        left_ms = redis.pttl(key)
        assert now_ms() + left_ms >= grant["deadline_ms"], (left_ms, grant)
        assert client.ok("release", key=key)["outcome"] == "released"
    wait_until(lambda: redis.value(key) is None, "the lock is given back")


def test_a_lease_near_its_end_is_renewed_before_it_is_handed_on(redis, daemon, key):
    """Nobody renews the holder's: what is left is too little for the next one."""
    for _ in range(3):
        first, brief, waiter = (daemon.client() for _ in range(3))
        first.ok("acquire", key=key, ttl_ms=1000, wait_ms=-1)
        asked = brief.send("acquire", key=key, ttl_ms=1000, renew=False, wait_ms=-1)
        brief.ok("ping")
        waiting = waiter.send("acquire", key=key, ttl_ms=1000, wait_ms=-1)
        waiter.ok("ping")
        first.ok("release", key=key)  # handed on, with the fences for more
        grant = brief.reply(asked)
        time.sleep(max(0, grant["deadline_ms"] - 300 - now_ms()) / 1000)
        released = brief.request("release", key=key)
        if released.get("outcome") != "released":
            waiter.close()
            continue  # this machine was too slow
        next_grant = waiter.reply(waiting)
        assert next_grant["ok"] is True and next_grant["fence"] > grant["fence"]
        assert next_grant["valid_ms"] >= 500, next_grant
        assert next_grant["deadline_ms"] > grant["deadline_ms"]
        assert redis.pttl(key) + now_ms() >= next_grant["deadline_ms"]
        assert waiter.ok("release", key=key)["outcome"] == "released"
        return
    raise AssertionError("too slow three times")


def test_a_holder_that_does_not_renew_inherits_no_renewal(redis, daemon, key):
    holder, waiter, last = (daemon.client() for _ in range(3))
    holder.ok("acquire", key=key, ttl_ms=10000)
    waiting = waiter.send("acquire", key=key, ttl_ms=1000, wait_ms=-1, renew=False)
    waiter.ok("ping")
    after = last.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    holder.ok("release", key=key)
    grant = waiter.reply(waiting)
    lost = waiter.event("lost", key=key)
    assert lost["reason"] == "not_renewed" and lost["fence"] == grant["fence"]
    assert lost["deadline_ms"] == grant["deadline_ms"] <= grant.arrived_ms + 1000
    assert not last.has(id=after)
    grant = last.reply(after)
    assert grant["ok"] is True
    # Not before the deadline that the one before was told.
    assert grant.arrived_ms >= lost["deadline_ms"]
    # The lease goes on, and is renewed again.
    time.sleep(T / 1000 * 1.2)
    assert last.ok("check", key=key)["held"] is True


def test_a_cap_begins_with_the_grant_that_has_it(daemon, key):
    holder, waiter, last = (daemon.client() for _ in range(3))
    holder.ok("acquire", key=key, ttl_ms=10000)
    waiting = waiter.send("acquire", key=key, ttl_ms=10000, wait_ms=-1, max_hold_ms=1200)
    waiter.ok("ping")
    after = last.send("acquire", key=key, ttl_ms=10000, wait_ms=-1)
    time.sleep(0.3)
    released_ms = now_ms()
    holder.ok("release", key=key)
    grant = waiter.reply(waiting)
    assert released_ms + 1100 <= grant["deadline_ms"] <= grant.arrived_ms + 1200
    lost = waiter.event("lost", key=key)
    assert lost["reason"] == "max_hold" and lost["deadline_ms"] == grant["deadline_ms"]
    assert waiter.ok("release", key=key)["outcome"] == "was_lost"
    grant = last.reply(after)
    assert grant["deadline_ms"] > grant.arrived_ms + 4000  # the cap was not the lock's


def test_mixed_terms_under_load(redis, daemon, store, key):
    """Leases of all lengths, with and without renewal, go round on one lock."""
    with Load(key, daemon, connections=4, ms=1500, ttl=1000, store=store, no_renew=True) as brief, \
            Load(key, daemon, connections=4, ms=1500, ttl=10000, store=store) as long, \
            Load(key, daemon, connections=4, ms=1500, ttl=T, hold_us=300, store=store) as slow:
        reports = [brief.report(), long.report(), slow.report()]
    for run in reports:
        run.assert_smooth()
    store.assert_clean(sum(run.total for run in reports))
    say(grants=[run.total for run in reports])
    totals = [run.total for run in reports]
    assert min(totals) > 0.5 * max(totals), totals  # the shorter one is not put off
    wait_until(lambda: redis.value(key) is None, "the lock is given back")


def test_the_end_of_a_holder_hands_on(redis, daemon, key):
    holder, waiter = daemon.client(), daemon.client()
    first = holder.ok("acquire", key=key)
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    waiter.ok("ping")
    value = redis.value(key)
    holder.close()
    grant = waiter.reply(waiting)
    assert grant["ok"] is True and grant["fence"] > first["fence"]
    assert redis.value(key) == value  # one token for both
    waiter.ok("release", key=key)
    wait_until(lambda: redis.value(key) is None, "the lock is given back")
