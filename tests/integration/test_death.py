"""Ends: of clients, gently or by -9; of the broker, on request or by -9. Who frees a key, and when."""

import json
import random
import signal
import time

import pytest
from lockbroker import Client, assert_error, assert_kept_until, connect, now_ms, wait_until


def assert_nothing_is_left(redis):
    """Every key goes at once, long before its 30 s would run out."""
    wait_until(lambda: redis.locks() == [], "no lock key is left", timeout=10)


# Clients that die.


def test_a_killed_holder_frees_its_key_at_once(redis, daemon, key):
    took_ms = []
    for n in range(10):
        holder = daemon.process_client()
        holder.ok("acquire", key=f"{key}-{n}")
        holder.kill()
        eof_ms = holder.expect_eof()  # the broker's end is closed in the same moment
        wait_until(lambda name=f"{key}-{n}": redis.value(name) is None, "the key is gone", 10)
        took_ms.append(now_ms() - eof_ms)
    # On a busy machine one or another may be late, but not all of them.
    assert min(took_ms) < 100, took_ms


def test_a_killed_holder_hands_on_to_the_next_waiter(daemon, client, key):
    holder = daemon.process_client()
    holder.ok("acquire", key=key)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    holder.kill()
    assert client.reply(waiting, timeout=10)["ok"] is True


def test_a_killed_holder_wakes_another_broker_soon(lab, redis, daemon, key):
    holder, other = daemon.process_client(), lab.daemon(redis, name="other").client()
    holder.ok("acquire", key=key)
    waiting = other.send("acquire", key=key, wait_ms=-1)
    other.ok("ping")
    holder.kill()
    assert other.reply(waiting, timeout=10)["ok"] is True


def test_a_client_that_shuts_its_sending_side_has_ended(redis, daemon, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    holder.half_close()
    holder.expect_eof()
    assert_nothing_is_left(redis)


def test_a_killed_waiter_leaves_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key)
    waiter = daemon.process_client()
    waiter.send("acquire", key=key, wait_ms=-1)
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 1, "it waits")
    waiter.kill()
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 0, "it does not wait any more")
    client.ok("release", key=key)
    assert_nothing_is_left(redis)


def test_clients_that_end_with_an_acquire_in_flight(redis, daemon, key):
    """At any point between the request and the grant; no key may be left that nobody knows of."""
    rng = random.Random(2)
    for n in range(300):
        client = Client(connect(daemon.socket_path), reading=rng.random() < 0.5)
        for owner in range(rng.randint(1, 3)):
            client.send("acquire", key=f"{key}-{n % 7}-{owner}", wait_ms=rng.choice([0, -1]))
        time.sleep(rng.random() * 0.002)
        client.close()
    assert_nothing_is_left(redis)
    survivor = daemon.client()
    for n in range(7):
        survivor.ok("acquire", key=f"{key}-{n}-0")


def test_clients_killed_with_an_acquire_in_flight(redis, daemon, key):
    rng = random.Random(3)
    for n in range(30):
        client = daemon.process_client()
        client.ok("ping")
        for _ in range(3):
            client.send("acquire", key=f"{key}-{n % 4}", wait_ms=-1, owner=str(_))
        time.sleep(rng.random() * 0.004)
        client.kill()
    assert_nothing_is_left(redis)


def test_clients_that_end_while_redis_is_slow(redis, daemon, key):
    """With the answer of Redis held up the grant surely crosses the client's end."""
    for n in range(20):
        redis.client.execute_command("CLIENT", "PAUSE", 30, "ALL")
        client = daemon.client()
        client.send("acquire", key=f"{key}-{n % 3}", wait_ms=-1)
        time.sleep(0.01)
        client.close()
    assert_nothing_is_left(redis)
    daemon.client().ok("acquire", key=f"{key}-0")


def test_a_reader_too_slow_is_cut_off_and_its_key_kept(redis, daemon, key):
    hog = daemon.client(reading=False)
    hog.send("acquire", key=key, ttl_ms=12000)
    grant = json.loads(hog.sock.recv(65536))
    hog.sock.settimeout(30)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(1000000):
            hog.send("stats")
    assert now_ms() < grant["deadline_ms"], "cut off before the deadline that the client was told"
    other = daemon.client()
    waiting = other.send("acquire", key=key, wait_ms=-1)
    assert_kept_until(redis, key, grant["deadline_ms"])
    assert other.reply(waiting, timeout=20)["ok"] is True


# The broker goes down.


def test_sigterm_with_nothing_held_ends_at_once(daemon, client, key):
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 3
    client.expect_eof()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_drain_waits_for_the_holders_word(redis, daemon, client, key, number):
    waiter = daemon.client()
    grant = client.ok("acquire", key=key)
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    waiter.ok("ping")
    daemon.process.signal(number)
    daemon.wait_notified("STOPPING=1")
    lost = client.event("lost", key=key)
    assert lost["reason"] == "shutdown" and lost["deadline_ms"] >= grant["deadline_ms"]
    assert_error(waiter.reply(waiting), "draining")
    client.fails("draining", "acquire", key=key + "2")
    assert redis.locks() == [key] and daemon.process.is_running()
    assert client.ok("check", key=key)["held"] is False
    assert client.ok("release", key=key)["reason"] == "shutdown"
    assert daemon.wait_exit() == 0
    assert redis.locks() == []


def test_drain_ends_with_the_holders(redis, daemon, key):
    clients = [daemon.process_client() for _ in range(3)]
    for n, client in enumerate(clients):
        client.ok("acquire", key=f"{key}-{n}")
    daemon.sigterm()
    for client in clients:
        client.event("lost")
    assert len(redis.locks()) == 3
    for client in clients:
        client.kill()
    assert daemon.wait_exit(5) == 0
    assert redis.locks() == []


def test_nobody_new_is_granted_in_a_drain(redis, daemon, client, key):
    client.ok("acquire", key=key)
    daemon.sigterm()
    client.event("lost")
    try:
        late = daemon.client()
    except (ConnectionRefusedError, FileNotFoundError):
        pass
    else:
        late.send("acquire", key=key + "2")
        wait_until(lambda: late.received or late.eof_ms, "an answer or the end")
        assert all(m["error"] == "draining" for m in late.received)
    assert redis.locks() == [key]


def test_drain_leaves_what_is_still_held_after_four_seconds(redis, daemon, client, key):
    grants = [client.ok("acquire", key=f"{key}-{n}") for n in range(3)]
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    took = time.monotonic() - start
    assert 3.5 < took < 5.5, "four seconds of grace, gone within five (and a busy machine)"
    assert len(redis.locks()) == 3
    assert all(now_ms() + redis.pttl(g["key"]) >= g["deadline_ms"] for g in grants)
    assert daemon.log_lines(count=3)


@pytest.mark.parametrize("fault", ["sigstop", "kill"])
@pytest.mark.parametrize("releases", [True, False])
def test_drain_while_redis_is_down(redis, daemon, client, key, fault, releases):
    client.ok("acquire", key=key)
    getattr(redis, fault)()
    start = time.monotonic()
    daemon.sigterm()
    assert client.event("lost", key=key)["reason"] == "shutdown"
    if releases:
        client.send("release", key=key)
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 5.5


@pytest.mark.parametrize("fault", ["sigstop", "kill"])
def test_drain_with_nothing_held_while_redis_is_down(redis, daemon, fault):
    getattr(redis, fault)()
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 3


# The broker dies.


def test_a_killed_broker_frees_nothing_early(redis, daemon, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=3000)
    daemon.kill()
    client.expect_eof()
    daemon.start()
    other = daemon.client()
    assert other.fails("busy", "acquire", key=key)["holder"]["kind"] == "broker"
    second = other.ok("acquire", key=key, wait_ms=-1)
    assert second.arrived_ms >= grant["deadline_ms"] and second["fence"] > grant["fence"]


def test_a_client_of_a_killed_broker_sees_the_end(daemon, client, key):
    client.ok("acquire", key=key)
    daemon.kill()
    client.expect_eof()
