"""What the chaos proxy knows of a link, and what may be wrong with one of its directions."""

import collections
import selectors

TO_SERVER = "to_server"
TO_CLIENT = "to_client"
BOTH = (TO_SERVER, TO_CLIENT)

QUEUE_MAX = 256 * 1024
SAID_MAX = 4096


class Faults:
    """What is wrong with one direction."""

    def __init__(self):
        self.delay_s = 0
        self.jitter_s = 0
        self.piece_max = None
        self.gap_s = 0
        self.bytes_per_s = None
        self.dropping = False
        self.dropping_what = None
        self.held = False

    def piece_size(self):
        size = self.piece_max or QUEUE_MAX
        if self.bytes_per_s:
            size = min(size, max(1, self.bytes_per_s // 50))
        return size

    def drops(self, data):
        """Whether it swallows this data, or all of it (None)."""
        return self.dropping and (self.dropping_what is None or
                                  (data is not None and self.dropping_what in data))

    def pause_after(self, count):
        return self.gap_s + (count / self.bytes_per_s if self.bytes_per_s else 0)


class Stream:
    """One direction of a link: what was read and waits to be written."""

    def __init__(self, link, direction, source, sink):
        self.link = link
        self.direction = direction
        self.source = source
        self.sink = sink
        self.queue = collections.deque()  # (when it may go, bytes)
        self.queued = 0
        self.last_due = 0
        self.next_send = 0
        self.ended = False      # the source has ended
        self.done = False       # the end was passed on, or the sink is gone
        self.blocked = False    # the sink takes no more at present
        self.has_hole = False
        self.injected = 0       # how many injections it had
        self.reset_when_empty = False

    def wants_to_read(self):
        return not self.ended and self.queued < QUEUE_MAX

    def push(self, data, due):
        self.last_due = max(self.last_due, due)
        self.queue.append((self.last_due, data))
        self.queued += len(data)

    def pop(self, count):
        due, data = self.queue.popleft()
        self.queued -= count
        if count < len(data):
            self.queue.appendleft((due, data[count:]))


class Link:
    """A connection from a client and the one to the server that belongs to it."""

    def __init__(self, near, far):
        self.near = near
        self.far = far
        self.connecting = False
        self.said = b""
        self.reset_on_reply = False
        self.closed = False
        self.streams = {TO_SERVER: Stream(self, TO_SERVER, near, far),
                        TO_CLIENT: Stream(self, TO_CLIENT, far, near)}

    def listen_to(self, data):
        if len(self.said) < SAID_MAX:
            self.said = (self.said + data.upper())[:SAID_MAX]

    def is_over(self):
        return all(stream.done or (stream.ended and stream.has_hole)
                   for stream in self.streams.values())

    def interest(self, sock):
        """What the selector is to watch for on one of the two sockets."""
        if self.connecting:
            return selectors.EVENT_WRITE if sock is self.far else 0
        mask = 0
        for stream in self.streams.values():
            if stream.source is sock and stream.wants_to_read():
                mask |= selectors.EVENT_READ
            if stream.sink is sock and stream.blocked:
                mask |= selectors.EVENT_WRITE
        return mask


class Trigger:
    """A fault that is armed and goes off when something comes by."""

    def __init__(self):
        self.reset_after = {}   # direction: bytes left
        self.request = None     # [when, containing, times left]
        self.injection = {}     # direction: (number, bytes)
