import io

from django.core.management.base import OutputWrapper

from testproject.demo.display import ProgressBar, table
from testproject.demo.figures import DeadGroup, Progress, Summary


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(completed: int, dead: int = 0, retrying: int = 0) -> Progress:
    return Progress(completed=completed, dead=dead, waiting=0, running=0, retrying=retrying)


def test_on_a_terminal_the_bar_stays_on_one_line() -> None:
    out = Terminal()
    bar = ProgressBar(OutputWrapper(out), 10)
    bar.show(at(0))
    bar.show(at(4, dead=1, retrying=2))
    bar.end()
    lines = out.getvalue().split("\r")
    assert len(lines) == 3
    assert "[####################....................] 5/10" in lines[2]
    assert "dead 1  waiting for another try 2" in lines[2]
    assert out.getvalue().endswith("\n")


def test_the_table() -> None:
    dead = [
        DeadGroup(3, "builtins.SyntaxError", "invalid\nsyntax " + "x" * 300),
        DeadGroup(1, "builtins.OSError", "gone"),
    ]
    text = table(Summary(1_800, 12.0, 123_456, 7_890, (3.25, 1_234.5), (0.5, 60), 12, dead))
    rows = {" ".join(line.split()) for line in text.splitlines()}
    assert {
        "jobs done 1,800",
        "jobs/s 150.0",
        "wait p50, p99 3.2 ms, 1,234 ms",
        "run p50, p99 0.5 ms, 60 ms",
        "retries 12",
        "dead letters 4",
        "1 builtins.OSError: gone",
    } <= rows
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "dead letters by error" not in table(Summary(0, 0.0, 0, 0, (0, 0), (0, 0), 0, []))
