"""What goes wrong while many wait: nobody waits for ever, nobody gets what another has."""

import time

import pytest
from chaos_proxy import TO_CLIENT, ChaosProxy
from contest import (Load, Store, channels, load, queue, queue_name, say, wait_channels, wait_queue,
                     wait_waiters)
from lockbroker import assert_error, now_ms, wait_until

T = 3000  # ms
DELAY_MAX_MS = 5000  # a poll and a turn, on a slow machine


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


def brokers(lab, redis, count, **options):
    found = [lab.daemon(redis, **options) for _ in range(count)]
    wait_channels(redis, count)
    return found


def queued(redis, key, *daemons, **fields):
    """A waiter at each of these brokers, queued in this order: (client, request)."""
    found, there = [], len(queue(redis, key))
    for n, daemon in enumerate(daemons, 1):
        client = daemon.client()
        found.append((client, client.send("acquire", key=key, wait_ms=-1, **fields)))
        wait_queue(redis, key, there + n)
    return found


def kill_channels(redis):
    redis.client.client_kill_filter(_type="pubsub")


# The channel.


def test_a_channel_that_was_cut_comes_back(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    [(waiter, waiting)] = queued(redis, key, there, ttl_ms=T)
    before = {link["id"] for link in channels(redis)}
    kill_channels(redis)
    wait_until(lambda: len({link["id"] for link in channels(redis)} - before) == 2,
               "both channels are there again")
    wait_queue(redis, key, 1)
    took_ms = []
    for _ in range(5):
        start_ms = now_ms()
        holder.ok("release", key=key)
        grant = waiter.reply(waiting)
        assert grant["ok"] is True
        took_ms.append(grant.arrived_ms - start_ms)
        waiter.ok("release", key=key)
        holder.ok("acquire", key=key, ttl_ms=T, wait_ms=-1)
        waiting = waiter.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
        wait_queue(redis, key, 1)
    say(took_ms=took_ms)
    assert min(took_ms) < 250, took_ms  # it hears again


def test_a_release_while_the_channel_is_cut_is_found(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    holder = here.client()
    for _ in range(6):
        holder.ok("acquire", key=key, ttl_ms=10000, wait_ms=-1)
        [(waiter, waiting)] = queued(redis, key, there, ttl_ms=10000)
        start_ms = now_ms()
        kill_channels(redis)
        holder.ok("release", key=key)
        assert waiter.reply(waiting).arrived_ms - start_ms < DELAY_MAX_MS
        waiter.ok("release", key=key)
        waiter.close()
        there.clients.remove(waiter)
        wait_channels(redis, 2)


def test_channels_cut_again_and_again(lab, redis, store, key):
    """The hosts hardly ever hear of each other, and both get the lock."""
    here, there = brokers(lab, redis, 2)
    with Load(key, here, connections=8, ttl=T, hold_us=200, store=store) as crowd, \
            Load(key, there, connections=8, rounds=40, ttl=T, hold_us=200, store=store) as guests:
        killed = 0
        while guests.is_running():
            kill_channels(redis)
            killed += 1
            time.sleep(0.05)
            assert killed < 1200, "the guests do not get it"
        crowd.end()
        runs = [crowd.report(), guests.report()]
    for run in runs:
        run.assert_smooth()
    store.assert_clean(sum(run.total for run in runs))
    say(killed=killed, grants=[run.total for run in runs], **runs[1]["waits_us"])


def assert_served_by_polls(redis, daemons, store, key):
    """Nobody hears a word, and all get the lock."""
    run = load(key, *daemons, connections=4, rounds=20, ttl=T, hold_us=200, store=store)
    run.assert_smooth()
    store.assert_clean(4 * 20 * len(daemons))
    say(seconds=run.seconds, **run["waits_us"])
    holder = daemons[0].client()
    holder.ok("acquire", key=key, ttl_ms=10000, wait_ms=-1)
    waiter = daemons[1].client()
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    wait_waiters(daemons[1], key, 1)
    start_ms = now_ms()
    holder.ok("release", key=key)
    assert waiter.reply(waiting).arrived_ms - start_ms < DELAY_MAX_MS
    waiter.ok("release", key=key)
    wait_until(lambda: redis.client.get(queue_name(key)) is None, "the queue expires", timeout=15)


def test_messages_that_are_lost(lab, redis, store, key):
    """The channels stand, and nothing comes out of them."""
    with ChaosProxy(lab.path("a.sock"), redis.path) as first, \
            ChaosProxy(lab.path("b.sock"), redis.path) as second:
        daemons = [lab.daemon(proxy.url) for proxy in (first, second)]
        wait_channels(redis, 2)
        for proxy in (first, second):
            proxy.only(said=b"subscribe")
            proxy.drop(TO_CLIENT)
        assert_served_by_polls(redis, daemons, store, key)
        assert first.swallowed[TO_CLIENT] > 0 and second.swallowed[TO_CLIENT] > 0
        for daemon in daemons:
            daemon.stop()


def test_brokers_that_may_not_publish(lab, store, key):
    redis = lab.redis(tcp=True)
    redis.client.execute_command("ACL", "SETUSER", "mute", "on", ">word", "~*", "+@all", "&*",
                                 "-publish")
    daemons = [lab.daemon(f"redis://mute:word@127.0.0.1:{redis.port}/0") for _ in range(2)]
    wait_channels(redis, 2)
    assert_served_by_polls(redis, daemons, store, key)


# Brokers.


def test_queued_brokers_that_were_killed_are_passed_over_at_once(lab, redis, key):
    """Nobody hears that it is their turn, so that they get none."""
    here, *gone, there = brokers(lab, redis, 5)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=10000)
    *_, (waiter, waiting) = queued(redis, key, *gone, there)
    for daemon in gone:
        daemon.kill()
    wait_channels(redis, 2)
    start_ms = now_ms()
    holder.ok("release", key=key)
    grant = waiter.reply(waiting)
    say(delay_ms=grant.arrived_ms - start_ms)
    assert grant["ok"] is True and grant.arrived_ms - start_ms < 3 * 250, "turns of the dead"
    assert waiter.ok("release", key=key)["outcome"] == "released"
    assert queue(redis, key) == []


def test_a_queued_broker_that_is_stopped_delays_nobody_for_long(lab, redis, key):
    here, stopped, there = brokers(lab, redis, 3)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=10000)
    (absent, asked), (waiter, waiting) = queued(redis, key, stopped, there)
    stopped.sigstop()
    start_ms = now_ms()
    holder.ok("release", key=key)
    grant = waiter.reply(waiting)
    say(delay_ms=grant.arrived_ms - start_ms)
    assert grant["ok"] is True and grant.arrived_ms - start_ms < DELAY_MAX_MS
    assert waiter.ok("release", key=key)["outcome"] == "released"
    stopped.sigcont()
    late = absent.reply(asked)
    assert late["ok"] is True and late["fence"] > grant["fence"]


@pytest.mark.parametrize("how", ["kill", "sigstop"])
def test_a_holders_broker_that_is_gone_is_waited_out(lab, redis, key, how):
    gone, here, there = brokers(lab, redis, 3)
    holder = gone.client()
    holder.ok("acquire", key=key, ttl_ms=2000)
    waiters = queued(redis, key, here, there)
    getattr(gone, how)()
    told_ms = max(m["deadline_ms"] for m in holder.received if "deadline_ms" in m)
    gone_ms = now_ms()
    left_ms = redis.pttl(key)
    for client, waiting in waiters:
        grant = client.reply(waiting)
        assert grant.arrived_ms >= told_ms
        assert grant.arrived_ms - gone_ms < left_ms + DELAY_MAX_MS
        assert client.ok("release", key=key)["outcome"] == "released"
    if how == "sigstop":
        gone.sigcont()
        assert holder.event("lost", key=key)["fence"] == holder.received[0]["fence"]


def test_a_host_that_is_killed_in_a_contest(lab, redis, store, key):
    """Its clients die with it; who holds the lock there is in nobody's way for longer than its ttl."""
    doomed, here, there = brokers(lab, redis, 3)
    client = doomed.client()
    with Load(key, here, there, connections=6, rounds=150, ttl=1000, hold_us=200,
              store=store) as contest:
        wait_until(lambda: store.figures()["entries"] > 100, "the contest goes on")
        for n in range(8):
            client.send("acquire", key=key, owner=f"o{n}", ttl_ms=1000, wait_ms=-1)
        wait_until(lambda: client.has(ok=True), "one of its clients holds")
        doomed.kill()
        run = contest.report()
    run.assert_smooth()
    store.assert_clean(12 * 150)


# Waiters that leave.


def leave(client, request, how):
    if how == "cancel":
        client.ok("cancel", target=request)
        assert client.reply(request)["error"] == "cancelled"
    elif how == "timeout":
        assert_error(client.reply(request), "timeout")
    else:
        client.close()


@pytest.mark.parametrize("how", ["cancel", "timeout", "disconnect"])
def test_the_last_waiter_takes_its_host_out_of_the_queue(lab, redis, key, how):
    # Pauses between tries so long that no entry in the queue ends by itself within the test.
    here, leaving, there = brokers(lab, redis, 3, retry_max="10s")
    holder, took_ms = here.client(), []
    for _ in range(3):
        holder.ok("acquire", key=key, ttl_ms=10000, wait_ms=-1)
        wait_until(lambda: queue(redis, key) == [], "an empty queue")
        client = leaving.client()
        request = client.send("acquire", key=key, wait_ms=600 if how == "timeout" else -1)
        wait_queue(redis, key, 1)
        [(waiter, waiting)] = queued(redis, key, there)
        stays = queue(redis, key)[1]
        leave(client, request, how)
        wait_until(lambda: queue(redis, key) == [stays], "only the other one queues", timeout=15)
        start_ms = now_ms()
        holder.ok("release", key=key)
        grant = waiter.reply(waiting)
        took_ms.append(grant.arrived_ms - start_ms)
        waiter.ok("release", key=key)
    say(how=how, took_ms=took_ms)
    assert min(took_ms) < 200, took_ms  # less than a turn that nobody takes


def test_waiters_leave_a_queue_at_its_ends_and_in_its_middle(lab, redis, key):
    """Nine at one host, while another host holds and a third one queues behind them."""
    here, there, last = brokers(lab, redis, 3)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=10000)
    crowd, asked, sent_ms = [], [], []
    for n in range(9):
        client = there.client()
        sent_ms.append(now_ms())
        asked.append(client.send("acquire", key=key, wait_ms=1000 if n in (0, 4, 8) else -1))
        client.ok("ping")
        crowd.append(client)
    wait_queue(redis, key, 1)
    [(final, final_waits)] = queued(redis, key, last)
    for n in (0, 4, 8):
        reply = crowd[n].reply(asked[n])
        assert_error(reply, "timeout")
        assert reply["holder"]["kind"] == "broker" and reply["waited_ms"] >= 1000
        assert 1000 <= reply.arrived_ms - sent_ms[n] < DELAY_MAX_MS
    for n in (1, 7):
        leave(crowd[n], asked[n], "cancel")
    for n in (2, 6):
        leave(crowd[n], asked[n], "disconnect")
    wait_waiters(there, key, 2)
    assert len(queue(redis, key)) == 2
    holder.ok("release", key=key)
    fences = []
    for client, request in ((crowd[3], asked[3]), (crowd[5], asked[5]), (final, final_waits)):
        fences.append(client.reply(request)["fence"])
        assert client.ok("release", key=key)["outcome"] == "released"
    assert fences == sorted(set(fences))
    assert redis.client.get(queue_name(key)) is None


@pytest.mark.parametrize("how", ["kill", "sigstop"])
def test_waiters_are_answered_in_time_while_redis_is_down(lab, key, how):
    redis = lab.redis("--appendonly", "yes", "--appendfsync", "always")
    here, there = brokers(lab, redis, 2)
    holder = here.client()
    holder.ok("acquire", key=key, ttl_ms=30000)
    crowd, asked, sent_ms = [], [], []
    for n in range(7):
        client = there.client()
        sent_ms.append(now_ms())
        asked.append(client.send("acquire", key=key, wait_ms=4000 if n in (0, 3, 6) else -1))
        client.ok("ping")
        crowd.append(client)
    wait_queue(redis, key, 1)
    getattr(redis, how)()
    there.wait_backend("down")
    leave(crowd[1], asked[1], "cancel")
    leave(crowd[5], asked[5], "disconnect")
    for n in (0, 3, 6):
        reply = crowd[n].reply(asked[n])
        assert_error(reply, "unavailable", reason="down")
        assert 4000 <= reply.arrived_ms - sent_ms[n] < 4000 + DELAY_MAX_MS
    brief = there.client()
    start_ms = now_ms()
    reply = brief.request("acquire", key=key, wait_ms=300)
    assert_error(reply, "unavailable", reason="down")
    assert 300 <= reply.arrived_ms - start_ms < 300 + DELAY_MAX_MS
    assert not crowd[2].has(id=asked[2]) and not crowd[4].has(id=asked[4])
    redis.sigcont() if how == "sigstop" else redis.start()
    there.wait_backend("up")
    here.wait_backend("up")
    holder.ok("release", key=key)
    for n in (2, 4):
        assert crowd[n].reply(asked[n])["ok"] is True
        assert crowd[n].ok("release", key=key)["outcome"] == "released"


def test_a_turn_that_nobody_wants_is_passed_on(lab, redis, key):
    """The waiter leaves in the moment in which its host is told that it is its turn."""
    here, leaving, there = brokers(lab, redis, 3)
    holder, took_ms = here.client(), []
    for n in range(20):
        holder.ok("acquire", key=key, ttl_ms=10000, wait_ms=-1)
        (client, request), (waiter, waiting) = queued(redis, key, leaving, there)
        start_ms = now_ms()
        releasing = holder.send("release", key=key)
        time.sleep(0.0003 * (n % 5))
        client.close()
        leaving.clients.remove(client)
        assert holder.reply(releasing)["outcome"] == "released"
        grant = waiter.reply(waiting)
        took_ms.append(grant.arrived_ms - start_ms)
        waiter.ok("release", key=key)
        waiter.close()
        there.clients.remove(waiter)
    say(took_ms=took_ms)
    assert sorted(took_ms)[10] < 200, took_ms
    assert max(took_ms) < DELAY_MAX_MS


def test_a_stopped_host_passes_on_a_turn_that_nobody_wants_any_more(lab, redis, key):
    here, leaving, there = brokers(lab, redis, 3)
    holder, took_ms = here.client(), []
    for _ in range(4):
        holder.ok("acquire", key=key, ttl_ms=10000, wait_ms=-1)
        (client, _), (waiter, waiting) = queued(redis, key, leaving, there)
        leaving.sigstop()
        client.sock.close()
        leaving.clients.remove(client)
        holder.ok("release", key=key)
        leaving.sigcont()
        start_ms = now_ms()
        grant = waiter.reply(waiting)
        took_ms.append(grant.arrived_ms - start_ms)
        waiter.ok("release", key=key)
        wait_until(lambda: queue(redis, key) == [], "an empty queue")
    say(took_ms=took_ms)
    assert min(took_ms) < 200 and max(took_ms) < DELAY_MAX_MS, took_ms


# Tries.


def test_tries_are_answered_at_once_and_do_not_queue(lab, redis, key):
    here, there = brokers(lab, redis, 2)
    holder, trier = here.client(), there.client()
    holder.ok("acquire", key=key, ttl_ms=10000)
    scripts, told = redis.commands("evalsha", "eval"), redis.commands("publish")
    for n in range(50):
        reply = trier.fails("busy", "acquire", key=key, owner=f"o{n}", wait_ms=0)
        assert reply["holder"]["kind"] == "broker"
        assert queue(redis, key) == []
    tries = [trier.send("acquire", key=key, owner=f"o{n}", wait_ms=0) for n in range(500)]
    for request in tries:
        assert_error(trier.reply(request), "busy")
    assert redis.client.get(queue_name(key)) is None
    # One question each at most, none that takes it back, and the holder's broker is not bothered.
    assert redis.commands("evalsha", "eval") - scripts <= 550
    assert redis.commands("publish") == told
    holder.ok("release", key=key)
    trier.ok("acquire", key=key, wait_ms=0)


def test_tries_do_not_pass_those_who_queue(lab, redis, store, key):
    """On a key in great demand a try is nearly always answered busy, and never queues."""
    here, there, third = brokers(lab, redis, 3)
    trier, outcomes = third.client(), []
    with Load(key, here, there, connections=6, ms=2000, hold_us=200, store=store) as contest:
        wait_until(lambda: store.figures()["entries"] > 100, "the contest goes on")
        own = set()
        for n in range(200):
            reply = trier.request("acquire", key=key, wait_ms=0)
            outcomes.append(reply["ok"])
            if reply["ok"]:
                trier.ok("release", key=key)
            else:
                assert_error(reply, "busy")
            own |= set(queue(redis, key))
        run = contest.report()
    run.assert_smooth()
    store.assert_clean(run.total)
    say(tries=len(outcomes), granted=sum(outcomes), ids=len(own))
    assert len(own) <= 2, own
    assert sum(outcomes) <= 20


# Redis.


@pytest.mark.parametrize("loss", ["ignore", "quarantine"])
@pytest.mark.parametrize("data", ["empty", "kept"])
def test_redis_is_restarted_while_many_wait(lab, store, key, loss, data):
    """300 wait at two hosts: everybody is answered."""
    options = ["--appendonly", "yes", "--appendfsync", "always"] if data == "kept" else []
    redis = lab.redis(*options)
    daemons = brokers(lab, redis, 2, data_loss=loss, ttl_max="2s")
    holder = daemons[0].client()
    holder.ok("acquire", key=key, wait_ms=-1)
    with Load(key, *daemons, connections=5, owners=30, rounds=1, ttl=2000, store=store) as crowd:
        for daemon in daemons:
            wait_waiters(daemon, key, 150)
        wait_queue(redis, key, 1)
        assert store.figures()["entries"] == 0
        redis.kill()
        for daemon in daemons:
            daemon.wait_backend("down")
        redis.start()
        for daemon in daemons:
            daemon.wait_backend("up")
        holder.request("release", key=key)
        run = crowd.report()
    say(loss=loss, data=data, seconds=run.seconds, **run["waits_us"])
    run.assert_smooth()
    assert run["grants"] == [1] * 300
    store.assert_clean(300)


def test_redis_is_restarted_within_a_contest(lab, store, key):
    """With its data: nothing may overlap, and all go on."""
    redis = lab.redis("--appendonly", "yes", "--appendfsync", "always")
    daemons = brokers(lab, redis, 2, data_loss="quarantine", ttl_max="1s")
    with Load(key, *daemons, connections=8, rounds=100, ttl=1000, hold_us=200,
              store=store) as contest:
        wait_until(lambda: store.figures()["entries"] > 300, "the contest goes on")
        redis.kill()
        time.sleep(0.3)
        redis.start()
        run = contest.report()
    say(lost=run["lost"], errors=run["errors"], seconds=run.seconds)
    assert min(run["grants"]) == 100
    store.assert_clean()
