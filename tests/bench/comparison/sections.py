"""The sections of the comparison. Each prints its tables and tells which rows miss their bounds."""
import math
import statistics

from . import programs
from .programs import Missing

# The largest ours / peer allowed: beside PyTorch 2, and beside Debian's 1.13. Forward only is held to the same.
TRAINING = {
    "small_op": (0.15, 0.08),
    "mlp_small": (0.20, 0.12),
    "mha_32x10x64": (0.35, 0.20),
    "mha_8x128x256": (0.70, 0.30),
    "mha_2x512x512": (0.80, 0.40),
    "mha_1x2048x512": (0.80, 0.20),
    "copy_small": (0.40, 0.20),
    "copy_paper": (0.85, 0.50),
}
FORWARD = {"forward_" + case: bound for case, bound in TRAINING.items() if case.startswith(("mha", "copy"))}
OPS = ["softmax", "layer_norm", "cross_entropy", "sum", "cat", "embedding", "slice_of_1000", "slice_of_8000"]
PEER = TRAINING | FORWARD | {case: (1.0, 1.0) for case in OPS}

PRODUCT_SPEED = 0.9  # of oneDNN's, at least
COPY_SPEED = 0.7     # of a plain copy's, at least
SCALING = {"mha_2x512x512": 1.7, "copy_paper": 1.7}  # how many times as fast with 2 threads, at least
SMALL = ["small_op", "mlp_small", "mha_32x10x64", "copy_small"]
SMALL_LOSS = 1.05    # time with 2 threads / with 1, at most
NATIVE_LOSS = 1.05   # time / that of a library built for this processor, at most
GROWTH = {"tape": 1.1, "slices": 1.1, "embedding_rows": 1.1, "batch": 1.1, "depth": 1.1}  # largest exponents
GIB = 2**30
MEMORY = 1 * GIB     # at most
MEMORY_LIMIT = 8 * GIB  # what a case gets before it is stopped


class Rows:
    """Collects the rows that miss their bounds, and says so beside them."""

    def __init__(self, args, section):
        self.held, self.section, self.missed = args.bounds, section, []

    def verdict(self, row, value, at_most=math.inf, at_least=-math.inf):
        if not self.held or at_least <= value <= at_most:
            return ""
        text = f"over {at_most:g}" if value > at_most else f"under {at_least:.3g}"
        self.missed.append(f"{self.section}: {row} {value:.3g} is {text}")
        return "  " + text


def plural(threads):
    return f"{threads} thread{'s' * (threads > 1)}"


def micro(seconds):
    return f"{seconds * 1e6:>11.2f}us"


def wanted(args, cases):
    return [case for case in cases if args.only in case]


def seconds(args, program, case, turn, threads, extra=None):
    return programs.seconds(program, case, args.seconds, threads, extra, turn)


def alternate(args, cases, left, right):
    """For each case the least seconds of two sides that run in turn, and the median of the ratio within a round."""
    for case in wanted(args, cases):
        rounds = [(left(case, turn), right(case, turn)) for turn in range(args.rounds)]
        yield case, *(min(side) for side in zip(*rounds)), statistics.median(a / b for a, b in rounds)


def peer(args, ours):
    """The same work in libtorch."""
    program = programs.find_peer(args.build, args.peer)
    version = programs.torch_version(program)
    column = 1 if version.startswith("1.") else 0
    missed = []
    for threads in args.threads:
        extra, setting = programs.best_setting(program, threads)
        rows = Rows(args, f"peer, {plural(threads)}")
        print(f"\n{plural(threads)}; peer: libtorch {version}, {setting}")
        print(f"{'case':<24}{'ours':>13}{'peer':>13}{'ratio':>8}{'median':>8}")
        for case, a, b, median in alternate(args, PEER,
                                            lambda case, turn: seconds(args, ours, case, turn, threads),
                                            lambda case, turn: seconds(args, program, case, turn, threads, extra)):
            verdict = rows.verdict(case, a / b, at_most=PEER[case][column])
            print(f"{case:<24}{micro(a)}{micro(b)}{a / b:>8.3f}{median:>8.3f}{verdict}", flush=True)
        missed += rows.missed
    return missed


def beside_reference(args, ours, name, reference, bound_of):
    """Rows that have their reference in the same program: the speed, as a part of the reference's."""
    missed = []
    for threads in args.threads:
        rows = Rows(args, f"{name}, {plural(threads)}")
        print(f"\n{plural(threads)}; speed: ours, as a part of that of {reference}")
        print(f"{'case':<32}{'ours':>13}{'reference':>13}{'speed':>8}")
        for case, (a, b) in programs.section(ours, name, args.seconds, args.only, threads, args.rounds).items():
            verdict = rows.verdict(case, b / a, at_least=bound_of(case))
            print(f"{case:<32}{micro(a)}{micro(b)}{b / a:>8.2f}{verdict}", flush=True)
        missed += rows.missed
    return missed


def products(args, ours):
    """Matrix products beside oneDNN's."""
    return beside_reference(args, ours, "products", "oneDNN", lambda case: PRODUCT_SPEED)


def bandwidth(args, ours):
    """Ops on large tensors beside a copy of as many bytes."""
    return beside_reference(args, ours, "bandwidth", "a plain copy of as many bytes",
                            lambda case: 0 if case.endswith("_cached") else COPY_SPEED)


def threads(args, ours):
    """Two threads beside one."""
    rows = Rows(args, "threads")
    print("\none thread and two; gain: time with one / time with two")
    print(f"{'case':<24}{'one':>13}{'two':>13}{'gain':>8}{'median':>8}")
    sides = [lambda case, turn, n=n: seconds(args, ours, case, turn, n) for n in (1, 2)]
    for case, one, two, median in alternate(args, [*SCALING, *SMALL], *sides):
        verdict = rows.verdict(case, one / two, at_least=SCALING.get(case, 1 / SMALL_LOSS))
        print(f"{case:<24}{micro(one)}{micro(two)}{one / two:>8.3f}{median:>8.3f}{verdict}", flush=True)
    return rows.missed


def isa(args, ours):
    """Each instruction set that this processor has."""
    sets = [name for name in ("baseline", "x86-64-v3", "x86-64-v4") if programs.instruction_set(ours, name)]
    count = args.threads[0]
    print(f"\n{plural(count)}; unpinned it is {programs.instruction_set(ours)}")
    print(f"{'case':<24}" + "".join(f"{name:>13}" for name in sets))
    for case in wanted(args, PEER):
        best = [math.inf] * len(sets)
        for turn in range(args.rounds):
            for i, name in enumerate(sets):
                now = seconds(args, ours, case, turn, count, {"GRADUS_ISA": name})
                best[i] = min(best[i], now)
        print(f"{case:<24}" + "".join(map(micro, best)), flush=True)
    return []


def native(args, ours):
    """The library as it is shipped, beside one built for this processor alone (in a build folder of its own)."""
    program = programs.build_native(args.build)
    rows = Rows(args, "native")
    count = args.threads[0]
    print(f"\n{plural(count)}; {programs.instruction_set(ours)}, chosen at start-up, beside -march=native")
    print(f"{'case':<24}{'ours':>13}{'native':>13}{'ratio':>8}{'median':>8}")
    sides = [lambda case, turn, p=p: seconds(args, p, case, turn, count) for p in (ours, program)]
    for case, a, b, median in alternate(args, PEER, *sides):
        verdict = rows.verdict(case, a / b, at_most=NATIVE_LOSS)
        print(f"{case:<24}{micro(a)}{micro(b)}{a / b:>8.3f}{median:>8.3f}{verdict}", flush=True)
    return rows.missed


def exponent(points):
    """The slope of log time over log size."""
    logs = [(math.log(size), math.log(time)) for size, time in points]
    return statistics.linear_regression(*zip(*logs)).slope


def growth(args, ours):
    """Time against size."""
    series = {}
    for row, (time,) in programs.section(ours, "growth", args.seconds / 5, args.only, 1, args.rounds).items():
        name, _, size = row.rpartition("_")
        series.setdefault(name, []).append((int(size), time))
    rows = Rows(args, "growth")
    print(f"\n1 thread; exponent: fitted to the last two doublings")
    for name, points in series.items():
        print(f"{name:<16}" + "".join(f"{size:>13}" for size, _ in points) + f"{'exponent':>10}")
        power = exponent(points[-3:]) if len(points) > 2 else math.nan
        verdict = rows.verdict(name, power, at_most=GROWTH[name]) if name in GROWTH else ""
        print(f"{'':<16}" + "".join(f"{time * 1e3:>11.3f}ms" for _, time in points) + f"{power:>10.2f}{verdict}", flush=True)
    return rows.missed


def memory(args, ours):
    """Resident memory of training attention over 16384 tokens."""
    rows = Rows(args, "memory")
    print(f"\n{'case':<24}{'peak':>13}")
    for case in wanted(args, ["memory_mask_16384", "memory_causal_16384"]):
        said, errors = programs.run(ours, ["--section", "memory", 1, "=" + case], args.threads[0], memory_limit=MEMORY_LIMIT)
        if case not in said and "memory: the system has no" not in errors:
            raise Missing(errors.strip())
        peak = said.get(case, [MEMORY_LIMIT])[0] / GIB
        shown = f"{peak:.2f} GiB" if case in said else f"> {MEMORY_LIMIT / GIB:g} GiB"
        print(f"{case:<24}{shown:>13}{rows.verdict(case, peak, at_most=MEMORY / GIB)}", flush=True)
    return rows.missed


ALL = {f.__name__: f for f in (peer, products, bandwidth, threads, isa, native, growth, memory)}
