"""Rows 34 to 41: clients that die, stop, fork, read or write slowly, or talk nonsense."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from lockbroker import (PATIENCE, Client, assert_error, assert_kept_until, connect, now_ms,
                        wait_until)
from verdicts import assert_nothing_affirmed_after_lost, events


def assert_nothing_is_left(redis):
    """Every key goes at once, long before its 30 s would run out."""
    wait_until(lambda: redis.locks() == [], "no lock key is left", timeout=10)


def test_row_34_a_killed_holder_frees_its_key_at_once(redis, daemon, key):
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


def test_row_34_a_killed_holder_hands_on_to_the_next_waiter(daemon, client, key):
    holder = daemon.process_client()
    holder.ok("acquire", key=key)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    holder.kill()
    assert client.reply(waiting, timeout=10)["ok"] is True


def test_row_34_a_killed_holder_wakes_another_broker_soon(lab, redis, daemon, key):
    holder, other = daemon.process_client(), lab.daemon(redis, name="other").client()
    holder.ok("acquire", key=key)
    waiting = other.send("acquire", key=key, wait_ms=-1)
    other.ok("ping")
    holder.kill()
    assert other.reply(waiting, timeout=10)["ok"] is True


# Clients that stop.


@pytest.mark.parametrize("fields,reason", [({"renew": False}, "not_renewed"),
                                           ({"max_hold_ms": 2500}, "max_hold")])
def test_row_35_a_stopped_client_finds_lost_first(daemon, client, key, fields, reason):
    holder = daemon.process_client()
    grant = holder.ok("acquire", key=key, ttl_ms=3000, **fields)
    os.kill(holder.process.pid, signal.SIGSTOP)
    second = client.ok("acquire", key=key, wait_ms=-1)
    assert second.arrived_ms >= grant["deadline_ms"] and second["fence"] > grant["fence"]
    holder.send("check", key=key, id="check")
    holder.send("extend", key=key, id="extend")
    os.kill(holder.process.pid, signal.SIGCONT)
    assert holder.reply("check")["held"] is False
    assert_error(holder.reply("extend"), "not_held")
    lost = holder.received[1]
    assert lost["event"] == "lost" and lost["reason"] == reason
    assert lost["fence"] == grant["fence"] and lost["deadline_ms"] <= second.arrived_ms
    assert_nothing_affirmed_after_lost(holder)


def test_row_35_a_stopped_client_is_renewed_for(redis, daemon, client, key):
    """That a client is silent says nothing about its work."""
    holder = daemon.process_client()
    grant = holder.ok("acquire", key=key, ttl_ms=1000)
    os.kill(holder.process.pid, signal.SIGSTOP)
    client.fails("timeout", "acquire", key=key, wait_ms=3000)
    os.kill(holder.process.pid, signal.SIGCONT)
    assert holder.ok("check", key=key)["fence"] == grant["fence"] and not events(holder, "lost")


def test_row_35_a_resumed_library_refuses_use(daemon, client, key):
    program = os.path.join(os.environ["LOCKBROKER_BIN"], "fault_holder")
    with subprocess.Popen([program, daemon.socket_path, key, "2000"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        _, fence, deadline_ms = holder.stdout.readline().split()
        holder.send_signal(signal.SIGSTOP)
        second = client.ok("acquire", key=key, wait_ms=-1)
        assert second.arrived_ms >= int(deadline_ms) and second["fence"] > int(fence)
        holder.send_signal(signal.SIGCONT)
        told, _ = holder.communicate("\n", timeout=60)
    assert told == "valid=0 extend=9 check=9 lost=1 release=0 was_lost=1\n"
    assert client.ok("check", key=key)["held"] is True


# A client that forks.

# Holds a lock, forks, and both wait for the end of standard input.
FORKER = """
import json, os, socket, sys
broker = socket.socket(socket.AF_UNIX)
broker.connect(sys.argv[1])
request = {"id": 1, "op": "acquire", "key": sys.argv[2], "ttl_ms": 1000}
broker.sendall(json.dumps(request).encode() + b"\\n")
print(broker.recv(4096).decode(), flush=True)
os.fork()
sys.stdin.read()
"""


def test_row_36_a_lock_lives_as_long_as_a_copy_of_its_socket(redis, daemon, client, key):
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", FORKER, daemon.socket_path, key],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        grant = json.loads(parent.stdout.readline())
        wait_until(lambda: children(parent.pid), "the child is there")
        parent.kill()
        parent.wait()
        client.fails("timeout", "acquire", key=key, wait_ms=3000)
        lock, = client.ok("list")["locks"]
        holder = lock["holder"]
        assert lock["key"] == key and holder["kind"] == "local" and holder["pid"] == parent.pid
        assert holder["fence"] == grant["fence"] and redis.locks() == [key]
        parent.stdin.close()  # the child ends
        wait_until(lambda: redis.locks() == [], "the key is given back")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


# The end of a client, and what crosses it.


def test_row_37_a_client_that_shuts_its_sending_side_has_ended(redis, daemon, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    holder.half_close()
    holder.expect_eof()
    assert_nothing_is_left(redis)


def test_row_38_a_killed_waiter_leaves_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key)
    waiter = daemon.process_client()
    waiter.send("acquire", key=key, wait_ms=-1)
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 1, "it waits")
    waiter.kill()
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 0, "it does not wait any more")
    client.ok("release", key=key)
    assert_nothing_is_left(redis)


def test_row_38_clients_that_end_with_an_acquire_in_flight(redis, daemon, key):
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


def test_row_38_clients_killed_with_an_acquire_in_flight(redis, daemon, key):
    rng = random.Random(3)
    for n in range(30):
        client = daemon.process_client()
        client.ok("ping")
        for _ in range(3):
            client.send("acquire", key=f"{key}-{n % 4}", wait_ms=-1, owner=str(_))
        time.sleep(rng.random() * 0.004)
        client.kill()
    assert_nothing_is_left(redis)


def test_row_38_clients_that_end_while_redis_is_slow(redis, daemon, key):
    """With the answer of Redis held up the grant surely crosses the client's end."""
    for n in range(20):
        redis.client.execute_command("CLIENT", "PAUSE", 30, "ALL")
        client = daemon.client()
        client.send("acquire", key=f"{key}-{n % 3}", wait_ms=-1)
        time.sleep(0.01)
        client.close()
    assert_nothing_is_left(redis)
    daemon.client().ok("acquire", key=f"{key}-0")


# Clients that are slow.


def test_row_39_a_reader_too_slow_is_cut_off_and_its_key_kept(redis, daemon, key):
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


def test_row_40_silent_connections_are_closed_and_busy_ones_are_not(lab, key):
    daemon = lab.daemon("memory://", idle_timeout="3s", line_timeout="1s")
    silent, half, busy, polite = (daemon.client() for _ in range(4))
    busy.ok("acquire", key=key)
    polite.ok("ping")
    started_ms = now_ms()
    half.send_raw(b'{"id":1,')
    busy.send_raw(b'{"id":99,"op":"pi')
    dropped = half.reply(None)
    assert_error(dropped, "malformed")
    assert dropped.arrived_ms - started_ms >= 900
    silent.expect_eof()
    assert silent.eof_ms - started_ms >= 2000
    half.expect_eof()
    assert_error(busy.reply(None), "malformed")
    busy.send_raw(b'ng"}\n')
    assert busy.ok("check", key=key)["held"] is True
    polite.ok("ping")


def test_row_40_half_a_line_is_dropped_up_to_its_newline(lab):
    client = lab.daemon("memory://", line_timeout="1s").client()
    client.ok("ping")
    client.send_raw(b'{"id":1,"op":"pi')
    assert_error(client.reply(None), "malformed")
    client.send_raw(b'ng"}\n{"id":2,"op":"ping"}\n')
    assert client.reply(2)["ok"] is True
    assert not client.untaken()


def drip(client, until):
    """Writes a line that does not end, a byte at a time."""
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, "nothing comes of it"
        client.send_raw(b"x")
        time.sleep(0.03)


def test_row_40_dripping_bytes_do_not_keep_a_line_alive(lab, redis, key):
    daemon = lab.daemon(redis, line_timeout="1s", idle_timeout="3s")
    holder = daemon.client()
    holder.ok("acquire", key=key)
    start_ms = now_ms()
    drip(holder, lambda: holder.has(error="malformed"))
    assert holder.reply(None).arrived_ms - start_ms >= 900
    end = time.monotonic() + 4
    drip(holder, lambda: time.monotonic() > end)  # still the same line
    holder.send_raw(b"\n")
    assert holder.ok("check", key=key)["held"] is True and not holder.untaken()

    nobody = daemon.client()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        drip(nobody, lambda: False)
    nobody.expect_eof()


# Clients that talk nonsense.


def rss_kb(daemon):
    with open(f"/proc/{daemon.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def nonsense(rng):
    """A line that is no request."""
    size = rng.randrange(1, 200)
    return rng.choice([
        lambda: bytes(rng.choices([b for b in range(256) if b not in b"\r\n"], k=size)),
        lambda: b"[" * rng.choice([5, 3000]),
        lambda: b'{"id":1,"op":' + b'{"a":' * size + b"1" + b"}" * size + b"}",
        lambda: b'{"id":1,"id":2,"op":"ping"}',
        lambda: b'{"id":1,"op":"ping","op":"ping"}',
        lambda: b'{"id":1,"op":"pi\0ng"}',
        lambda: b'{"id":1,"op":"\\u0000"}',
        lambda: b'{"id":1,"op":"\\ud800"}',
        lambda: b'{"id":1,"op":"\xff\xfe"}',
        lambda: b'{"id":' + b"9" * (size + 15) + b',"op":"ping"}',
        lambda: b'{"id":1,"op":"ping"' + b" " * 9000 + b"}",
        lambda: b'{"id":1,"op":"acquire","key":"' + b"k" * 513 + b'"}',
        lambda: b'"' + b"a" * size,
        lambda: b'{"id":1e400,"op":"ping"}',
        lambda: b"null",
    ])()


def test_row_41_each_line_of_nonsense_gets_one_error(daemon, client, key):
    rng = random.Random(41)
    client.ok("acquire", key=key)
    lines = [nonsense(rng) for _ in range(3000)]
    before_kb = rss_kb(daemon)
    for line in lines:
        client.send_raw(line + rng.choice([b"\n", b"\r\n"]))
    client.ok("ping", id="last", timeout=120)
    answers = [m for m in client.received if m.get("ok") is False]
    assert len(answers) == len(lines) and len(client.received) == len(lines) + 2
    assert {m["error"] for m in answers} <= {"malformed", "too_long", "bad_field", "unknown_op"}
    assert rss_kb(daemon) - before_kb < 64 * 1024
    assert client.ok("check", key=key)["held"] is True


def test_row_41_a_line_of_a_gibibyte_is_one_error(daemon, client, key):
    client.ok("acquire", key=key)
    before_kb, most_kb = rss_kb(daemon), 0
    piece = b'{"id":1,"op":"' + b"x" * (1 << 20)
    for _ in range(1024):
        client.sock.sendall(piece)
        most_kb = max(most_kb, rss_kb(daemon))
    client.send_raw(b"\n")
    assert_error(client.reply(None, timeout=120), "too_long")
    assert most_kb - before_kb < 16 * 1024
    assert client.ok("check", key=key)["held"] is True and not client.untaken()
