# What the shell scripts of tools/ share: the root, headers, job counts and the one way to configure a build folder.
# Sourced, not run.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TOOL=tools/$(basename "$0")
SKIPPED=77  # exit code of a step that cannot run on this machine

if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  BOLD=$'\e[1;36m' PLAIN=$'\e[0m'
else
  BOLD='' PLAIN=''
fi

header() { printf '%s== %s%s\n' "$BOLD" "$*" "$PLAIN"; }
say() { printf '%s: %s\n' "$TOOL" "$*"; }
fail() { printf '%s: %s\n' "$TOOL" "$*" >&2; exit 1; }
usage_error() { printf '%s: %s (see %s --help)\n' "$TOOL" "$*" "$TOOL" >&2; exit 2; }

# The comment that opens a script, up to the licence line, is its manual.
manual() { sed -n -e '1d' -e '/^# SPDX/q' -e 's/^# \{0,1\}//p' "$0"; }

# One compiler per core, and at most one per GB of memory: what is available here, or what a container still allows.
jobs() {
  local cores memory_kb limit used
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [[ $limit =~ ^[0-9]+$ ]]; then
    used=$(cat /sys/fs/cgroup/memory.current 2>/dev/null || echo 0)
    limit=$(((limit - used) / 1024))
    ((limit < memory_kb)) && memory_kb=$limit
  fi
  local by_memory=$((memory_kb / 1048576))
  ((by_memory < 1)) && by_memory=1
  echo $((cores < by_memory ? cores : by_memory))
}

# configure PRESET [CMAKE ARGUMENTS]: every script passes the same compile flags for a preset, so that the build folders
# are shared and nothing is built twice.
configure() {
  local preset=$1
  shift
  local launcher=()
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  run cmake --preset "$preset" "${launcher[@]}" "$@"
}

# Runs a command, or only shows it under --dry-run.
run() {
  if [[ -n ${DRY_RUN:-} ]]; then
    printf '  would run:%s\n' "$(printf ' %q' "$@")"
  else
    "$@"
  fi
}
