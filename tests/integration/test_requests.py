"""The protocol as text: what a line may be, what each operation answers, what each error means.

All of it holds with a Redis behind the broker and with the table in its own process.
"""

import json
import os
import socket

import pytest
from lockbroker import Lab, assert_error, lease_ms, now_ms, wait_until


@pytest.fixture(scope="module", params=["memory", "redis"])
def daemon(request):
    with Lab() as lab:
        yield lab.daemon("memory://" if request.param == "memory" else lab.redis())


@pytest.fixture
def client(daemon):
    client = daemon.client()
    yield client
    client.close()


def refused(client, line, error, request_id=None, **fields):
    """The line is answered with that error, and the connection goes on."""
    client.send_raw(line if isinstance(line, bytes) else line.encode())
    reply = client.reply(request_id)
    assert_error(reply, error, **fields)
    client.ok("ping")
    return reply


# Every operation's good path.


def test_hello_says_who_serves(client):
    reply = client.ok("hello", client="tester", version=1, bind="connection")
    assert "lockbrokerd" in reply["server"]
    assert reply["version"] == 1
    assert reply["host"] == socket.gethostname()[:64]
    assert isinstance(reply["instance"], str) and reply["instance"]
    assert reply["limits"]["ttl_max_ms"] == 30000
    assert reply["limits"]["max_wait_ms"] == 3600000
    assert isinstance(reply["features"], list)


def test_hello_needs_no_field(client):
    client.ok("hello")


def test_ping_tells_the_time(client):
    before = now_ms()
    reply = client.ok("ping")
    assert before <= reply["now_ms"] <= now_ms() and reply["backend"] == "up"


def test_acquire_promises_a_deadline(client, key):
    before = now_ms()
    reply = client.ok("acquire", key=key, ttl_ms=10000)
    assert reply["key"] == key and reply["ttl_ms"] == 10000
    assert 0 < reply["fence"] < 2**53
    assert before + lease_ms(10000) <= reply["deadline_ms"] <= reply.arrived_ms + lease_ms(10000)
    assert reply["deadline_ms"] - reply.arrived_ms <= reply["valid_ms"] <= lease_ms(10000)
    assert 0 <= reply["waited_ms"] <= reply.arrived_ms - before


def test_acquire_takes_the_longest_ttl_by_default(client, key):
    assert client.ok("acquire", key=key)["ttl_ms"] == 30000


def test_release_frees(client, key):
    client.ok("acquire", key=key)
    assert client.ok("release", key=key, status="done")["outcome"] == "released"
    client.ok("acquire", key=key)


def test_check_tells_of_the_own_grant(client, key):
    assert client.ok("check", key=key)["held"] is False
    grant = client.ok("acquire", key=key)
    reply = client.ok("check", key=key, fence=grant["fence"])
    assert reply["held"] is True and reply["state"] == "ok" and reply["fence"] == grant["fence"]
    assert reply["deadline_ms"] >= grant["deadline_ms"]
    assert 0 < reply["valid_ms"] <= lease_ms(30000)


def test_query_names_the_holder(client, key):
    reply = client.ok("query", key=key)
    assert reply["held"] is False and reply["holder"] is None and reply["waiters"] == 0
    client.ok("acquire", key=key)
    reply = client.ok("query", key=key)
    assert reply["held"] is True and reply["holder"]["kind"] == "local"


def test_extend_moves_the_deadline(client, key):
    grant = client.ok("acquire", key=key, ttl_ms=5000)
    reply = client.ok("extend", key=key, fence=grant["fence"], ttl_ms=20000)
    assert reply["key"] == key and reply["fence"] == grant["fence"] and reply["ttl_ms"] == 20000
    assert reply["deadline_ms"] > grant["deadline_ms"] + 10000


def test_cancel_ends_a_wait(daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("cancel", target=waiting)
    assert_error(client.reply(waiting), "cancelled")
    holder.close()


def test_break_frees_by_force(daemon, client, key):
    other = daemon.client()
    other.ok("acquire", key=key)
    reply = client.ok("break", key=key, reason="maintenance")
    assert reply["broken"] is True and reply["holder"]["kind"] == "local"
    assert other.event("lost", key=key)["reason"] == "broken"
    other.close()


def test_list_and_stats(client, key):
    client.ok("acquire", key=key)
    locks = client.ok("list", prefix=key)["locks"]
    assert [lock["key"] for lock in locks] == [key]
    assert client.ok("stats")["counters"]


# What a line may be.


def test_ids_come_back_as_they_were(client):
    for request_id in [0, 1, 2**53 - 1, "a", "7", "x" * 64, "\u00e9\u20ac"]:
        client.ok("ping", id=request_id)


@pytest.mark.parametrize("request_id", ["-1", "9007199254740992", "1.0", "1e3", '""', "null",
                                        "true", "[]", "{}", '"' + "x" * 65 + '"'])
def test_bad_id(client, request_id):
    refused(client, '{"id":%s,"op":"ping"}\n' % request_id, "bad_field", field="id")


def test_missing_id(client):
    refused(client, '{"op":"ping"}\n', "bad_field", field="id")


def test_missing_op_is_answered_by_id(client):
    refused(client, '{"id":5}\n', "bad_field", request_id=5, field="op")


@pytest.mark.parametrize("op", ["1", "null", '["ping"]'])
def test_op_of_the_wrong_type(client, op):
    refused(client, '{"id":5,"op":%s}\n' % op, "bad_field", request_id=5, field="op")


@pytest.mark.parametrize("op", ["", "PING", "acquire ", "watch", "transfer", "adopt"])
def test_unknown_op(client, op):
    client.fails("unknown_op", op)


def test_pending_id_again(daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    client.send("acquire", id=77, key=key, wait_ms=-1)
    refused(client, '{"id":77,"op":"ping"}\n', "bad_field", field="id")
    client.ok("ping", id="77")  # a text is another id
    holder.ok("release", key=key)
    assert client.reply(77)["ok"] is True
    client.ok("ping", id=77)  # once answered it is free again
    holder.close()


@pytest.mark.parametrize("line", [
    b"", b" ", b"hello", b"{", b"}", b"[]", b"1", b'"ping"', b"null", b"[1,2]",
    b'{"id":1,"op":"ping"} x', b'{"id":1,"op":"ping"}{"id":2,"op":"ping"}', b'{"id":1,"op":ping}',
    b'{"id":1,"op":"ping",}', b"{'id':1,'op':'ping'}", b'{"id":1,"op":"ping","id":1}',
    b'{"id":1,"op":"query","key":"a","key":"b"}', b'{"id":1,"op":"query","key":"a\0b"}',
    b'{"id":1,"op":"query","key":"a\\u0000b"}', b'\0', b'{"id":1,"op":"query","key":"\xff"}',
    b'{"id":1,"op":"query","key":"\xc0\xaf"}', b'{"id":1,"op":"query","key":"\xed\xa0\x80"}',
    b'{"id":1,"op":"query","key":"\\ud800"}', b'{"id":1,"op":"query","key":"a\tb"}',
    b'{"id":1,"op":"ping","x":' + b"[" * 50 + b"]" * 50 + b"}",
    b"[" * 4000 + b"]" * 4000, b'{"a":' * 1300 + b"1" + b"}" * 1300, b"[" * 8000,
], ids=lambda line: line[:40].decode("ascii", "replace").encode("unicode_escape").decode())
def test_malformed(client, line):
    refused(client, line + b"\n", "malformed")


def test_crlf_ends_a_line_too(client):
    client.send_raw(b'{"id":1,"op":"ping"}\r\n{"id":2,"op":"ping"}\n')
    assert client.reply(1)["ok"] and client.reply(2)["ok"]


def padded(length, request_id):
    line = '{"id":%d,"op":"ping"' % request_id
    return line.encode() + b" " * (length - len(line) - 1) + b"}\n"


def test_longest_line(client):
    client.send_raw(padded(8192, 1))
    assert client.reply(1)["ok"] is True


def test_a_line_too_long_is_skipped(client):
    client.send_raw(padded(8193, 1) + padded(100, 2))
    assert_error(client.reply(None), "too_long")
    assert client.reply(2)["ok"] is True
    assert not client.untaken()


def test_a_megabyte_without_newline(client):
    for _ in range(16):
        client.send_raw(b"x" * 65536)
    client.send_raw(b"\n")
    client.ok("ping")
    assert_error(client.reply(None), "too_long")
    assert not client.untaken()


def test_byte_by_byte(client):
    for byte in b'{"id":1,"op":"ping"}\n{"id":2,"op":"ping"}\r\n':
        client.send_raw(bytes([byte]))
    assert client.reply(1)["ok"] and client.reply(2)["ok"]


def test_a_hundred_requests_in_one_write(client, key):
    requests = [{"id": n, "op": "acquire", "key": f"{key}-{n % 50}", "owner": f"o{n}"}
                for n in range(100)]
    client.send_raw("".join(json.dumps(r) + "\n" for r in requests).encode())
    replies = [client.reply(n) for n in range(100)]
    assert [r["ok"] for r in replies] == [True] * 50 + [False] * 50
    assert {r["error"] for r in replies[50:]} == {"busy"}


def test_half_a_line_then_the_end(daemon, key):
    client = daemon.client()
    client.send_raw(b'{"id":1,"op":"acquire","key":"' + key.encode() + b'"}')
    client.half_close()
    client.expect_eof()
    assert daemon.client().ok("query", key=key)["held"] is False


def test_lines_are_written_compactly(client, key):
    client.ok("hello")
    client.ok("acquire", key=key)
    client.ok("query", key=key)
    client.fails("unknown_op", "nonsense")
    client.ok("break", key=key)
    client.event("lost")
    for message in client.received:
        assert message.line.decode() == json.dumps(message, separators=(",", ":"))


def test_unusual_keys_come_back_unharmed(client):
    for key in ["a", " ", "\"\\/", "\u00e9\u4e2d\U0001f512", "{curly}", "\u202e", "k" * 512,
                "\u00e9" * 256, "\u0080"]:
        assert client.ok("acquire", key=key)["key"] == key
        assert client.ok("list", prefix=key)["locks"][0]["key"] == key
        client.ok("release", key=key)


# What a field may be.

GOOD_FIELDS = {
    "hello": {}, "ping": {}, "acquire": {"key": "k"}, "release": {"key": "k"},
    "extend": {"key": "k"}, "check": {"key": "k"}, "query": {"key": "k"}, "cancel": {"target": 1},
    "break": {"key": "k"}, "list": {}, "stats": {},
}


@pytest.mark.parametrize("op", GOOD_FIELDS)
def test_unknown_field(client, op):
    reply = client.fails("bad_field", op, **GOOD_FIELDS[op], ttl=1)
    assert reply["field"] == "ttl"


@pytest.mark.parametrize("op", ["acquire", "release", "extend", "check", "query", "cancel", "break"])
def test_required_field(client, op):
    reply = client.fails("bad_field", op)
    assert reply["field"] == ("target" if op == "cancel" else "key")


def test_a_field_of_another_op_is_unknown(client):
    assert client.fails("bad_field", "query", key="k", wait_ms=0)["field"] == "wait_ms"


BAD_VALUES = [
    ("acquire", "key", ['""', "1", "null", '["a"]', '"a\\u0001"', '"a\\nb"', '"\\u001f"',
                        '"\\u007f"', '"\x7f"', '"%s"' % ("k" * 513), '"%s"' % ("\u00e9" * 257)]),
    ("acquire", "owner", ["1", "null", '"%s"' % ("o" * 129)]),
    ("acquire", "note", ["1", '"%s"' % ("n" * 257)]),
    ("acquire", "ttl_ms", ["999", "30001", "0", "-1", "5000.0", "5e3", '"5000"', "null", "true",
                           "9007199254740992", "1" + "0" * 30]),
    ("acquire", "wait_ms", ["-2", "1.0", '"0"', "null", "false", "9223372036854775808"]),
    ("acquire", "renew", ["1", '"true"', "null"]),
    ("acquire", "max_hold_ms", ["0", "-1", "1.0", '"1"', "null"]),
    ("acquire", "on_lost", ['"term"', '"kill"', '"nothing"', "1", "null"]),
    ("release", "fence", ['"1"', "1.0", "null"]),
    ("release", "status", ["1", '"%s"' % ("s" * 129)]),
    ("extend", "ttl_ms", ["999", "30001", "5000.0", "null"]),
    ("extend", "max_hold_ms", ["0", "1.0"]),
    ("check", "fence", ['"1"', "1.5"]),
    ("cancel", "target", ["null", "-1", "1.0", '""', "[]"]),
    ("break", "reason", ["1", '"%s"' % ("r" * 257)]),
    ("list", "prefix", ["1", "null"]),
    ("list", "after", ["1", "null"]),
    ("list", "limit", ["0", "1001", "-1", "10.0", '"10"']),
    ("hello", "version", ["0", "2", "1.0", '"1"']),
    ("hello", "bind", ['"process"', '"other"', "1"]),
    ("hello", "client", ["1", '"%s"' % ("c" * 129)]),
]


@pytest.mark.parametrize("op,field,values", BAD_VALUES, ids=[f"{b[0]}-{b[1]}" for b in BAD_VALUES])
def test_bad_values(daemon, op, field, values):
    for value in values:
        client = daemon.client()
        members = {name: json.dumps(good) for name, good in GOOD_FIELDS[op].items()}
        members[field] = value
        text = ",".join(f'"{name}":{text}' for name, text in members.items())
        client.send_raw(('{"id":9,"op":"%s",%s}\n' % (op, text)).encode())
        reply = wait_until(lambda c=client: c.received, f"an answer to {value}")[0]
        assert reply["ok"] is False, value
        # A number beyond what the parser can carry may also be refused as no JSON of ours.
        allowed = ["bad_field"] if len(value) < 19 or value[0] == '"' else ["bad_field", "malformed"]
        assert reply["error"] in allowed, (value, reply)
        if reply["error"] == "bad_field":
            assert reply["id"] == 9 and reply["field"] == field, (value, reply)
        client.close()


def test_longest_values_are_fine(client, key):
    long_key = key + "k" * (512 - len(key))
    client.ok("acquire", key=long_key, owner="o" * 128, note="n" * 256, ttl_ms=1000,
              max_hold_ms=2**53 - 1, on_lost="event", renew=True)
    client.ok("release", key=long_key, owner="o" * 128, status="s" * 128)


def test_hello_comes_first_or_not_at_all(client):
    client.ok("ping")
    client.fails("bad_field", "hello")
    client.ok("ping")


# What each error means.


def test_busy_names_the_holder(daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    reply = client.fails("busy", "acquire", key=key)
    assert reply["holder"]["kind"] == "local" and reply["holder"]["pid"] == os.getpid()
    holder.close()


def test_timeout_tells_how_long(daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    before = now_ms()
    reply = client.fails("timeout", "acquire", key=key, wait_ms=300)
    assert reply["holder"]["kind"] == "local"
    assert 300 <= reply["waited_ms"] <= reply.arrived_ms - before
    holder.close()


def test_already_held(daemon, client, key):
    client.ok("acquire", key=key)
    client.fails("already_held", "acquire", key=key)
    client.fails("busy", "acquire", key=key, owner="other")
    waiting = client.send("acquire", key=key, owner="other", wait_ms=-1)
    client.fails("already_held", "acquire", key=key, owner="other")
    client.ok("cancel", target=waiting)


def test_not_held(client, key):
    for op in ["release", "extend"]:
        client.fails("not_held", op, key=key)
    client.ok("acquire", key=key, owner="a")
    for op in ["release", "extend"]:
        client.fails("not_held", op, key=key)
        client.fails("not_held", op, key=key, owner="b")


def test_another_fence_is_not_held(client, key):
    fence = client.ok("acquire", key=key)["fence"]
    for op in ["release", "extend"]:
        client.fails("not_held", op, key=key, fence=fence + 1)
    assert client.ok("check", key=key, fence=fence + 1)["held"] is False
    assert client.ok("check", key=key, fence=fence)["held"] is True


def test_not_pending(daemon, client, key):
    client.fails("not_pending", "cancel", target=12345)
    done = client.send("acquire", key=key)
    client.reply(done)
    client.fails("not_pending", "cancel", target=done)
    holder, other = daemon.client(), daemon.client()
    holder.ok("acquire", key=key + "2")
    waiting = other.send("acquire", id=4242, key=key + "2", wait_ms=-1)
    client.fails("not_pending", "cancel", target=4242)  # another connection's
    other.ok("cancel", target=waiting)
    holder.close()


def test_nothing_comes_unasked(client, key):
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    client.ok("ping")
    assert not [m for m in client.received if "event" in m]


# Options that bound requests.


def test_waiting_is_cut_at_max_wait(lab, key):
    daemon = lab.daemon("memory://", max_wait="1s")
    holder, client = daemon.client(), daemon.client()
    holder.ok("acquire", key=key)
    for wait_ms in [-1, 3600000]:
        reply = client.fails("timeout", "acquire", key=key, wait_ms=wait_ms)
        assert 1000 <= reply["waited_ms"] < 20000


def test_ttl_max_bounds_the_ttl(lab, key):
    client = lab.daemon("memory://", ttl_max="5s").client()
    assert client.ok("hello")["limits"]["ttl_max_ms"] == 5000
    assert client.fails("bad_field", "acquire", key=key, ttl_ms=5001)["field"] == "ttl_ms"
    assert client.ok("acquire", key=key)["ttl_ms"] == 5000
    assert client.fails("bad_field", "extend", key=key, ttl_ms=5001)["field"] == "ttl_ms"


def test_too_many_pending_requests(lab, key):
    daemon = lab.daemon("memory://", requests_max=20)
    daemon.client().ok("acquire", key=key)
    client = daemon.client()
    ids = [client.send("acquire", key=key, owner=str(n), wait_ms=-1) for n in range(20)]
    for _ in range(2):
        assert client.fails("quota", "acquire", key=key, owner="more", wait_ms=-1)["limit"]
    client.close()
    daemon.client().ok("ping")
    assert not [m for m in client.received if m["id"] in ids]


# Connections that say nothing.
