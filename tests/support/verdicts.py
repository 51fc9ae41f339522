"""What several tests ask of the lines that a client has read."""


def events(client, name):
    return [m for m in client.received if m.get("event") == name]


def is_affirming(message):
    """Whether the line says that a grant is held."""
    return (message.get("event") == "ok" or message.get("held") is True or
            ("deadline_ms" in message and message.get("ok") is True))


def assert_nothing_affirmed_after_lost(client):
    """Once `lost` was read, no line says that the grant is held."""
    lost = client.received.index(events(client, "lost")[0])
    assert not [m for m in client.received[lost:] if is_affirming(m)]


def assert_definite(reply):
    """A failure after which the key certainly is not taken by what was asked."""
    assert reply["ok"] is False and "may_block_ms" not in reply, reply
