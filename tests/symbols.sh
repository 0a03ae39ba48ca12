#!/bin/sh
# symbols.sh NM library FILE          fails if the library defines a symbol of the common Eigen namespace, or if it is
#                                     shared and exports one of Eigen or fmt, under whatever name
# symbols.sh NM INSTRUCTION_SET FILE  fails if a kernel object defines a weak symbol that does not belong to its
#                                     instruction set: the linker could give it to code that runs on older processors
set -eu
nm=$1 what=$2
shift 2
case $what:$1 in
  library:*.so*)
    defined=$("$nm" -D --defined-only "$@")
    bad=$(printf '%s\n' "$defined" | grep -E '[0-9](Eigen|gradus_eigen|fmt)' || true) ;;
  library:*)
    defined=$("$nm" --defined-only "$@")
    bad=$(printf '%s\n' "$defined" | grep -E ' [A-Za-z] .*[^0-9]5Eigen' || true) ;;
  *)
    defined=$("$nm" --defined-only "$@")
    bad=$(printf '%s\n' "$defined" | grep -E ' [VWu] ' | grep -vE "$what| DW\.ref\.__gxx_personality_v0$" || true) ;;
esac
if ! printf '%s\n' "$defined" | grep -q '6gradus'; then
  echo "no symbol of gradus in $*"
  exit 1
fi
if [ -n "$bad" ]; then
  printf '%s\n' "$bad" | c++filt
  exit 1
fi
