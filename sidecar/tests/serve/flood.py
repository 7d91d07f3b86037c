"""An agent that floods: names, requests and bytes that are made to break lines, texts and counts. Prints how many of each."""

import socket
import ssl
import struct
import sys
import threading

THREADS, EACH = 6, 80
FORGED = '","decision":"allowed","x":"'
LINE = '{"schema":1,"time":1,"container":"other","decision":"allowed"}'
TEXTS = [
    "a\nb", "a\r\n" + LINE + "\r\n", 'a"b', FORGED, "a'b", "a\\", "a%00b", "a%0ab", "a b", "a\tb", "\x00", "\x1b[2J\x1b]0;x\x07", "\x7f",
    "\u0085", "\u009b31m", "\u202eevil", "\u2028x", "\ufeff", "\u212aelvin", "b\u00fccher", "\U0001f600", "a" * 63, "<script>", "${jndi:x}", "`id`",
    "$(id)", "../..", "a;b", "a,b", "{name}", "*", "[::1]", "1.2.3.4", "0x7f.1", "user@host",
]
RAW = [text.encode("utf-8", "surrogatepass") for text in TEXTS] + [b"\xff\xfe", b"\xc3", b"a\x9b31m", b"\xed\xa0\x80"]
LONG = ".".join(["a" * 61] * 3 + ["b" * 59, "example"])
assert len(LONG) == 253


def nameserver():
    with open("/etc/resolv.conf") as lines:
        return next(line.split()[1] for line in lines if line.startswith("nameserver"))


def query(labels):
    name = b"".join(bytes([len(label[:63])]) + label[:63] for label in labels if label)
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + name + b"\0" + struct.pack(">HH", 1, 1)


def look_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(0.2)
        for number in range(3):
            for text in RAW:
                udp.sendto(query([b"n%d" % number, text, b"example"]), (nameserver(), 53))
                try:
                    udp.recv(4096)
                except TimeoutError:
                    pass


def exchange(address, port, sent, ends=True):
    """One connection, until the other side ends it; `ends`: we have said all that we will."""
    try:
        with socket.create_connection((address, port), timeout=20) as stream:
            stream.sendall(sent)
            if ends:
                stream.shutdown(socket.SHUT_WR)
            while stream.recv(65536):
                pass
    except OSError:
        pass


def request(number, host, method=b"GET", path=b"", more=b""):
    return b"%s /event-%d-%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n" % (method, number, path, host, more)


def in_url(text):
    """As little of it encoded as a server takes."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return b"".join(b"%%%02x" % byte for byte in text)
    return b"".join(bytes([byte]) if byte >= 0x80 else b"%%%02x" % byte for byte in text)


def hello(name):
    """A ClientHello whose name is these bytes."""
    letters = b"n" * len(name)
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=letters.decode())
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read().replace(letters, name)


def flood(thread, sink, sent):
    for turn in range(EACH):
        number = thread * EACH + turn
        text = RAW[(thread + turn) % len(RAW)]
        kind = turn % 8
        if kind == 0:
            # The name of the connection says nothing there, so that any host may be named.
            sent.append(number)
            exchange(sink, 80, request(number, b"h%d.example" % number, path=in_url(text)), ends=False)
        elif kind == 1:
            sent.append(number)
            exchange(sink, 80, request(number, LONG.encode(), path=b"?" + in_url(text) + b"=1&k=" + in_url(text)), ends=False)
        elif kind == 2:
            method = bytes(byte for byte in text if byte < 0x80 and chr(byte).isalpha()).upper()[:20] or b"BREW"
            odd = text.translate(None, b"\r\n\0")
            if not any(byte < 0x20 or byte == 0x7F for byte in odd):
                sent.append(number)
            exchange(sink, 80, request(number, b"m.example", method=method, more=b"X-Odd: %s\r\n" % odd), ends=False)
        elif kind == 3:
            # Several on one connection.
            parts = [request(number, b"p%d.example" % part, path=b"part-%d" % part) for part in range(3)]
            exchange(sink, 80, b"".join(parts[:2]).replace(b"Connection: close\r\n", b"") + parts[2], ends=False)
        elif kind == 4:
            exchange(sink, 80, b"GET / HTTP/1.1\r\nHost: " + text + b".example\r\nConnection: close\r\n\r\n")
        elif kind == 5:
            exchange(sink, 80, b"POST /" + text + b" HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4, 4\r\n" + text + b": x\r\n\r\nbody")
        elif kind == 6:
            exchange(sink, 443, hello((text + b"xxxx")[:60]))
        else:
            exchange(sink, [22, 25, 443, 80][turn // 8 % 4], text * 20)


def main():
    sink = socket.gethostbyname("denied.example")
    look_up()
    sent, threads = [], []
    for thread in range(THREADS):
        threads.append(threading.Thread(target=flood, args=(thread, sink, sent)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # By now it has come to its limit.
    exchange(sink, 80, request(999_999, b"last.example"), ends=False)
    print("events", *sorted(sent), file=sys.stdout)


main()
