#!/usr/bin/env bash
# Builds peer_torch, libtorch's side of the speed comparison, into the folder given (default: peer-build) and prints its path.
# Needs a compiler and libtorch: Debian's libtorch-dev and python3-torch (old), or PEER_PYTHON=a Python with a
# pip-installed torch (the stronger peer). Ends with status 3 where there is none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-peer-build}
python=${PEER_PYTHON:-/usr/bin/python3}

# The folder of headers and libraries, the library's C++ ABI, and the C++ standard that its headers need. The package is
# looked at and not imported: a wheel made for GPUs is not importable where their libraries are missing.
facts=$("$python" - 2>/dev/null <<'END'
import importlib.util, os, runpy
root = os.path.dirname(importlib.util.find_spec("torch").origin)
version = runpy.run_path(os.path.join(root, "version.py"))["__version__"]
own = os.path.isdir(os.path.join(root, "include", "torch")) and os.path.exists(os.path.join(root, "lib", "libtorch_cpu.so"))
config = os.path.join(root, "share", "cmake", "Torch", "TorchConfig.cmake")  # of wheels; up to 2.5 it names the old ABI
abi = 0 if os.path.exists(config) and "_GLIBCXX_USE_CXX11_ABI=0" in open(config).read() else 1
print(root if own else "/usr", abi, 17 if version.startswith("1.") else 20)
END
) || facts=
read -r root abi standard <<<"$facts"
include=${root:+$root/include}
if [ "$root" = /usr ]; then libraries=(); else libraries=("-L$root/lib" "-Wl,-rpath,$root/lib"); fi
if [ -z "$root" ] || [ ! -e "$include/torch/csrc/api/include/torch/torch.h" ]; then
  echo "libtorch is not installed for $python: apt-get install libtorch-dev python3-torch libopenblas0-openmp, or set" \
       "PEER_PYTHON to a Python that has torch (python3 -m venv v && v/bin/pip install torch)" >&2
  exit 3
fi

# What the processor's part of a wheel for GPUs needs of their runtime is a matter of running, not of linking.
mkdir -p "$out"
g++ -O3 -march=native "-std=c++$standard" -w "-D_GLIBCXX_USE_CXX11_ABI=$abi" \
  "-I$include" "-I$include/torch/csrc/api/include" "$here/peer_torch.cpp" -o "$out/peer_torch" \
  "${libraries[@]}" -ltorch_cpu -lc10 -fopenmp -Wl,--allow-shlib-undefined
if ! "$out/peer_torch" --version >/dev/null; then
  rm "$out/peer_torch"
  echo "libtorch of $python cannot be loaded; with a wheel for GPUs, put their runtime's libraries on LD_LIBRARY_PATH" >&2
  exit 3
fi
echo "$out/peer_torch"
