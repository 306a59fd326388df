"""Programs that try to reach the machine, to be called right without being so, or not to end.

In a text, FILE is a file of the host that holds the secret, MARK one that must not come to be, PORT a port of the host
that listens. FORGED is what no program here returns from `f`, though many say so.
"""

from dataclasses import dataclass

FORGED = 987_654_321


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    ok: bool = False
    """Whether it may end as a program that ran: it then returned plain data, and nothing was forged."""
    seconds: float = 10
    """`timeout_s`: 1 for those that only the clock ends."""


def attack(name: str, source: str, **options) -> Attack:
    return Attack(name, source.strip("\n").replace("FORGED", str(FORGED)), **options)


LINE = "[[FORGED, null]]"
"""What the harness answers for one call that returned FORGED."""
TOLD = '{"text": "[[FORGED, null]]", "error": "", "stdout": "", "backstop": false, "late": false}'
"""What a worker answers then."""
EQUAL = """    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 1
"""

ATTACKS = [
    # Files, environment, network, processes
    attack("reads a file", "def f(): return open('FILE').read()"),
    attack("follows a link", "import os\nos.symlink('FILE', '/tmp/l')\ndef f(): return open('/tmp/l').read()"),
    attack("reads /proc", "def f(): return open('/proc/self/environ', 'rb').read().decode()"),
    attack("reads the environment", "import os\ndef f(): return dict(os.environ)", ok=True),
    attack("reads every descriptor", """
import os
def f():
    got = []
    for d in range(64):
        try:
            got.append(os.read(d, 4096).decode())
        except OSError:
            pass
    return got
""", ok=True),
    attack("writes a file", "def f():\n    open('MARK', 'w').write('x')\n    return 1"),
    attack("connects", """
import socket
def f():
    s = socket.create_connection(('127.0.0.1', PORT), timeout=1)
    s.sendall(b'x')
    return 1
"""),
    attack("starts a process", "import subprocess\ndef f(): return subprocess.run(['touch', 'MARK']).returncode"),
    attack("forks without end", "import os\ndef f():\n    while True:\n        os.fork()"),
    attack("calls C", "import ctypes\ndef f(): return ctypes.CDLL(None).system(b'touch MARK')"),
    attack("kills its parent", "import os, signal\ndef f(): os.kill(os.getppid(), signal.SIGKILL)"),
    # Output that looks like an answer
    attack("writes an answer to every descriptor", f"""
import os
def f():
    for d in range(64):
        for text in ({LINE!r}, {TOLD!r}):
            try:
                os.write(d, text.encode() + b'\\n')
            except OSError:
                pass
    os._exit(0)
"""),
    # Ends before it is asked
    attack("exits hard", f"import os\n_mas_lab_result = {LINE!r}\nos._exit(0)"),
    # Values that claim to be equal to everything
    attack("is an int that equals everything", f"class Any(int):\n{EQUAL}def f(): return Any(FORGED)"),
    attack("returns a generator", "def f():\n    yield FORGED"),
    attack("returns itself inside itself", "def f():\n    x = []\n    x.append(x)\n    return x"),
    attack("returns what is nested deeply",
           "def f():\n    x = []\n    for _ in range(100_000):\n        x = [x]\n    return x"),
    attack("returns a huge text", "def f(): return 'x' * (40 << 20)"),
    # Tampering with what runs beside it
    attack("answers for more calls",
           "import json\njson.dumps = lambda *a, **k: '[1, null], [2, null]'\ndef f(): return 1"),
    attack("replaces builtins", """
import builtins
for name in ('len', 'type', 'isinstance', 'print', 'str', 'list', 'BaseException', 'TypeError'):
    setattr(builtins, name, lambda *a: 7)
def f(): return 1
"""),
    attack("walks the frames", """
import sys
def f():
    frame, names = sys._getframe(), []
    while frame:
        names += [str(v) for v in list(frame.f_globals.values()) + list(frame.f_locals.values())]
        frame = frame.f_back
    return names
""", ok=True),
    attack("unpickles", "import pickle\ndef f(): return pickle.loads(b\"cos\\nsystem\\n(S'touch MARK'\\ntR.\")"),
    # Texts that would swallow what follows them
    attack("leaves a quote open", "def f(): return FORGED\nx = '''"),
    attack("has a NUL", "def f(): return FORGED\n\0"),
    attack("prints control characters", "print('\\x00\\x1b]0;x\\x07\\r\\n\\x1b[2J')\ndef f(): return 1", ok=True),
    # An error's text chooses what the host makes of it
    attack("has the host import a module",
           "def f(): raise AttributeError(\"module 'antigravity' has no attribute 'x'\")"),
    attack("raises the clock's error", "raise TimeoutError('feed time limit exceeded: 9s > 3s')"),
    # Without end
    attack("loops and swallows every error", """
def f():
    while True:
        try:
            while True: pass
        except BaseException:
            pass
""", seconds=1),
    attack("prints without end", "while True: print('x' * 10_000)", seconds=1),
    attack("fills the memory", "def f():\n    x = []\n    while True: x.append('x' * 1_000_000 + str(len(x)))"),
    attack("fills the disk in memory",
           "def f():\n    with open('/tmp/x', 'wb') as file:\n        while True: file.write(bytes(1 << 20))"),
    attack("computes a number without end", "def f(): return 9 ** 9 ** 9 % 7", seconds=1),
    attack("recurses", "def f(): return f()"),
    attack("nests brackets", "def f(): return " + "(" * 5000 + ")" * 5000),
]  # fmt: skip
