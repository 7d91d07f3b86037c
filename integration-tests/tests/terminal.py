# terminal.py COMMAND...: a terminal of 120 by 40 that a person sits at: what is typed comes from /tmp/keys, what is shown goes to /tmp/tty.
# It answers what programs ask of one (ECMA-48 CPR and DA): where the cursor is, and what it is.
import fcntl, os, pty, select, struct, sys, termios

ANSWERS = [(b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62;c"), (b"\x1b[0c", b"\x1b[?62;c")]

os.environ["TERM"] = "xterm-256color"
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
os.mkfifo("/tmp/keys")
# for writing, too: it never ends
keys = os.open("/tmp/keys", os.O_RDWR)
with open("/tmp/tty", "ab", buffering=0) as shown:
    while True:
        ready, _, _ = select.select([terminal, keys], [], [])
        if keys in ready:
            os.write(terminal, os.read(keys, 4096))
        if terminal in ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            shown.write(data)
            for asked, answer in ANSWERS:
                os.write(terminal, answer * data.count(asked))
os.waitpid(child, 0)
