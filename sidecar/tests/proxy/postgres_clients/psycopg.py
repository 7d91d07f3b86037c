import threading, time
import psycopg
from psycopg import errors

with psycopg.connect(channel_binding="require") as connection:
    with connection.cursor() as cursor:
        cursor.execute("create temp table t (n int, what text)")
        with cursor.copy("copy t from stdin") as copy:
            for n in range(1000):
                copy.write_row((n, f"row {n}"))
        assert cursor.execute("select count(*), max(what) from t").fetchone() == (1000, "row 999")
        # Prepared, and by the binary format.
        for n in range(10):
            row = cursor.execute("select what from t where n = %s", (n,), prepare=True, binary=True).fetchone()
            assert row == (f"row {n}",)
        with connection.transaction(), connection.pipeline():
            for n in range(100):
                cursor.execute("insert into t values (%s, 'more')", (n,))
        assert cursor.execute("select count(*) from t").fetchone() == (1100,)
    begun = time.monotonic()
    timer = threading.Timer(1, connection.cancel)
    timer.start()
    try:
        connection.execute("select pg_sleep(60)")
        raise SystemExit("it was not cancelled")
    except errors.QueryCanceled:
        assert time.monotonic() - begun < 30
    connection.rollback()
    connection.execute("listen here")
    connection.execute("notify here, 'word'")
    connection.commit()
    assert next(connection.notifies(timeout=10)).payload == "word"

for more, code in [
    (dict(password="x" * 20), "28P01"),
    (dict(user="admin"), "28000"),
    (dict(dbname="other"), "28000"),
]:
    try:
        psycopg.connect(**more)
        raise SystemExit("it was let in")
    except psycopg.OperationalError as error:
        assert "understudy: " in str(error), error
print("done")
