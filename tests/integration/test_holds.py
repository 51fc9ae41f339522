"""What a holder is promised, for how long, and what others can see of it."""

import os
import socket
import time

import pytest
from lockbroker import (LOCK_PREFIX, assert_error, assert_kept_until, lease_ms, margin_ms, now_ms,
                        wait_until)


# Extending.


def test_extend_never_shortens(redis, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=20000)
    before = redis.pttl(key)
    reply = client.ok("extend", key=key, ttl_ms=2000)
    assert reply["deadline_ms"] >= grant["deadline_ms"]
    assert redis.pttl(key) > before - 5000


def test_extend_changes_the_ttl_of_renewals(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=1500)
    client.ok("extend", key=key, ttl_ms=20000)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert redis.pttl(key) > 10000
        time.sleep(0.05)


def test_extend_of_a_grant_that_is_not_renewed(client, key):
    grant = client.ok("acquire", key=key, ttl_ms=2000, renew=False)
    extended = client.ok("extend", key=key, ttl_ms=3000)
    assert extended["deadline_ms"] > grant["deadline_ms"] + 500
    lost = client.event("lost", key=key)
    assert lost["reason"] == "not_renewed" and lost["deadline_ms"] == extended["deadline_ms"]
    assert lost.arrived_ms > grant["deadline_ms"]


def test_extend_of_a_key_that_is_gone(redis, client, key):
    client.ok("acquire", key=key)
    redis.client.delete(LOCK_PREFIX + key)
    client.fails("not_held", "extend", key=key, ttl_ms=20000)
    assert client.event("lost", key=key)["reason"] == "deleted"
    assert redis.value(key) is None


def test_extend_of_a_key_with_another_value(redis, client, key):
    client.ok("acquire", key=key)
    redis.client.set(LOCK_PREFIX + key, "theirs", px=60000)
    client.fails("not_held", "extend", key=key, ttl_ms=20000)
    assert client.event("lost", key=key)["reason"] == "stolen"
    assert redis.value(key) == "theirs"


# Grants that end by themselves.


def test_a_grant_that_is_not_renewed_ends(redis, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=3000, renew=False)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "not_renewed" and lost["fence"] == grant["fence"]
    assert lost["deadline_ms"] == grant["deadline_ms"]
    assert grant["deadline_ms"] - 1500 < lost.arrived_ms < grant["deadline_ms"]
    assert client.ok("check", key=key)["held"] is False
    assert_kept_until(redis, key, grant["deadline_ms"])
    wait_until(lambda: redis.value(key) is None, "the key expires", timeout=10)


def test_max_hold_ends_a_grant(redis, client, key):
    before = now_ms()
    grant = client.ok("acquire", key=key, ttl_ms=3000, max_hold_ms=4000)
    assert grant["deadline_ms"] <= grant.arrived_ms + 4000
    lost = client.event("lost", key=key)
    assert lost["reason"] == "max_hold"
    assert lost["deadline_ms"] <= grant.arrived_ms + 4000
    assert before + 2500 < lost.arrived_ms < lost["deadline_ms"]
    assert_kept_until(redis, key, lost["deadline_ms"])
    wait_until(lambda: redis.value(key) is None, "the key expires", timeout=10)
    assert client.ok("release", key=key)["reason"] == "max_hold"


def test_max_hold_caps_every_deadline(client, key):
    grant = client.ok("acquire", key=key, ttl_ms=30000, max_hold_ms=2000)
    assert grant["deadline_ms"] <= grant.arrived_ms + 2000 and grant["valid_ms"] <= 2000
    assert client.ok("check", key=key)["deadline_ms"] <= grant.arrived_ms + 2000
    assert client.event("lost", key=key).arrived_ms < grant["deadline_ms"]


def test_key_is_freed_when_the_holder_releases_after_max_hold(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=30000, max_hold_ms=1500)
    waiter = daemon.client()
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    lost = client.event("lost", key=key)
    if now_ms() < lost["deadline_ms"]:
        assert redis.value(key) is not None
    assert client.ok("release", key=key)["outcome"] == "was_lost"
    assert waiter.reply(waiting, timeout=10)["ok"] is True


def test_key_is_freed_when_the_holder_ends_after_max_hold(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=30000, max_hold_ms=1500)
    client.event("lost", key=key)
    client.close()
    wait_until(lambda: redis.value(key) is None, "the key is deleted", timeout=10)


def test_max_hold_may_be_moved(client, key):
    client.ok("acquire", key=key, ttl_ms=3000, max_hold_ms=2000)
    before = now_ms()
    moved = client.ok("extend", key=key, ttl_ms=3000, max_hold_ms=5000)
    assert moved["deadline_ms"] > before + 1000
    lost = client.event("lost", key=key)
    assert lost["reason"] == "max_hold" and before + 3000 < lost.arrived_ms < lost["deadline_ms"]
    assert lost["deadline_ms"] <= moved.arrived_ms + 5000


def test_the_ttl_is_renewed_for_as_long_as_it_takes(redis, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=1000)
    value = redis.value(key)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert redis.value(key) == value
        time.sleep(0.02)
    assert client.ok("check", key=key)["fence"] == grant["fence"]
    assert not [m for m in client.received if m.get("event") == "lost"]


# Looking from outside.


def test_query_of_a_local_holder(daemon, key):
    client = daemon.process_client()
    client.ok("hello", client="nightly backup")
    grant = client.ok("acquire", key=key, note="dump of the books")
    reply = daemon.client().ok("query", key=key)
    holder = reply["holder"]
    assert reply["held"] is True and holder["kind"] == "local"
    assert holder["pid"] == client.process.pid and holder["uid"] == os.getuid()
    assert holder["client"] == "nightly backup" and holder["note"] == "dump of the books"
    assert holder["fence"] == grant["fence"] and holder["host"] == socket.gethostname()[:64]
    assert 0 <= holder["held_ms"] < 60000 and 0 < holder["ttl_left_ms"] <= 30000
    assert "lb1" not in reply.line.decode()  # the token is a secret


def test_query_counts_the_waiters_of_this_host(daemon, client, key):
    client.ok("acquire", key=key)
    for n in range(3):
        client.send("acquire", key=key, owner=str(n), wait_ms=-1)
    assert daemon.client().ok("query", key=key)["waiters"] == 3


def test_query_of_another_brokers_holder(lab, redis, client, key):
    other = lab.daemon(redis, name="other").client()
    other.ok("acquire", key=key)
    reply = client.ok("query", key=key)
    holder = reply["holder"]
    assert reply["held"] is True and holder["kind"] == "broker"
    assert holder["host"] == socket.gethostname()[:64] and 0 < holder["ttl_left_ms"] <= 30000
    assert not {"pid", "uid", "client", "note", "fence"} & set(holder)


def test_query_of_a_foreign_holder(redis, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs", px=60000)
    holder = client.ok("query", key=key)["holder"]
    assert holder["kind"] == "foreign" and 0 < holder["ttl_left_ms"] <= 60000
    redis.client.set(LOCK_PREFIX + key, "theirs")
    holder = client.ok("query", key=key)["holder"]
    assert holder["kind"] == "foreign" and holder["ttl_left_ms"] is None


@pytest.mark.parametrize("value", ["", "lb1", "lb1:", "lb1:::", "lb1:host:instance", "x" * 100000,
                                   "lb1:" + "h" * 300 + ":0123456789abcdef0123456789abcdef:1",
                                   "lb1:a\nb:0123456789abcdef0123456789abcdef:1", b"\xff\x00\xfe"],
                         ids=range(9))
def test_strange_values_are_somebody_elses(redis, client, key, value):
    redis.client.set(LOCK_PREFIX + key, value, px=60000)
    reply = client.fails("busy", "acquire", key=key)
    assert reply["holder"]["kind"] in ("foreign", "broker")
    assert client.ok("query", key=key)["held"] is True
    assert redis.client.exists(LOCK_PREFIX + key)


def test_foreign_lock_without_expiry_is_waited_for(redis, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    assert client.fails("busy", "acquire", key=key)["holder"]["ttl_left_ms"] is None
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    redis.client.delete(LOCK_PREFIX + key)
    assert client.reply(waiting, timeout=15)["ok"] is True


# Breaking.


def test_break_of_a_local_holder(redis, daemon, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=20000)
    before = now_ms()
    reply = daemon.client().ok("break", key=key, reason="stuck since Monday")
    assert reply["broken"] is True and reply["holder"]["fence"] == grant["fence"]
    lost = client.event("lost", key=key)
    assert lost["reason"] == "broken" and lost["fence"] == grant["fence"]
    assert before <= lost["deadline_ms"] <= now_ms() + margin_ms(20000)
    # Freed the margin later, long before the lease would have run out.
    assert_kept_until(redis, key, before + margin_ms(20000) - 100)
    wait_until(lambda: redis.value(key) is None, "the key is freed", timeout=10)
    assert client.ok("release", key=key)["reason"] == "broken"
    daemon.wait_log(reason="stuck since Monday")


def test_break_hands_the_lock_to_the_next(daemon, client, key):
    client.ok("acquire", key=key)
    waiter = daemon.client()
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    assert daemon.client().ok("break", key=key)["broken"] is True
    lost = client.event("lost", key=key)
    assert waiter.reply(waiting).arrived_ms >= lost.arrived_ms


def test_break_of_a_foreign_key(redis, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    reply = client.ok("break", key=key, reason="left behind")
    assert reply["broken"] is True and reply["holder"]["kind"] == "foreign"
    assert redis.value(key) is None


def test_break_of_another_brokers_key(lab, redis, client, key):
    other = lab.daemon(redis, name="other").client()
    other.ok("acquire", key=key, ttl_ms=3000)
    reply = client.ok("break", key=key)
    assert reply["broken"] is True and reply["holder"]["kind"] == "broker"
    assert other.event("lost", key=key)["reason"] == "deleted"


def test_break_of_a_free_key(client, key):
    reply = client.ok("break", key=key)
    assert reply["broken"] is False and reply["holder"] is None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_break_is_denied_to_others(lab, redis, key):
    daemon = lab.daemon(redis, socket_mode="0666")
    client, stranger = daemon.client(), daemon.process_client(uid=65534)
    client.ok("acquire", key=key)
    stranger.fails("denied", "break", key=key)
    redis.client.set(LOCK_PREFIX + "foreign", "theirs")
    stranger.fails("denied", "break", key="foreign")
    assert client.ok("check", key=key)["held"] is True and redis.value("foreign") == "theirs"
    assert stranger.ok("query", key=key)["holder"]["uid"] == 0
    stranger.ok("acquire", key=key + "2")
    assert client.ok("query", key=key + "2")["holder"]["uid"] == 65534


# Listing.


def test_list_in_pages(daemon, client):
    names = sorted(f"job:{n:02}" for n in range(25))
    for name in names + ["other:1"]:
        client.ok("acquire", key=name, note="n " + name)
    reader = daemon.client()
    assert len(reader.ok("list")["locks"]) == 26
    seen, after = [], ""
    while True:
        page = reader.ok("list", prefix="job:", after=after, limit=10)
        seen += page["locks"]
        assert len(page["locks"]) <= 10
        if not page["more"]:
            break
        after = seen[-1]["key"]
    assert [lock["key"] for lock in seen] == names
    for lock in seen:
        assert lock["holder"]["kind"] == "local" and lock["holder"]["note"] == "n " + lock["key"]
        assert lock["waiters"] == 0 and lock["state"]
    assert reader.ok("list", prefix="none")["locks"] == []


def test_a_page_is_cut_by_bytes(daemon, client):
    names = sorted(f"{n:03}" + "\u00e9" * 250 for n in range(500))
    for name in names:
        client.ok("acquire", key=name, note="\u00e9" * 128)
    reader = daemon.client()
    seen, pages = [], 0
    while True:
        page = reader.ok("list", after=seen[-1] if seen else "", limit=1000)
        assert len(page.line) <= 256 * 1024 and page["locks"]
        seen += [lock["key"] for lock in page["locks"]]
        pages += 1
        if not page["more"]:
            break
    assert seen == names and pages > 1


def test_stats_are_numbers(redis, client, key):
    client.ok("acquire", key=key)
    stats = client.ok("stats")
    for group in ("counters", "gauges"):
        assert stats[group]
        assert all(type(value) is int for value in stats[group].values())
    assert stats["histograms"]
    for histogram in stats["histograms"].values():
        assert len(histogram["counts"]) == len(histogram["bounds"]) + 1
        assert sum(histogram["counts"]) >= 0 and type(histogram["sum"]) is int
    backend = stats["backend"]
    assert backend["kind"] == "redis" and backend["state"] == "up"
    assert backend["role"] == "master" and backend["version"].startswith("7.")
    assert backend["maxmemory_policy"] == "noeviction" and backend["may_evict"] is False


def test_errors_and_grants_are_counted(client, key):
    before = client.ok("stats")
    client.ok("acquire", key=key)
    client.fails("already_held", "acquire", key=key)
    after = client.ok("stats")
    assert after != before
    assert any(after["counters"][name] > before["counters"][name] for name in after["counters"])


def test_lease_is_as_long_as_it_may_be(client, key):
    for ttl_ms in [1000, 3000, 10000, 30000]:
        name = f"{key}-{ttl_ms}"
        before = now_ms()
        grant = client.ok("acquire", key=name, ttl_ms=ttl_ms, renew=False)
        assert before + lease_ms(ttl_ms) <= grant["deadline_ms"]
        assert grant["deadline_ms"] <= grant.arrived_ms + lease_ms(ttl_ms)


def test_not_held_after_everything(client, key):
    """What was never held, is given back or was refused is not held."""
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    assert client.ok("check", key=key)["held"] is False
    assert_error(client.request("extend", key=key), "not_held")
