"""Rows 28 to 32 and 57: the link between a broker and its Redis, by a proxy that misbehaves."""

import random
import threading
import time

import pytest
from chaos_proxy import TO_CLIENT, TO_SERVER, ChaosProxy
from lockbroker import LOCK_PREFIX, assert_error, lease_ms, margin_ms, now_ms, wait_until
from verdicts import assert_nothing_affirmed_after_lost, events

T = 3000  # ms, the ttl of most locks here


@pytest.fixture
def proxy(lab, redis):
    proxy = ChaosProxy(lab.path("p.sock"), redis.path)
    lab.started.append(proxy)
    return proxy.start()


@pytest.fixture
def daemon(lab, proxy):
    """A broker behind the proxy."""
    return lab.daemon(proxy.url)


@pytest.fixture
def other(lab, redis):
    """A client of a broker with a link that is well."""
    return lab.daemon(redis, name="other").client()


# Silence.


def test_row_28_a_silent_partition_is_told_in_time(proxy, daemon, other, key):
    client = daemon.client()
    grants = [client.ok("acquire", key=f"{key}-{n}", ttl_ms=T) for n in range(3)]
    waiting = other.send("acquire", key=key + "-0", ttl_ms=T, wait_ms=-1)
    other.ok("ping")
    proxy.partition()
    wait_until(lambda: client.ok("ping")["backend"] == "down", "the silence is noticed")
    for n, grant in enumerate(grants):
        lost = client.event("lost", key=f"{key}-{n}")
        assert lost["reason"] == "expired" and lost["fence"] == grant["fence"]
        assert lost.arrived_ms < lost["deadline_ms"]
    second = other.reply(waiting)
    assert second.arrived_ms >= client.received[-1].get("deadline_ms", 0)
    assert second.arrived_ms >= events(client, "lost")[0]["deadline_ms"]
    proxy.release()  # what was sent before comes through now
    daemon.wait_backend("up")
    time.sleep(T / 1000)
    assert_nothing_affirmed_after_lost(client)
    assert other.ok("check", key=key + "-0")["fence"] == second["fence"]


def test_row_28_waiters_and_tries_are_answered_in_the_silence(proxy, daemon, key):
    client = daemon.client()
    client.ok("ping")
    proxy.partition()
    before_ms = now_ms()
    waiting = client.send("acquire", key=key, wait_ms=2500)
    client.fails("unavailable", "acquire", key=key + "2")
    reply = client.reply(waiting)
    assert_error(reply, "unavailable", reason="down")
    assert reply.arrived_ms - before_ms >= 2500
    waiting = client.send("acquire", key=key, wait_ms=-1)
    proxy.release()
    assert client.reply(waiting)["ok"] is True


# One direction is lost.


def test_row_29_replies_that_are_lost_leave_no_key(redis, proxy, daemon, other, key):
    client = daemon.client()
    client.ok("acquire", key=key + "-warm")
    proxy.drop(TO_CLIENT)
    reply = client.fails("unavailable", "acquire", key=key)
    assert reply["reason"] == "down" and reply["may_block_ms"] > 0
    assert redis.value(key) is not None  # it was executed
    other.fails("busy", "acquire", key=key)
    proxy.heal()
    wait_until(lambda: redis.value(key) is None, "what nobody wants is given back", timeout=20)
    other.ok("acquire", key=key)


def test_row_29_a_waiter_asks_again_with_the_same_token(redis, proxy, daemon, key):
    client = daemon.client()
    client.ok("acquire", key=key + "-warm")
    proxy.drop(TO_CLIENT)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    token = wait_until(lambda: redis.value(key), "it was executed")
    wait_until(lambda: client.ok("ping")["backend"] == "down", "no answer is noticed")
    proxy.heal()
    assert client.reply(waiting)["ok"] is True and redis.value(key) == token


def test_row_29_requests_that_are_lost_leave_no_key(redis, proxy, daemon, key):
    client = daemon.client()
    client.ok("acquire", key=key + "-warm")
    proxy.drop(TO_SERVER)
    reply = client.fails("unavailable", "acquire", key=key)
    assert reply["reason"] == "down" and reply["may_block_ms"] > 0  # who knows?
    proxy.heal()
    daemon.wait_backend("up")
    assert redis.value(key) is None
    assert client.ok("acquire", key=key, wait_ms=10000)["ok"] is True


def test_row_29_a_renewal_whose_reply_is_lost_promises_nothing(redis, proxy, daemon, key):
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    proxy.drop(TO_CLIENT)
    lost = client.event("lost", key=key)
    assert lost["deadline_ms"] == grant["deadline_ms"] and lost["reason"] == "expired"
    assert lost.arrived_ms < lost["deadline_ms"]
    assert_nothing_affirmed_after_lost(client)


# A reset between the request and its reply.


@pytest.mark.parametrize("when", ["before", "forwarded", "executed"])
@pytest.mark.parametrize("wait_ms", [0, -1])
def test_row_30_an_acquire_whose_link_is_reset(redis, proxy, daemon, other, key, when, wait_ms):
    client = daemon.client()
    client.ok("acquire", key=key + "-warm")
    proxy.reset_at_request(when, containing=(LOCK_PREFIX + key).encode())
    reply = client.request("acquire", key=key, wait_ms=wait_ms)
    proxy.wait_fired()
    if wait_ms == 0:
        assert_error(reply, "unavailable", reason="down")
        wait_until(lambda: redis.value(key) is None, "nothing is left", timeout=20)
        other.ok("acquire", key=key)
    else:
        assert reply["ok"] is True
        other.fails("busy", "acquire", key=key)
        assert client.ok("release", key=key)["outcome"] == "released"


class Contender(threading.Thread):
    """Takes a lock again and again and notes from when to when it could rely on it."""

    def __init__(self, client, key, turns):
        super().__init__(daemon=True)
        self.client = client
        self.key = key
        self.turns = turns
        self.stop = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.turn()
        except Exception as error:  # told by the test
            self.error = error

    def turn(self):
        grant = self.client.ok("acquire", key=self.key, ttl_ms=T, wait_ms=-1)
        time.sleep(0.02)
        ends = [now_ms(), grant["deadline_ms"]]
        ends += [m.arrived_ms for m in events(self.client, "lost") if m["fence"] == grant["fence"]]
        self.turns.append((grant.arrived_ms, min(ends), grant["fence"]))
        assert self.client.ok("release", key=self.key)["outcome"] in ("released", "unconfirmed")


def test_row_30_resets_never_grant_twice(redis, proxy, daemon, other, key):
    rng = random.Random(30)
    turns = []
    contenders = [Contender(client, key, turns) for client in (daemon.client(), other)]
    for contender in contenders:
        contender.start()
    for n in range(40):
        proxy.reset_at_request(rng.choice(["before", "forwarded", "executed"]),
                               containing=(LOCK_PREFIX + key).encode())
        wait_until(lambda count=n: proxy.fired > count or contenders[0].error, "a reset")
    proxy.heal()
    wait_until(lambda: len(turns) > 20 or contenders[0].error, "locks go round", timeout=60)
    for contender in contenders:
        contender.stop.set()
    for contender in contenders:
        contender.join(60)
        assert contender.error is None and not contender.is_alive(), contender.error
    turns.sort()
    for one, two in zip(turns, turns[1:]):
        assert one[1] <= two[0] and one[2] < two[2], (one, two)
    wait_until(lambda: redis.locks() == [], "nothing is left", timeout=20)


# A slow link.


def test_row_31_a_lease_counts_from_before_the_request(redis, proxy, daemon, key):
    client = daemon.client()
    client.ok("ping")
    proxy.delay(300)
    for ttl_ms in (12000, 30000):
        before_ms = now_ms()
        grant = client.ok("acquire", key=f"{key}-{ttl_ms}", ttl_ms=ttl_ms)
        assert grant["valid_ms"] <= lease_ms(ttl_ms) - 600
        assert before_ms + lease_ms(ttl_ms) <= grant["deadline_ms"] <= (
            grant.arrived_ms - 600 + lease_ms(ttl_ms))
        assert grant["deadline_ms"] <= now_ms() + redis.pttl(f"{key}-{ttl_ms}")


def test_row_31_a_link_slower_than_a_command_may_be_grants_nothing(lab, redis, proxy, key):
    proxy.delay(1500)
    daemon = lab.daemon(proxy.url, connect_timeout="10s")
    client = daemon.client()
    reply = client.fails("unavailable", "acquire", key=key)
    assert reply["reason"] == "down" and reply["may_block_ms"] > 0
    proxy.heal()
    daemon.wait_backend("up")
    wait_until(lambda: redis.value(key) is None, "what nobody wants is given back")
    client.ok("acquire", key=key, wait_ms=10000)


def test_row_31_a_grant_with_too_little_left_is_refreshed_first(redis, proxy, daemon, key):
    """The reply lies there, but the broker did not run: nearly all of the lease is over."""
    client = daemon.client()
    client.ok("ping")
    proxy.hold(TO_CLIENT)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    token = wait_until(lambda: redis.value(key), "it was executed")
    daemon.sigstop()
    proxy.release()
    wait_until(lambda: redis.pttl(key) < margin_ms(T), "hardly anything is left")
    daemon.sigcont()
    grant = client.reply(waiting)
    assert grant["ok"] is True and grant["valid_ms"] >= margin_ms(T)
    assert grant["deadline_ms"] <= now_ms() + redis.pttl(key)
    assert redis.value(key).rpartition(":")[0] == token.rpartition(":")[0]


@pytest.mark.parametrize("slow", [lambda proxy: proxy.split(1),
                                  lambda proxy: proxy.throttle(12500)],
                         ids=["byte_by_byte", "100_kbit_s"])
def test_row_31_a_narrow_link_is_good_enough(lab, redis, proxy, key, slow):
    slow(proxy)
    client = lab.daemon(proxy.url, connect_timeout="20s").client()
    for n in range(5):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=2 * T, wait_ms=-1)
    time.sleep(T / 1000 * 3)
    for n in range(5):
        assert client.ok("check", key=f"{key}-{n}")["held"] is True
        assert client.ok("release", key=f"{key}-{n}")["outcome"] == "released"
    assert not events(client, "lost") and redis.locks() == []


# Nonsense.


NONSENSE = {
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "binary": bytes(range(128, 256)) * 4 + b"\r\n",
    "huge_array": b"*2147483647\r\n",
    "long_array": b"*100000\r\n" + b":1\r\n" * 1000,
    "huge_text": b"$2147483647\r\nxx",
    "long_text": b"$300000\r\n" + b"x" * 300000 + b"\r\n",
    "negative": b"$-5\r\n",
    "deep": b"*1\r\n" * 500,
    "no_line_end": b"+" + b"x" * 300000,
    "resp3_map": b"%1\r\n+a\r\n+b\r\n",
    "resp3_push": b">2\r\n+message\r\n+x\r\n",
    "extra_status": b"+OK\r\n",
    "extra_number": b":1\r\n",
    "extra_nil": b"$-1\r\n",
    "extra_array": b"*2\r\n:1\r\n:1\r\n",
    "extra_error": b"-ERR what was that\r\n",
}


def rss_kb(daemon):
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


@pytest.mark.parametrize("name", NONSENSE)
def test_row_32_nonsense_costs_the_link_and_nothing_else(proxy, daemon, other, name, key):
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=30000)
    before_kb = rss_kb(daemon)
    for n in range(3):
        proxy.inject(NONSENSE[name])
        reply = client.request("acquire", key=f"{key}-{n}")
        assert reply["ok"] is False or name.startswith("extra"), reply
        wait_until(lambda count=n: len(daemon.log_lines(event="redis_down")) > count,
                   "the link is dropped")
        proxy.heal()  # else the next link would hear it as well
        daemon.wait_backend("up")
    assert rss_kb(daemon) - before_kb < 32 * 1024
    check = client.ok("check", key=key)
    assert check["held"] is True and check["fence"] == grant["fence"]
    assert client.ok("release", key=key, timeout=60)["outcome"] == "released"
    other.ok("acquire", key=key)


# The opening of a link.


def locks_in(redis, number):
    """The lock keys in a database of the server."""
    pipe = redis.client.pipeline(transaction=True)
    pipe.execute_command("SELECT", number)
    pipe.keys(LOCK_PREFIX + "*")
    pipe.execute_command("SELECT", 0)
    return sorted(key[len(LOCK_PREFIX):] for key in pipe.execute()[1])


def test_row_57_the_link_has_a_name_and_the_right_database(lab, redis, key):
    daemon = lab.daemon(redis.url + "?db=3")
    client = daemon.client()
    client.ok("acquire", key=key)
    links = redis.broker_links()
    assert len(links) == 1 and "lockbroker" in links[0]["name"] and links[0]["db"] == "3"
    redis.client.client_kill_filter(_id=links[0]["id"])
    wait_until(lambda: [x for x in redis.broker_links() if x["id"] != links[0]["id"]], "a new link")
    daemon.wait_backend("up")
    client.ok("acquire", key=key + "2", wait_ms=10000)
    assert locks_in(redis, 3) == sorted([key, key + "2"])
    assert redis.locks() == []


@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_row_57_a_greeting_that_is_cut_anywhere_is_begun_anew(lab, key, direction):
    redis = lab.redis(tcp=True, password="s3cret-word")
    proxy = ChaosProxy(("127.0.0.1", 0), ("127.0.0.1", redis.port))
    lab.started.append(proxy)
    proxy.start()
    daemon = lab.daemon(f"redis://:s3cret-word@127.0.0.1:{proxy.address[1]}/5")
    client = daemon.client()
    names = [f"{key}-{cut}" for cut in (0, 3, 5, 9, 10, 14, 15, 20, 29, 30, 35, 52, 60, 200, 1500)]
    for n, name in enumerate(names):
        proxy.reset_after(int(name.rpartition("-")[2]), direction)
        proxy.cut()
        proxy.wait_fired(n + 1)
        client.ok("acquire", key=name, wait_ms=-1)
    assert locks_in(redis, 5) == sorted(names) and locks_in(redis, 0) == []
    for name in names:
        assert client.ok("release", key=name)["outcome"] == "released"


def test_row_57_nothing_is_served_without_the_database(lab, redis, key):
    daemon = lab.daemon(redis.url + "?db=99", up=False)
    assert "SELECT" in daemon.wait_log(event="redis_connect_failed")[0]
    client = daemon.client()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert redis.commands("evalsha", "eval") == 0 and redis.locks() == []
