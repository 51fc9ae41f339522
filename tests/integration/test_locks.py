"""Who gets a lock: exclusion between clients, brokers and plain Redis users, order, fences."""

import json
import time

import pytest
from lockbroker import LOCK_PREFIX, assert_error, now_ms, wait_until


def queue_up(daemon, client, key, waiters, **fields):
    """Sends an acquire that waits, and returns its id once the broker counts `waiters`."""
    request_id = client.send("acquire", key=key, wait_ms=-1, **fields)
    probe = daemon.client()
    wait_until(lambda: probe.ok("query", key=key)["waiters"] == waiters, f"{waiters} waiters")
    probe.close()
    return request_id


# Two brokers on one Redis.


def test_two_brokers_exclude_each_other(lab, redis, key):
    one, two = (lab.daemon(redis, name=name).client() for name in ("one", "two"))
    first = one.ok("acquire", key=key)
    assert two.fails("busy", "acquire", key=key)["holder"]["kind"] == "broker"
    waiting = two.send("acquire", key=key, wait_ms=-1)
    value = redis.value(key)
    assert two.ok("ping") and not two.has(id=waiting)
    assert redis.value(key) == value
    one.ok("release", key=key)
    second = two.reply(waiting)
    assert second["ok"] is True and second["fence"] > first["fence"]
    assert one.fails("busy", "acquire", key=key)["holder"]["kind"] == "broker"


def test_no_two_brokers_ever_hold_at_once(lab, redis, key):
    """Many short holds through two brokers; a counter in Redis would show two at once."""
    daemons = [lab.daemon(redis, name=name) for name in ("one", "two")]
    clients = [daemon.client() for daemon in daemons for _ in range(3)]
    fences = []
    pending = {client: client.send("acquire", key=key, wait_ms=-1) for client in clients}
    while len(fences) < 40:
        winner = wait_until(lambda: next((c for c in clients if c.has(id=pending[c])), None),
                            "somebody is granted")
        grant = winner.reply(pending[winner])
        assert grant["ok"] is True, grant
        assert redis.client.incr("inside") == 1
        fences.append(grant["fence"])
        # Nobody else may have been told that it is granted while this one is inside.
        assert not [c for c in clients if c is not winner and c.has(id=pending[c])]
        assert redis.client.decr("inside") == 0
        winner.ok("release", key=key)
        pending[winner] = winner.send("acquire", key=key, wait_ms=-1)
    assert fences == sorted(set(fences))


# A broker and plain users of Redis.


def test_plain_set_and_broker_exclude_each_other(redis, client, key):
    assert redis.client.set(LOCK_PREFIX + key, "theirs", nx=True, px=60000)
    reply = client.fails("busy", "acquire", key=key)
    assert reply["holder"]["kind"] == "foreign"
    assert 0 < reply["holder"]["ttl_left_ms"] <= 60000
    client.fails("timeout", "acquire", key=key, wait_ms=1500)
    assert redis.value(key) == "theirs" and 50000 < redis.pttl(key) <= 60000
    redis.client.delete(LOCK_PREFIX + key)
    client.ok("acquire", key=key)
    value = redis.value(key)
    assert redis.client.set(LOCK_PREFIX + key, "theirs", nx=True, px=60000) is None
    assert redis.value(key) == value


def test_redis_py_lock_and_broker_exclude_each_other(redis, client, key):
    lock = redis.client.lock(LOCK_PREFIX + key, timeout=60)
    assert lock.acquire(blocking=False)
    client.fails("busy", "acquire", key=key)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    time.sleep(1.5)  # the broker polls meanwhile
    assert lock.owned() and not client.has(id=waiting)
    lock.release()
    assert client.reply(waiting)["ok"] is True
    value = redis.value(key)
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(blocking_timeout=0.5)
    assert redis.value(key) == value
    client.ok("release", key=key)
    assert lock.acquire(blocking=False)


def test_foreign_lock_that_expires_is_taken_over_soon(redis, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs", px=1200)
    grant = client.ok("acquire", key=key, wait_ms=-1)
    assert 1000 <= grant["waited_ms"] < 15000


def test_redis_sees_one_plain_string_with_an_expiry(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=10000)
    assert redis.client.type(LOCK_PREFIX + key) == "string"
    assert redis.value(key).startswith("lb1:")
    assert 0 < redis.pttl(key) <= 10000
    client.ok("release", key=key)
    assert redis.value(key) is None


def test_the_token_is_a_secret(redis, daemon, client, key):
    public = client.ok("hello")["instance"]
    client.ok("acquire", key=key)
    client.ok("query", key=key)
    client.ok("list")
    lb1, host, secret, serial = redis.value(key).split(":")
    assert lb1 == "lb1" and host and len(secret) == 32 and serial
    told = "".join(message.line.decode() for message in client.received) + daemon.log()
    assert public != secret and public not in redis.value(key) and secret not in told


def test_the_promise_ends_before_the_key_does(redis, client, key):
    """Renewed or not, the key outlives the deadline that is told for it."""
    client.ok("acquire", key=key, ttl_ms=3000)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        reply = client.ok("check", key=key)
        assert reply["held"] is True and reply["state"] == "ok"
        asked_ms = now_ms()
        assert redis.pttl(key) + asked_ms >= reply["deadline_ms"]
        time.sleep(0.05)


# Order on one host.


def test_first_come_first_served(daemon, client, key):
    client.ok("acquire", key=key)
    waiters = [daemon.client() for _ in range(5)]
    ids = [queue_up(daemon, waiter, key, n + 1) for n, waiter in enumerate(waiters)]
    client.ok("release", key=key)
    fences = []
    for n, waiter in enumerate(waiters):
        grant = waiter.reply(ids[n])
        assert grant["ok"] is True and grant["waited_ms"] > 0
        fences.append(grant["fence"])
        assert not any(w.has(id=ids[m]) for m, w in enumerate(waiters) if m > n)
        waiter.ok("release", key=key)
    assert fences == sorted(set(fences))


def test_a_try_does_not_pass_the_queue(daemon, client, key):
    client.ok("acquire", key=key, owner="holder")
    waiting = queue_up(daemon, client, key, 1, owner="waiter")
    # In one write: the try is there before Redis has confirmed the release.
    client.send_raw("".join(json.dumps(request) + "\n" for request in [
        {"id": "release", "op": "release", "key": key, "owner": "holder"},
        {"id": "try", "op": "acquire", "key": key, "owner": "jumper"}]).encode())
    assert client.reply("release")["outcome"] == "released"
    assert client.reply(waiting)["ok"] is True
    assert_error(client.reply("try"), "busy")


def test_who_gives_up_leaves_the_queue(daemon, client, key):
    client.ok("acquire", key=key)
    gone, cancelled, timed_out, patient = (daemon.client() for _ in range(4))
    queue_up(daemon, gone, key, 1)
    cancelled_id = queue_up(daemon, cancelled, key, 2)
    timed_out.fails("timeout", "acquire", key=key, wait_ms=200)
    patient_id = queue_up(daemon, patient, key, 3)
    gone.close()
    cancelled.ok("cancel", target=cancelled_id)
    client.ok("release", key=key)
    assert patient.reply(patient_id)["ok"] is True
    assert_error(cancelled.reply(cancelled_id), "cancelled")


def test_owners_queue_like_clients_of_their_own(redis, client, key):
    first = client.ok("acquire", key=key, owner="a")
    waiting = client.send("acquire", key=key, owner="b", wait_ms=-1)
    assert client.ok("check", key=key, owner="a")["held"] is True
    assert client.ok("check", key=key, owner="b")["held"] is False
    assert client.ok("check", key=key)["held"] is False
    client.fails("not_held", "release", key=key, owner="b")
    client.ok("release", key=key, owner="a")
    second = client.reply(waiting)
    assert second["fence"] > first["fence"]
    client.ok("release", key=key, owner="b")
    assert redis.locks() == []


def test_events_name_the_owner(redis, client, key):
    client.ok("acquire", key=key, owner="a", ttl_ms=3000)
    client.ok("acquire", key=key + "2", ttl_ms=3000)
    redis.client.delete(LOCK_PREFIX + key, LOCK_PREFIX + key + "2")
    assert client.event("lost", key=key)["owner"] == "a"
    assert "owner" not in client.event("lost", key=key + "2")


# Cancelling.


def test_cancel_when_the_grant_is_on_its_way(redis, client, key):
    """Whoever comes first wins: never both answers, never a lock that nobody knows of."""
    for n in range(50):
        name = f"{key}-{n}"
        acquire = client.send("acquire", key=name, wait_ms=-1)
        cancel = client.send("cancel", target=acquire)
        granted, cancelled = client.reply(acquire), client.reply(cancel)
        assert granted["ok"] is not cancelled["ok"]
        if granted["ok"]:
            assert_error(cancelled, "not_pending")
            client.ok("release", key=name)
        else:
            assert_error(granted, "cancelled")
    wait_until(lambda: redis.locks() == [], "no key stays behind")


# Releasing.


def test_release_twice(redis, client, key):
    grant = client.ok("acquire", key=key)
    assert client.ok("release", key=key, fence=grant["fence"])["outcome"] == "released"
    client.fails("not_held", "release", key=key, fence=grant["fence"])
    assert redis.locks() == []


def test_release_of_another_fence_changes_nothing(redis, client, key):
    grant = client.ok("acquire", key=key)
    client.fails("not_held", "release", key=key, fence=grant["fence"] - 1)
    assert redis.locks() == [key] and client.ok("check", key=key)["held"] is True


def test_release_after_a_loss_tells_of_it(redis, client, key):
    fence = client.ok("acquire", key=key, ttl_ms=3000)["fence"]
    redis.client.delete(LOCK_PREFIX + key)
    client.event("lost", key=key)
    reply = client.ok("release", key=key, fence=fence)
    assert reply["outcome"] == "was_lost" and reply["reason"] == "deleted"


def test_the_status_of_a_release_is_logged(daemon, client, key):
    client.ok("acquire", key=key)
    client.ok("release", key=key, status="42 rows")
    daemon.wait_log(status="42 rows")


def test_a_lock_may_be_taken_again_after_a_loss(redis, client, key):
    first = client.ok("acquire", key=key, ttl_ms=3000)
    redis.client.delete(LOCK_PREFIX + key)
    client.event("lost", key=key)
    second = client.ok("acquire", key=key, ttl_ms=3000, wait_ms=-1)
    assert second["fence"] > first["fence"]
    assert client.ok("check", key=key)["fence"] == second["fence"]
    assert client.ok("release", key=key, fence=second["fence"])["outcome"] == "released"


# Fences.


def test_fences_rise_over_everything(lab, redis, key):
    daemons = [lab.daemon(redis, name=name) for name in ("one", "two")]
    fences = []

    def take(daemon):
        client = daemon.client()
        fences.append(client.ok("acquire", key=key, wait_ms=-1)["fence"])
        client.ok("release", key=key)

    for daemon in daemons * 3:
        take(daemon)
    redis.client.flushall()
    for daemon in daemons:
        take(daemon)
    daemons[0].stop()
    daemons[0].start()
    take(daemons[0])
    redis.kill()
    redis.start()
    for daemon in daemons:
        daemon.wait_backend("up")
        take(daemon)
    assert fences == sorted(set(fences)) and fences[-1] < 2**53


def test_fences_of_the_process_table_rise_over_a_restart(lab, key):
    daemon = lab.daemon("memory://")
    fences = []
    for _ in range(3):
        client = daemon.client()
        for _ in range(3):
            fences.append(client.ok("acquire", key=key)["fence"])
            client.ok("release", key=key)
        daemon.stop()
        daemon.start()
    assert fences == sorted(set(fences))


# The prefix.


@pytest.mark.parametrize("prefix", ["", "myapp:lock:", "{tag}"])
def test_keys_are_shared_by_prefix(lab, redis, key, prefix):
    client = lab.daemon(redis, prefix=prefix).client()
    client.ok("acquire", key=key)
    assert redis.client.set(prefix + key, "theirs", nx=True, px=60000) is None
    client.ok("release", key=key)
    assert redis.client.set(prefix + key, "theirs", nx=True, px=60000)
    client.fails("busy", "acquire", key=key)
    assert redis.client.get(prefix + key) == "theirs"


@pytest.mark.parametrize("prefix,key", [("", "lockbroker:meta:x"), ("", "lockbroker:meta:"),
                                        ("lockbroker:", "meta:x"), ("lock", "broker:meta:fence")])
def test_the_brokers_own_keys_are_out_of_reach(lab, redis, prefix, key):
    client = lab.daemon(redis, prefix=prefix).client()
    before = redis.client.dump(prefix + key)
    for op in ["acquire", "break"]:
        assert client.fails("bad_field", op, key=key)["field"] == "key"
    assert redis.client.dump(prefix + key) == before
    client.ok("acquire", key="meta")


def test_only_meta_keys_stay_when_all_is_released(redis, client, key):
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    assert [k for k in redis.client.keys("*") if not k.startswith("lockbroker:meta:")] == []
