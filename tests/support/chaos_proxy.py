"""A proxy between a broker and its Redis that misbehaves on command.

    with ChaosProxy(lab.path("p.sock"), redis.path) as proxy:   # Unix sockets: paths
        daemon = lab.daemon(proxy.url)                          # a backend URL for lockbrokerd
        proxy.delay(200, jitter_ms=100)                         # both directions
        proxy.hold(TO_CLIENT)                                   # replies wait ...
        proxy.release()                                         # ... until now
        proxy.heal()                                            # no more faults

An address is a path, or a pair (host, port) for TCP; port 0 to listen on means any free one, which
`proxy.address` tells. A connection through the proxy is a *link*. Its two directions are TO_SERVER
(requests) and TO_CLIENT (replies); BOTH is the default where a direction may be given.

Faults that last, until heal() or another call of the same method:
    delay(ms, jitter_ms)        each piece of data waits ms + [0, jitter_ms]; the order stays
    split(size, gap_ms)         data goes on in pieces of at most `size` bytes, gap_ms apart
    throttle(bytes_per_s)       as a slow line would pass it on
    drop(direction)             swallowed silently, and so is the end of the stream; with
                                `containing=b"..."` only what came in one read with these bytes
    hold(direction), release()  kept back, the end of the stream too, and passed on at the release
    partition(), release()      a silent partition: both directions are held, nobody sees an end,
                                new connections get no answer. At release() all goes on where it
                                stopped, as TCP does it: also what a client sent that gave up since
    refuse(), refuse(False)     nobody listens: connecting fails
    only(said=b"subscribe")     all faults but refuse() hit only links whose client said this (in
                                any case, in its first 4 KiB)

Faults that happen, at once or to the next that comes by:
    cut()                       all links are reset: RST with TCP, a close with Unix sockets
    reset_after(n, direction)   n bytes more go that way, then their link is reset
    reset_at_request(when, containing, times)
                                the next request (with these bytes) costs its link: "before" it is
                                passed on, when it is "forwarded" (it may still run), or "executed"
                                (the first byte of an answer came, and was not passed on)
    inject(data, direction)     these bytes are put before the next data on each link that has some

A link that lost bytes to drop() never speaks sense in that direction again, as no real connection
has holes: it goes on swallowing, and heal() resets it.

Counted: `accepted` links, `live()` ones, `passed` and `swallowed` bytes by direction, `resets`, and
`fired`, how often reset_after, reset_at_request and inject did their work (see wait_fired()).

One thread does all the work; the methods hand it what to do and return when it is done. A link
keeps at most 256 KiB a direction and then stops reading, so memory is bounded. The thread ends with
stop(), and with the process in any case.
"""

import collections
import os
import random
import selectors
import socket
import struct
import threading
import time

from chaos_link import BOTH, TO_CLIENT, TO_SERVER, Faults, Link, Trigger

PATIENCE = 30


def family_of(address):
    return socket.AF_UNIX if isinstance(address, str) else socket.AF_INET


class ChaosProxy:
    """See the module's description."""

    def __init__(self, listen, target, seed=1):
        self.target = target
        self._listen = listen
        self._rng = random.Random(seed)
        self._links = []
        self._posted = collections.deque()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._listener = None
        self._ending = False
        self._thread = None
        self._faults = {TO_SERVER: Faults(), TO_CLIENT: Faults()}
        self._said = None
        self._trigger = Trigger()
        self._injections = 0
        self.error = None
        self.accepted = 0
        self.resets = 0
        self.fired = 0
        self.passed = {TO_SERVER: 0, TO_CLIENT: 0}
        self.swallowed = {TO_SERVER: 0, TO_CLIENT: 0}
        self._open_listener()

    # Life.

    def start(self):
        self._thread = threading.Thread(target=self._run, daemon=True, name="chaos-proxy")
        self._thread.start()
        return self

    def stop(self):
        if self._thread:
            self._ending = True
            self._wake()
            self._thread.join(PATIENCE)
            self._thread = None
            self._close_all()
        if self.error:
            raise AssertionError("the proxy failed") from self.error

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    @property
    def address(self):
        """Where clients connect to: the path, or (host, port)."""
        return self._listen

    @property
    def url(self):
        """The address as a backend URL."""
        if isinstance(self._listen, str):
            return f"redis+unix://{self._listen}"
        return "redis://{}:{}".format(*self._listen)

    # Faults that last.

    def delay(self, ms, jitter_ms=0, direction=BOTH):
        self._set(direction, delay_s=ms / 1000, jitter_s=jitter_ms / 1000)

    def split(self, size, gap_ms=0, direction=BOTH):
        self._set(direction, piece_max=size, gap_s=gap_ms / 1000)

    def throttle(self, bytes_per_s, direction=BOTH):
        self._set(direction, bytes_per_s=bytes_per_s)

    def drop(self, direction, containing=None):
        self._set(direction, dropping=True, dropping_what=containing)

    def hold(self, direction=TO_CLIENT):
        self._set(direction, held=True)

    def partition(self):
        self.hold(BOTH)

    def release(self):
        """Ends hold() and partition(); what was kept back goes on."""
        self._set(BOTH, held=False)

    def refuse(self, refusing=True):
        self._call(self._close_listener if refusing else self._open_listener)

    def only(self, said):
        def act():
            self._said = said.upper() if said else None
        self._call(act)

    def heal(self):
        """Ends all faults; links with a hole in their stream are reset."""
        def act():
            self._faults = {TO_SERVER: Faults(), TO_CLIENT: Faults()}
            self._said = None
            self._trigger = Trigger()
            self._open_listener()
            for link in list(self._links):
                if any(stream.has_hole for stream in link.streams.values()):
                    self._reset(link)
        self._call(act)

    # Faults that happen.

    def cut(self):
        def act():
            for link in list(self._links):
                if self._is_hit(link):
                    self._reset(link)
        self._call(act)

    def reset_after(self, count, direction):
        def act():
            self._trigger.reset_after[direction] = count
        self._call(act)

    def reset_at_request(self, when="executed", containing=b"", times=1):
        assert when in ("before", "forwarded", "executed"), when

        def act():
            self._trigger.request = [when, containing.upper(), times]
        self._call(act)

    def inject(self, data, direction=TO_CLIENT):
        def act():
            self._injections += 1
            self._trigger.injection[direction] = (self._injections, data)
        self._call(act)

    # What can be seen.

    def live(self):
        """How many links there are now."""
        return len(self._links)

    def wait_fired(self, count=1, timeout=PATIENCE):
        """Waits until armed faults went off this often since the start."""
        end = time.monotonic() + timeout
        while self.fired < count:
            assert time.monotonic() < end, f"fired {self.fired} times within {timeout} s"
            assert not self.error, self.error
            time.sleep(0.002)

    # The rest is run by the thread only, but for _call, _set and _wake.

    def _wake(self):
        try:
            self._wake_write.send(b"w")
        except BlockingIOError:
            pass

    def _call(self, act):
        if not self._thread:  # before the start
            act()
            return
        done = threading.Event()
        self._posted.append((act, done))
        self._wake()
        assert done.wait(PATIENCE) and not self.error, f"the proxy does not answer: {self.error!r}"

    def _set(self, direction, **values):
        def act():
            for one in (direction,) if isinstance(direction, str) else direction:
                for name, value in values.items():
                    setattr(self._faults[one], name, value)
        self._call(act)

    def _run(self):
        try:
            while not self._ending:
                timeout = self._pump_all()
                for key, mask in self._selector.select(timeout):
                    self._attend(key, mask)
                while self._posted:
                    act, done = self._posted.popleft()
                    act()
                    done.set()
        except Exception as error:  # told by stop(), in the test's own thread
            self.error = error
            for _, done in self._posted:
                done.set()

    def _close_all(self):
        self._close_listener()
        for link in list(self._links):
            self._close(link)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()

    def _attend(self, key, mask):
        if key.fileobj is self._wake_read:
            self._wake_read.recv(4096)
        elif key.fileobj is self._listener:
            self._accept()
        elif not key.data.closed:
            link, sock = key.data, key.fileobj
            if link.connecting:
                self._connected(link)
                return
            for stream in link.streams.values():
                if stream.sink is sock and mask & selectors.EVENT_WRITE:
                    stream.blocked = False
                if stream.source is sock and mask & selectors.EVENT_READ and not link.closed:
                    self._read(stream)

    def _open_listener(self):
        if self._listener:
            return
        listener = socket.socket(family_of(self._listen))
        if isinstance(self._listen, str):
            if os.path.exists(self._listen):
                os.unlink(self._listen)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(self._listen)
        listener.listen(128)
        listener.setblocking(False)
        if not isinstance(self._listen, str):
            self._listen = listener.getsockname()
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def _close_listener(self):
        if self._listener:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self):
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        far = socket.socket(family_of(self.target))
        link = Link(near, far)
        for sock in (near, far):
            sock.setblocking(False)
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._links.append(link)
        try:
            far.connect(self.target)
        except BlockingIOError:
            # With a Unix socket it means that the server's backlog is full.
            link.connecting = far.family == socket.AF_INET
            if not link.connecting:
                self._reset(link)
        except OSError:
            self._reset(link)

    def _connected(self, link):
        if link.far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._reset(link)
        link.connecting = False

    def _is_hit(self, link):
        return self._said is None or self._said in link.said

    def _read(self, stream):
        link = stream.link
        try:
            data = stream.source.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        faults = self._faults[stream.direction]
        hit = self._is_hit(link)
        if not data:
            stream.ended = True
            stream.has_hole |= hit and faults.drops(None)
            return
        if stream.direction == TO_SERVER:
            link.listen_to(data)
        if self._trips(link, stream, data):
            return
        if stream.done or stream.has_hole or (hit and faults.drops(data)):
            stream.has_hole |= hit and faults.drops(None)
            self.swallowed[stream.direction] += len(data)
            return
        due = time.monotonic()
        if hit:
            due += faults.delay_s + self._rng.uniform(0, faults.jitter_s)
            data = self._with_injection(stream) + data
        stream.push(data, due)

    def _with_injection(self, stream):
        number, data = self._trigger.injection.get(stream.direction, (0, b""))
        if stream.injected >= number:
            return b""
        stream.injected = number
        self.fired += 1
        return data

    def _trips(self, link, stream, data):
        """Whether this data costs the link at once."""
        if stream.direction == TO_CLIENT:
            if link.reset_on_reply:
                self.fired += 1
                self._reset(link)
            return link.closed
        request = self._trigger.request
        if not request or not self._is_hit(link) or request[1] not in data.upper():
            return False
        request[2] -= 1
        if request[2] == 0:
            self._trigger.request = None
        if request[0] == "before":
            self.fired += 1
            self._reset(link)
        elif request[0] == "forwarded":
            stream.reset_when_empty = True
        else:
            link.reset_on_reply = True
        return link.closed

    def _pump_all(self):
        """Writes what is due on all links; returns for how long nothing more will be."""
        now = time.monotonic()
        nearest = None
        for link in list(self._links):
            for stream in link.streams.values():
                due = None if link.closed or link.connecting else self._pump(stream, now)
                if due is not None:
                    nearest = due if nearest is None else min(nearest, due)
            if not link.closed and link.is_over():
                self._close(link)
            if not link.closed:
                self._watch(link)
        return None if nearest is None else max(0, nearest - now)

    def _pump(self, stream, now):
        """Writes what is due; returns when there is more to do, if it is known."""
        hit = self._is_hit(stream.link)
        faults = self._faults[stream.direction] if hit else Faults()
        if faults.held and not stream.done:
            return None
        while stream.queue and not stream.blocked:
            due = max(stream.queue[0][0], stream.next_send)
            if due > now:
                return due
            if not self._write(stream, faults, hit, now):
                return None
        if not stream.queue and stream.reset_when_empty:
            self.fired += 1
            self._reset(stream.link)
        elif not stream.queue and stream.ended and not stream.done:
            self._pass_end_on(stream)
        return None

    def _write(self, stream, faults, hit, now):
        """Writes one piece; returns whether to go on with this stream."""
        piece = stream.queue[0][1][:faults.piece_size()]
        left = self._trigger.reset_after.get(stream.direction) if hit else None
        if left is not None:
            piece = piece[:left]
        try:
            count = stream.sink.send(piece) if piece else 0
        except BlockingIOError:
            stream.blocked = True
            return False
        except OSError:
            self._sink_is_gone(stream)
            return False
        stream.pop(count)
        stream.next_send = now + faults.pause_after(count)
        self.passed[stream.direction] += count
        if left is not None and self._count_down(stream, left - count):
            return False
        return True

    def _count_down(self, stream, left):
        self._trigger.reset_after[stream.direction] = left
        if left > 0:
            return False
        del self._trigger.reset_after[stream.direction]
        self.fired += 1
        self._reset(stream.link)
        return True

    @staticmethod
    def _sink_is_gone(stream):
        stream.done = True
        stream.queue.clear()
        stream.queued = 0

    @staticmethod
    def _pass_end_on(stream):
        if stream.has_hole:
            return
        stream.done = True
        try:
            stream.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _watch(self, link):
        for sock in (link.near, link.far):
            mask = link.interest(sock)
            known = self._selector.get_map().get(sock)
            if known and not mask:
                self._selector.unregister(sock)
            elif known and known.events != mask:
                self._selector.modify(sock, mask, link)
            elif not known and mask:
                self._selector.register(sock, mask, link)

    def _reset(self, link):
        self.resets += 1
        for sock in (link.near, link.far):
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close(link)

    def _close(self, link):
        link.closed = True
        self._links.remove(link)
        for sock in (link.near, link.far):
            if sock in self._selector.get_map():
                self._selector.unregister(sock)
            sock.close()
