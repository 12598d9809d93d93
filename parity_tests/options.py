"""The suite's command-line options, known before any path is looked at: `pytest --device gpu`."""


def pytest_addoption(parser):
    group = parser.getgroup("twins")
    group.addoption(
        "--device",
        default="cpu",
        choices=["cpu", "gpu", "tpu", "auto"],
        help="where the twins run; an accelerator that is absent is an error (default: cpu)",
    )
    group.addoption(
        "--architectures",
        type=int,
        default=6,
        metavar="N",
        help="how many random architectures are drawn (default: 6)",
    )
    group.addoption(
        "--architectures-seed",
        type=int,
        default=0,
        metavar="S",
        help="which random architectures are drawn (default: 0)",
    )
    group.addoption(
        "--false-alarms",
        type=int,
        default=1,
        metavar="N",
        help="how many correct random pairs are searched for faults (default: 1)",
    )
    group.addoption(
        "--long-runs",
        action="store_true",
        help="train every family for 1,000 updates in every dtype, with --slow; else a few of them",
    )
    group.addoption(
        "--slow-commands",
        action="store_true",
        help="run the commands of the pages that take minutes too, with --slow",
    )
    group.addoption("--slow", action="store_true", help="run the tests marked slow too")
