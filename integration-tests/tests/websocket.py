"""A WebSocket client of a few lines (RFC 6455): says hello and prints what comes back.

websocket.py [HOST [PORT [KEY]]]: over TLS if a host is given, trusting the system's bundle. With a key, it is sent, and the
head and the first message of the answer are printed, too.
"""
import base64
import os
import socket
import ssl
import sys

host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
port = int(sys.argv[2]) if len(sys.argv) > 2 else (443 if len(sys.argv) > 1 else 80)
stream = socket.create_connection((host, port))
if len(sys.argv) > 1:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    stream = context.wrap_socket(stream, server_hostname=host)
api_key = sys.argv[3] if len(sys.argv) > 3 else None
path, header = ("/ws?reflect", f"x-api-key: {api_key}\r\n") if api_key else ("/ws", "")
key = base64.b64encode(os.urandom(16)).decode()
stream.sendall(
    f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{header}Upgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
)
file = stream.makefile("rb")
status = file.readline()
assert b" 101 " in status, status + file.read(4096)
while (line := file.readline()) != b"\r\n":
    if api_key:
        print(line.decode().strip())
if api_key:
    head = file.read(2)
    assert head[0] == 0x81 and head[1] < 126, head
    print(file.read(head[1]).decode())
payload, mask = b"hello", os.urandom(4)
masked = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
stream.sendall(bytes([0x81, 0x80 | len(payload)]) + mask + masked)
head = file.read(2)
assert head == bytes([0x81, len(payload)]), head
print(file.read(len(payload)).decode())
