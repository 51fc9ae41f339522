"""Rows 15 to 17 and 21 to 24: Redis that answers, but not with what was asked for."""

import threading
import time

import redis as redis_py
from lockbroker import wait_until
from verdicts import assert_definite, events

T = 3000  # ms, the ttl of most locks here


def test_row_15_a_server_that_may_evict_is_told_of_and_an_evicted_lock_is_lost(lab, key):
    redis = lab.redis("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
    daemon = lab.daemon(redis)
    client = daemon.client()
    assert client.ok("stats")["backend"]["may_evict"] is True
    assert daemon.log_lines(event="redis_may_evict_locks", policy="volatile-ttl")
    grant = client.ok("acquire", key=key, ttl_ms=T)
    redis.client.config_set("maxmemory", 1)
    assert_definite(client.fails("unavailable", "acquire", key=key + "2"))
    lost = client.event("lost", key=key)
    assert lost["reason"] == "deleted" and lost["fence"] == grant["fence"]
    redis.client.config_set("maxmemory", "100mb")
    client.ok("acquire", key=key + "2", wait_ms=-1)


def test_row_16_redis_that_refuses_writes(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.config_set("maxmemory", 1)
    reply = client.fails("unavailable", "acquire", key=key + "2")
    assert_definite(reply)
    assert reply["reason"] == "refused"
    assert 'code=OOM hint="Redis is at its maxmemory' in daemon.log()
    waiting = client.send("acquire", key=key + "3", wait_ms=-1)
    time.sleep(T / 1000 * 1.5)
    # What is held stays held: a renewal needs no memory.
    assert client.ok("check", key=key)["state"] == "ok"
    assert client.ok("release", key=key)["outcome"] == "released"
    redis.client.config_set("maxmemory", 0)
    assert client.reply(waiting)["ok"] is True


def test_row_17_redis_that_became_a_replica(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.replicaof("127.0.0.1", "1")
    reply = client.fails("unavailable", "acquire", key=key + "2")
    assert_definite(reply)
    assert reply["reason"] in ("refused", "down")
    daemon.wait_log(event="redis_down")
    assert "replica" in daemon.wait_log(event="redis_connect_failed")[0]
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    redis.client.replicaof("NO", "ONE")
    assert redis.value(key + "2") is None
    client.ok("acquire", key=key + "2", wait_ms=-1)


def test_row_21_scripts_flushed(redis, client, key):
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


# A tenant's script.


class Tenant:
    """Keeps Redis busy with a script, until it is told to stop."""

    def __init__(self, redis):
        self.redis = redis
        redis.client.config_set("busy-reply-threshold", 50)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        wait_until(self._is_busy, "Redis is busy")

    def _run(self):
        try:
            redis_py.Redis(unix_socket_path=self.redis.path).eval("while true do end", 0)
        except redis_py.ResponseError:
            pass

    def _is_busy(self):
        try:
            self.redis.client.get("x")
            return False
        except redis_py.ResponseError as error:
            return "BUSY" in str(error)

    def stop(self):
        self.redis.client.script_kill()
        self.thread.join(30)


def test_row_22_a_script_of_a_tenant_refuses_and_changes_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=20000)
    tenant = Tenant(redis)
    reply = client.fails("unavailable", "acquire", key=key + "2")
    assert_definite(reply)
    assert reply["reason"] == "refused" and daemon.log_lines(event="redis_refused", code="BUSY")
    waiting = client.send("acquire", key=key + "3", wait_ms=-1)
    client.ok("ping")
    tenant.stop()
    assert client.reply(waiting)["ok"] is True
    assert sorted(redis.locks()) == [key, key + "3"] and not events(client, "lost")
    assert client.ok("release", key=key)["outcome"] == "released"


def test_row_22_a_script_longer_than_the_lease_is_told_in_time(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    tenant = Tenant(redis)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    tenant.stop()
    client.ok("acquire", key=key + "2", wait_ms=-1)
    assert client.ok("check", key=key)["held"] is False


# A user that may do less than before.


def app_broker(lab):
    """A broker that is a user of its own to Redis; the test stays the default one."""
    redis = lab.redis(tcp=True)
    acl(redis, "on", ">app-word", "~lockbroker:*", "+@all")
    return redis, lab.daemon(f"redis://app:app-word@127.0.0.1:{redis.port}/0")


def acl(redis, *rules):
    redis.client.execute_command("ACL", "SETUSER", "app", *rules)


def rejected_scripts(redis):
    figures = redis.client.info("commandstats")
    return sum(figures.get("cmdstat_" + name, {"rejected_calls": 0})["rejected_calls"]
               for name in ("eval", "evalsha"))


def test_row_23_a_user_that_lost_a_right(lab, key):
    redis, daemon = app_broker(lab)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=T)
    before, start = rejected_scripts(redis), time.monotonic()
    acl(redis, "-eval", "-evalsha")
    reply = client.fails("unavailable", "acquire", key=key + "2")
    assert_definite(reply)
    assert reply["reason"] == "refused"
    line = daemon.log_lines(event="redis_refused", code="NOPERM")[0]
    assert " hint=" in line and line.startswith("<4>")
    waiting = client.send("acquire", key=key + "2", wait_ms=-1)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    assert redis.value(key) is not None
    assert rejected_scripts(redis) - before <= 20 * (time.monotonic() - start) + 10
    assert len(daemon.log_lines(event="redis_refused")) <= 10
    acl(redis, "+@all")
    assert client.reply(waiting)["ok"] is True


def connections(redis):
    return redis.client.info("stats")["total_connections_received"]


def test_row_23_a_password_that_was_changed(lab, key):
    redis, daemon = app_broker(lab)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=T)
    before, start = connections(redis), time.monotonic()
    acl(redis, "resetpass", ">other-word")
    redis.client.client_kill_filter(_type="normal", skipme=True)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    assert_definite(client.fails("unavailable", "acquire", key=key + "2"))
    line = daemon.log_lines(event="redis_connect_failed")[0]
    assert "WRONGPASS" in line and " hint=" in line and line.startswith("<4>")
    assert "-word" not in daemon.log()
    assert connections(redis) - before <= 10 * (time.monotonic() - start) + 10
    acl(redis, "resetpass", ">app-word")
    client.ok("acquire", key=key + "2", wait_ms=-1)


def test_row_24_a_server_that_takes_no_more_clients(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    links = redis.broker_links()
    assert len(links) == 1
    wait_until(redis.broker_channels, "the channel is up")
    crowd = []
    redis.client.config_set("maxclients", len(links) + 2)
    redis.client.client_kill_filter(_id=links[0]["id"])
    while not crowd:  # who is quicker, this test or the broker?
        try:
            crowd = [redis_py.Redis(unix_socket_path=redis.path)]
            crowd[0].ping()
        except redis_py.ConnectionError:
            crowd = []
            for link in redis.broker_links():
                redis.client.client_kill_filter(_id=link["id"])
    before, start = redis.client.info("stats")["rejected_connections"], time.monotonic()
    daemon.wait_log(event="redis_connect_failed")
    reply = client.fails("unavailable", "acquire", key=key + "2")
    assert_definite(reply)
    assert reply["reason"] == "down"
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    rejected = redis.client.info("stats")["rejected_connections"] - before
    assert 0 < rejected <= 10 * (time.monotonic() - start) + 10
    redis.client.config_set("maxclients", 100)
    client.ok("acquire", key=key + "2", wait_ms=-1)
    assert redis.value(key + "2") is not None
    crowd[0].close()
