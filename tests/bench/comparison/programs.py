"""The programs that are compared: where they are, how they are built, and what they say."""
import os
import pathlib
import resource
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent


class Missing(Exception):
    """A side that is not there, so that a section cannot be run."""


def find_ours(build):
    places = [build / "bin/gradus_bench", build / "tests/gradus_bench"]
    program = next((place for place in places if place.exists()), None)
    if not program:
        raise Missing(f"{places[0]} is missing; './run bench' builds it")
    return program


def find_peer(build, given):
    """The peer's program, built where it is older than its sources."""
    if given:
        if not given.exists():
            raise Missing(f"{given} is missing")
        return given
    python = os.environ.get("PEER_PYTHON", "")
    folder = build / ("peer-of-" + python.strip("/").replace("/", "-") if python else "peer")
    program = folder / "peer_torch"
    newest = max(source.stat().st_mtime for source in (HERE / "peer").iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        print("building the peer ...", file=sys.stderr)
        if subprocess.run([HERE / "peer/build_peer.sh", folder], stdout=subprocess.DEVNULL).returncode:
            raise Missing("there is no libtorch to compare with")
    return program


def build_native(build):
    """gradus_bench of a library with the kernels of one instruction set only, this processor's."""
    folder = build.parent / "native"
    print("building with -march=native ...", file=sys.stderr)
    configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGRADUS_BUILD_BENCH=ON",
                 "-DGRADUS_BUILD_TESTS=OFF", "-DGRADUS_BUILD_EXAMPLES=OFF", "-DGRADUS_HAVE_X86_64_LEVELS=OFF",
                 "-DCMAKE_CXX_FLAGS=-march=native"]
    for command in (configure, ["cmake", "--build", folder, "--target", "gradus_bench"]):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise Missing(f"the build with -march=native failed\n{run.stdout}{run.stderr}")
    return find_ours(folder)


def run(program, arguments, threads, extra=None, turn=0, memory_limit=None):
    """What the program says: {name: [numbers]}, and its errors.

    With one thread it runs on one processor, in each turn on the next: neighbours may keep one of them busy, and both
    sides of a comparison should meet the same ones."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "GRADUS_NUM_THREADS": str(threads)} | (extra or {})
    processors = sorted(os.sched_getaffinity(0))

    def before():
        if threads == 1:
            os.sched_setaffinity(0, {processors[turn % len(processors)]})
        if memory_limit:
            resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))

    done = subprocess.run([program, *map(str, arguments)], env=env, capture_output=True, text=True, preexec_fn=before)
    said = {}
    for line in done.stdout.splitlines():
        name, *numbers = line.split("\t")
        said[name] = [float(number) for number in numbers]
    return said, done.stderr


def seconds(program, case, budget, threads, extra=None, turn=0):
    """Seconds of one step of one case in a process of its own."""
    said, errors = run(program, [budget, "=" + case], threads, extra, turn)
    if case not in said:
        raise Missing(f"{program} says nothing about {case}\n{errors}")
    return said[case][0]


def section(program, name, budget, only, threads, rounds):
    """The rows of a section of gradus_bench: the least of each column over the rounds."""
    best = {}
    for turn in range(rounds):
        said, errors = run(program, ["--section", name, budget, only], threads, turn=turn)
        if errors:
            raise Missing(errors.strip())
        for row, numbers in said.items():
            best[row] = [min(pair) for pair in zip(numbers, best.get(row, numbers))]
    return best


def instruction_set(program, pinned=None):
    """The one in use; None where the processor lacks the pinned one."""
    env = os.environ | ({"GRADUS_ISA": pinned} if pinned else {})
    done = subprocess.run([program, "--isa"], env=env, capture_output=True, text=True)
    return None if done.returncode else done.stdout.strip()


def torch_version(peer):
    return subprocess.run([peer, "--version"], capture_output=True, text=True).stdout.strip()


def blas_of(peer):
    """The path of the libblas that the peer loads, or "" where libtorch brings its own."""
    loaded = subprocess.run(["ldd", peer], capture_output=True, text=True).stdout
    paths = [line.split()[2] for line in loaded.splitlines() if line.strip().startswith("libblas.")]
    return os.path.realpath(paths[0]) if paths else ""


def best_setting(peer, threads):
    """Environment under which the peer is at its best: an old OpenBLAS may not know the processor and needs to be told."""
    blas = blas_of(peer)
    if not blas:
        return {}, "its own products"
    if "openblas" not in blas:
        print("NOTE: libtorch uses Debian's reference BLAS here, which is many times slower than OpenBLAS. For a peer at\n"
              "its best: apt-get install libopenblas0-openmp", file=sys.stderr)
        return {}, "reference BLAS, not at its best"
    if "OPENBLAS_CORETYPE" in os.environ:
        return {}, f"OpenBLAS, OPENBLAS_CORETYPE={os.environ['OPENBLAS_CORETYPE']}"
    settings = [{}, {"OPENBLAS_CORETYPE": "HASWELL"}]
    if "avx512" in pathlib.Path("/proc/cpuinfo").read_text():
        settings.append({"OPENBLAS_CORETYPE": "SKYLAKEX"})
    tries = [[seconds(peer, "mha_8x128x256", 0.2, threads, s, turn) for turn in range(4)] for s in settings]
    best = min(range(len(settings)), key=lambda i: min(tries[i]))
    return settings[best], "OpenBLAS, OPENBLAS_CORETYPE " + settings[best].get("OPENBLAS_CORETYPE", "not set")
