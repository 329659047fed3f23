"""The worker process keeps within its bounds and does not outlive its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from fettle.cel.runtime import protocol
from fettle.cel.runtime.protocol import MATCH, EvaluateReply, EvaluateRequest, Parse, Parsed, Ready
from tests.fettle.cel.devices import DRIVER, GPU, whole_row

COMMAND = [sys.executable, "-m", "fettle.cel.runtime.worker"]


def limited(code: str) -> subprocess.CompletedProcess[bytes]:
    start = "from fettle.cel.runtime import limits; limits.limit(); "
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, check=False)


def hear(stream: IO[bytes] | None) -> protocol.Reply:
    assert stream is not None
    return protocol.decode_reply(stream.read(protocol.body_length(stream.read(4))))


def test_the_worker_answers_questions_and_ends_with_its_input() -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert isinstance(hear(process.stdout), Ready)
        process.stdin.write(protocol.frame(Parse('device.driver == "x"')))
        process.stdin.flush()
        assert hear(process.stdout) == Parsed((), None, driver="x")
        process.stdin.write(protocol.frame(EvaluateRequest("true", (whole_row(DRIVER, GPU),) * 3)))
        process.stdin.flush()
        judged = hear(process.stdout)
        assert isinstance(judged, EvaluateReply)
        assert judged.outcomes == (MATCH,) * 3
        process.stdin.close()
        assert process.wait(30) == 0


def test_the_worker_gets_no_memory_beyond_its_bound() -> None:
    done = limited("bytearray(1 << 30)")
    assert b"MemoryError" in done.stderr


def test_a_row_about_an_object_that_takes_too_much_memory_says_so() -> None:
    """Without the deadlines of its worker, which on a busy machine may come first."""
    code = """
from fettle.cel.objects.worker import activation, judge
from fettle.cel.runtime.protocol import ObjectExpressions
twice = "[resource.what]"
for _ in range(16):
    twice = f"[{twice}[0]].map(b, b + b)"
given = activation(b'{"what": "%b"}' % (b"x" * 20_000), 0.0)
print(judge(ObjectExpressions(f"{twice}[0] == 'x'", "'n'"), given).problem)
"""
    assert limited(code).stdout == b"when: it takes more memory than 512 MiB\n"


def test_the_kernel_ends_the_worker_at_the_deadline() -> None:
    done = limited("limits.end_after(0.05)\nwhile True: pass")
    assert done.returncode == -signal.SIGPROF


def test_the_worker_ends_when_its_parent_is_killed() -> None:
    code = """
import asyncio
from fettle.cel.runtime.engine import SelectorEngine
async def main():
    engine = SelectorEngine()
    await engine.start()
    print(engine.worker_pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert _runs(worker)
        parent.kill()
    patience = time.monotonic() + 30
    while _runs(worker) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_the_serving_process_never_loads_what_only_the_worker_needs() -> None:
    code = """
import sys
import fettle.cel.runtime.engine
print(sorted({"celpy", "lark", "re2", "fettle.cel.language.compiler"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
