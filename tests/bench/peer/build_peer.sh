#!/usr/bin/env bash
# Builds peer_torch, libtorch's side of the speed comparison, into the folder given (default: peer-build) and prints its path.
# Needs a compiler and libtorch: Debian's libtorch-dev and python3-torch (old), or PEER_PYTHON=a Python with a
# pip-installed torch (the stronger peer). Ends with status 3 where there is none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-peer-build}
python=${PEER_PYTHON:-/usr/bin/python3}

# The folder of headers and libraries, the library's C++ ABI, and the C++ standard that its headers need.
facts=$($python - 2>/dev/null <<'END'
import os, torch
root = os.path.dirname(torch.__file__)
own = os.path.isdir(os.path.join(root, "include", "torch")) and os.path.exists(os.path.join(root, "lib", "libtorch_cpu.so"))
print(root if own else "/usr", int(torch._C._GLIBCXX_USE_CXX11_ABI), 17 if torch.__version__.startswith("1.") else 20)
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

mkdir -p "$out"
g++ -O3 -march=native "-std=c++$standard" -w "-D_GLIBCXX_USE_CXX11_ABI=$abi" \
  "-I$include" "-I$include/torch/csrc/api/include" "$here/peer_torch.cpp" -o "$out/peer_torch" \
  "${libraries[@]}" -ltorch -ltorch_cpu -lc10 -fopenmp
echo "$out/peer_torch"
