"""Redis slow, silent, dead, restarted or meddled with: what holders and waiters are told, and when."""

import time

import pytest
from lockbroker import LOCK_PREFIX, assert_error, now_ms, wait_until

T = 3000  # ms, the ttl of most locks here


def events(client, name):
    return [m for m in client.received if m.get("event") == name]


def is_affirming(message):
    return (message.get("event") == "ok" or message.get("held") is True or
            ("deadline_ms" in message and message.get("ok") is True))


def assert_nothing_affirmed_after_lost(client):
    """Once `lost` was read, no line says that the grant is held."""
    lost = client.received.index(events(client, "lost")[0])
    assert not [m for m in client.received[lost:] if is_affirming(m)]


# Redis stops for a while.


def test_a_short_stop_loses_nothing(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(5):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    for _ in range(4):
        redis.sigstop()
        time.sleep(T / 3000 * 0.8)
        redis.sigcont()
        time.sleep(1)
    for n, client in enumerate(clients):
        assert not events(client, "lost")
        for m in range(5):
            assert client.ok("check", key=f"{key}-{n}-{m}")["held"] is True
    assert len(redis.locks()) == 15


def test_half_a_lease_of_silence_is_suspect_and_then_ok(redis, client, key):
    ttl_ms = 6000
    grant = client.ok("acquire", key=key, ttl_ms=ttl_ms)
    redis.sigstop()
    suspect = client.event("suspect", key=key)
    assert suspect["fence"] == grant["fence"] and suspect["reason"]
    assert suspect["deadline_ms"] >= grant["deadline_ms"]
    assert 0 < suspect["valid_ms"] < ttl_ms * 0.6
    check = client.ok("check", key=key)
    assert check["held"] is True and check["state"] == "suspect"
    redis.sigcont()
    ok = client.event("ok", key=key)
    assert ok["fence"] == grant["fence"] and ok["deadline_ms"] > suspect["deadline_ms"]
    assert client.ok("check", key=key)["state"] == "ok"
    assert not events(client, "lost")
    assert redis.pttl(key) + now_ms() >= ok["deadline_ms"]


def test_a_stop_longer_than_the_lease_is_told_before_the_deadline(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(4):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    time.sleep(T / 2000)  # some renewals
    told = [client.ok("check", key=f"{key}-{n}-0")["deadline_ms"] for n, client in enumerate(clients)]
    redis.sigstop()
    for n, client in enumerate(clients):
        for m in range(4):
            lost = client.event("lost", key=f"{key}-{n}-{m}")
            assert lost["reason"] == "expired"
            assert lost.arrived_ms < lost["deadline_ms"]
            assert m or lost["deadline_ms"] >= told[n]
    redis.sigcont()
    daemon.wait_backend("up")
    end = time.monotonic() + T / 1000 + 1
    while time.monotonic() < end:
        for n, client in enumerate(clients):
            assert client.ok("check", key=f"{key}-{n}-0")["held"] is False
        time.sleep(0.1)
    for n, client in enumerate(clients):
        assert len(events(client, "lost")) == 4
        assert_nothing_affirmed_after_lost(client)
        assert client.ok("release", key=f"{key}-{n}-0")["reason"] == "expired"
    wait_until(lambda: redis.locks() == [], "what is left expires", timeout=15)


def test_every_affirmation_in_the_silence_is_true(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    while not events(client, "lost"):
        sent_ms = now_ms()
        reply = client.ok("check", key=key)
        if reply["held"]:
            assert sent_ms <= reply["deadline_ms"] - reply["valid_ms"] <= reply.arrived_ms
            assert reply["valid_ms"] > 0
        time.sleep(0.01)
    assert_nothing_affirmed_after_lost(client)
    assert client.ok("check", key=key)["held"] is False


def test_a_lost_lock_can_be_had_again(redis, client, key):
    first = client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    client.event("lost", key=key)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    redis.sigcont()
    second = client.reply(waiting)
    assert second["ok"] is True and second["fence"] > first["fence"]
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["fence"] == second["fence"]


# What Redis did is not known.


def test_a_try_with_an_unknown_outcome_leaves_no_key(redis, daemon, client, key):
    client.ok("acquire", key=key + "-warm")
    client.ok("release", key=key + "-warm")
    redis.sigstop()
    reply = client.fails("unavailable", "acquire", timeout=10, key=key)
    assert reply["reason"] == "down" and 0 < reply["may_block_ms"] <= 32000
    redis.sigcont()
    daemon.wait_backend("up")
    wait_until(lambda: redis.locks() == [], "no key of nobody stays", timeout=10)
    client.ok("acquire", key=key, wait_ms=10000)
    client.ok("release", key=key)
    wait_until(lambda: redis.locks() == [], "still none", timeout=10)


def test_a_waiter_survives_an_unknown_outcome(redis, client, key):
    client.ok("acquire", key=key + "-warm")
    redis.sigstop()
    waiting = client.send("acquire", key=key, wait_ms=-1)
    wait_until(lambda: client.ok("ping")["backend"] == "down", "the link is given up")
    redis.sigcont()
    assert client.reply(waiting)["ok"] is True
    client.ok("release", key=key)
    assert redis.value(key) is None


def test_a_release_that_is_not_confirmed_says_so(redis, daemon, client, key):
    client.ok("acquire", key=key)
    redis.sigstop()
    reply = client.ok("release", timeout=10, key=key)
    assert reply["outcome"] == "unconfirmed" and 0 < reply["frees_within_ms"] <= 31000
    redis.sigcont()
    wait_until(lambda: redis.locks() == [], "it is made up for", timeout=10)
    client.fails("not_held", "release", key=key)


def test_a_client_that_ends_while_redis_is_down(redis, daemon, key):
    client = daemon.client()
    client.ok("acquire", key=key)
    redis.sigstop()
    client.close()
    probe = daemon.client()
    wait_until(lambda: probe.ok("ping")["backend"] == "down", "the link is given up")
    redis.sigcont()
    wait_until(lambda: redis.locks() == [], "the key is given back late", timeout=10)


# Redis dies, or is not there yet.


def test_redis_down_at_the_start(lab, key):
    redis = lab.new_redis()
    daemon = lab.daemon(redis, up=False)
    daemon.wait_notified("READY=1")
    client = daemon.client()
    assert client.ok("ping")["backend"] == "down"
    start = time.monotonic()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert time.monotonic() - start < 4
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    redis.start()
    assert client.reply(waiting)["ok"] is True
    assert redis.locks() == [key]


def test_redis_silent_at_the_start(lab, key):
    redis = lab.redis()
    redis.sigstop()
    daemon = lab.daemon(redis, up=False)
    daemon.wait_notified("READY=1")
    client = daemon.client()
    start = time.monotonic()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert time.monotonic() - start < 4
    waiting = client.send("acquire", key=key, wait_ms=-1)
    redis.sigcont()
    assert client.reply(waiting)["ok"] is True


def test_a_waiters_own_deadline_while_redis_is_down(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    before = now_ms()
    reply = client.fails("unavailable", "acquire", key=key, wait_ms=1500)
    assert reply["reason"] == "down" and reply.arrived_ms - before >= 1500


def test_a_waiters_deadline_when_redis_went_down_meanwhile(redis, daemon, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    before = now_ms()
    waiting = client.send("acquire", key=key, wait_ms=2500)
    client.ok("ping")
    redis.kill()
    reply = client.reply(waiting)
    assert_error(reply, "unavailable", reason="down")
    assert reply.arrived_ms - before >= 2500


def test_a_waiters_deadline_when_redis_is_back(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    waiting = client.send("acquire", key=key, wait_ms=6000)
    redis.start()
    redis.client.set(LOCK_PREFIX + key, "theirs", nx=True)
    reply = client.reply(waiting)
    assert reply["ok"] or reply["error"] == "timeout", reply  # whoever came first


def test_redis_killed_and_restarted(redis, daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    client.ok("ping")
    redis.kill()
    daemon.wait_backend("down")
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] == "down"
    redis.start()
    daemon.wait_backend("up")
    assert holder.event("lost", key=key)["reason"] in ("deleted", "expired")
    assert client.reply(waiting)["ok"] is True
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["held"] is True


def test_redis_restarted_with_its_data(lab, key):
    redis = lab.redis("--appendonly", "yes", "--appendfsync", "always")
    client = lab.daemon(redis).client()
    grant = client.ok("acquire", key=key, ttl_ms=12000)
    redis.kill()
    redis.start()
    assert client.event("suspect", key=key)["reason"] == "restarted"
    assert client.event("ok", key=key)["deadline_ms"] > grant["deadline_ms"]
    assert client.ok("check", key=key)["state"] == "ok"
    assert client.ok("release", key=key)["outcome"] == "released"


def test_connections_cut_again_and_again(redis, daemon, client, key):
    names = [f"{key}-{n}" for n in range(20)]
    for name in names:
        client.ok("acquire", key=name, ttl_ms=T)
    for _ in range(20):
        redis.client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.25)
    assert not events(client, "lost")
    for name in names:
        assert client.ok("release", key=name)["outcome"] in ("released", "unconfirmed")
    wait_until(lambda: redis.locks() == [], "all is given back", timeout=10)


def test_scripts_flushed(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        redis.client.script_flush()
        client.ok("acquire", key=key + "2")
        redis.client.script_flush()
        assert client.ok("release", key=key + "2")["outcome"] == "released"
        time.sleep(0.1)
    redis.client.script_flush()
    assert client.ok("release", key=key)["outcome"] == "released"
    assert not events(client, "lost") and redis.locks() == []


def test_redis_that_refuses_writes(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.config_set("maxmemory", 1)
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] == "refused"
    assert 'code=OOM hint="Redis is at its maxmemory' in daemon.log()
    waiting = client.send("acquire", key=key + "3", wait_ms=-1)
    time.sleep(T / 1000 * 1.5)
    # What is held stays held: a renewal needs no memory.
    assert client.ok("check", key=key)["state"] == "ok"
    assert client.ok("release", key=key)["outcome"] == "released"
    redis.client.config_set("maxmemory", 0)
    assert client.reply(waiting)["ok"] is True


def test_redis_that_became_a_replica(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.replicaof("127.0.0.1", "1")
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] in ("refused", "down")
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    redis.client.replicaof("NO", "ONE")
    client.ok("acquire", key=key + "2", wait_ms=-1)


# Somebody meddles with the key.


def test_deleted(redis, client, key):
    fence = client.ok("acquire", key=key, ttl_ms=T)["fence"]
    redis.client.delete(LOCK_PREFIX + key)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "deleted" and lost["fence"] == fence
    assert redis.value(key) is None
    time.sleep(T / 1000)
    assert len(events(client, "lost")) == 1 and redis.value(key) is None


def test_overwritten(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.set(LOCK_PREFIX + key, "theirs")
    assert client.event("lost", key=key)["reason"] == "stolen"
    assert client.ok("release", key=key)["outcome"] == "was_lost"
    client.close()
    time.sleep(T / 1000)
    assert redis.value(key) == "theirs" and redis.pttl(key) == -1


def test_overwritten_by_another_type(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.delete(LOCK_PREFIX + key)
    redis.client.rpush(LOCK_PREFIX + key, "x")
    assert client.event("lost", key=key)["reason"] in ("stolen", "deleted")
    client.request("release", key=key)
    assert redis.client.lrange(LOCK_PREFIX + key, 0, -1) == ["x"]


def test_overwritten_before_the_release(redis, client, key):
    client.ok("acquire", key=key)
    redis.client.set(LOCK_PREFIX + key, "theirs", px=60000)
    reply = client.ok("release", key=key)
    assert reply["outcome"] == "was_lost" and reply["reason"] == "stolen"
    assert redis.value(key) == "theirs"


def test_one_meddled_key_spoils_no_other(redis, client, key):
    for n in range(30):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=T)
    redis.client.delete(LOCK_PREFIX + f"{key}-7")
    redis.client.set(LOCK_PREFIX + f"{key}-8", "theirs")
    redis.client.delete(LOCK_PREFIX + f"{key}-9")
    redis.client.hset(LOCK_PREFIX + f"{key}-9", "a", "b")
    time.sleep(T / 1000 * 2)
    assert sorted(m["key"][-1] for m in events(client, "lost")) == ["7", "8", "9"]
    assert sum(client.ok("check", key=f"{key}-{n}")["held"] for n in range(30)) == 27


def test_persisted_keys_get_their_expiry_back(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.persist(LOCK_PREFIX + key)
    wait_until(lambda: 0 < redis.pttl(key) <= T, "an expiry again", timeout=10)
    assert client.ok("check", key=key)["held"] is True


def test_an_expiry_set_nearer_is_pushed_out_again(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=9000)
    redis.client.pexpire(LOCK_PREFIX + key, 5000)
    wait_until(lambda: redis.pttl(key) > 5000, "renewed", timeout=10)
    assert client.ok("check", key=key)["held"] is True


def test_an_expiry_set_further_is_not_drawn_nearer(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.pexpire(LOCK_PREFIX + key, 100000)
    time.sleep(T / 1000)
    assert redis.pttl(key) > 90000
    assert client.ok("release", key=key)["outcome"] == "released"


def test_renamed(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.rename(LOCK_PREFIX + key, "moved")
    assert client.event("lost", key=key)["reason"] == "deleted"
    client.ok("release", key=key)
    assert redis.client.get("moved").startswith("lb1:")


def test_swapped(redis, client, key):
    """Our token under the key of another lock of ours is still not that lock's."""
    client.ok("acquire", key=key + "a", ttl_ms=T)
    client.ok("acquire", key=key + "b", ttl_ms=T)
    redis.client.rename(LOCK_PREFIX + key + "a", LOCK_PREFIX + key + "b")
    assert client.event("lost", key=key + "a")["reason"] == "deleted"
    assert client.event("lost", key=key + "b")["reason"] == "stolen"


def test_flushed(redis, client, key):
    for n in range(5):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=T)
    redis.client.flushall()
    for n in range(5):
        assert client.event("lost", key=f"{key}-{n}")["reason"] == "deleted"


# The broker itself is stopped.


@pytest.mark.parametrize("renew", [True, False])
def test_the_first_word_after_a_stop_of_the_broker_is_lost(redis, daemon, key, renew):
    clients = [daemon.client() for _ in range(4)]
    grants = [c.ok("acquire", key=f"{key}-{n}", ttl_ms=T, renew=renew)
              for n, c in enumerate(clients)]
    daemon.sigstop()
    marks = [len(client.received) for client in clients]
    for n, client in enumerate(clients):
        client.send("check", key=f"{key}-{n}", id="check")
        client.send("extend", key=f"{key}-{n}", id="extend")
    # The locks move on meanwhile.
    for n in range(4):
        wait_until(lambda name=LOCK_PREFIX + f"{key}-{n}":
                   redis.client.set(name, "theirs", nx=True), "the key expires", timeout=10)
    assert now_ms() > max(grant["deadline_ms"] for grant in grants)
    daemon.sigcont()
    for n, client in enumerate(clients):
        assert client.reply("check")["held"] is False
        assert_error(client.reply("extend"), "not_held")
        first = client.received[marks[n]]
        assert first["event"] == "lost" and first["fence"] == grants[n]["fence"], first
        assert first["reason"] == ("expired" if renew else "not_renewed")
        assert_nothing_affirmed_after_lost(client)
        assert redis.value(f"{key}-{n}") == "theirs"


def test_a_short_stop_of_the_broker_loses_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    for _ in range(3):
        daemon.sigstop()
        time.sleep(T / 3000)
        daemon.sigcont()
        time.sleep(T / 3000)
    assert client.ok("check", key=key)["held"] is True and not events(client, "lost")
