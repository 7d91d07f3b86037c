"""A gRPC client (grpcio) of the mock's service, without generated code: a message is bytes.

grpc.py HOST KEY: prints what came back, one line for each call.
"""
import sys
import time

import grpc

host, key = sys.argv[1:]
metadata = [("x-api-key", key)]
same = lambda message: message
codec = {"request_serializer": same, "response_deserializer": same}
# the client itself speaks nothing but HTTP/2
with grpc.secure_channel(host + ":443", grpc.ssl_channel_credentials()) as channel:
    unary = channel.unary_unary("/mock.Echo/Unary", **codec)
    answer, call = unary.with_call(b"hello" * 100000, metadata=metadata, timeout=20)
    assert answer == b"hello" * 100000, len(answer)
    print("unary", call.code().name, dict(call.initial_metadata()), dict(call.trailing_metadata()))

    # the next message is sent when the last one has come back: both directions are open at once
    received = []

    def messages():
        for number in range(5):
            while len(received) < number:
                time.sleep(0.01)
            yield b"message %d" % number

    call = channel.stream_stream("/mock.Echo/Stream", **codec)(messages(), metadata=metadata, timeout=20)
    for message in call:
        received.append(message)
    assert received == [b"message %d" % number for number in range(5)], received
    print("stream", call.code().name, dict(call.trailing_metadata()))

    try:
        channel.unary_unary("/mock.Echo/Fail", **codec)(b"", metadata=metadata, timeout=20)
    except grpc.RpcError as error:
        print("fail", error.code().name, error.details())
