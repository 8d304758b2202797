// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace vireo {
namespace {

// How often a waiting thread looks before it sleeps (or, for the caller, yields): some tens of microseconds.
constexpr int kSpins = 4000;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whole processors that the cgroup (v2, else v1) grants, or a large number.
int cgroup_cpus() {
  constexpr int kNoLimit = 1 << 20;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return kNoLimit;
  } else {
    std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), p("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(q >> quota) || !(p >> period) || period <= 0) return kNoLimit;
  }
  const double granted = std::strtod(quota.c_str(), nullptr) / period;
  return granted > 0 ? std::max(1, static_cast<int>(std::floor(granted + 0.5))) : kNoLimit;
}

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  return std::min(n, cgroup_cpus());
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cpus();
  for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { worker(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  { std::lock_guard lock(mutex_); }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

void ThreadPool::work_on(const Job& job, int thread) {
  for (;;) {
    const int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
    if (item >= job.items || cancelled()) return;
    job.call(job.context, item, thread);
  }
}

void ThreadPool::run_job(const Job& job) {
  if (workers_.empty() || job.items <= 1) {
    for (int64_t i = 0; i < job.items && !cancelled(); ++i) job.call(job.context, i, 0);
    return;
  }
  job_ = job;
  next_item_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1);  // releases job_
  if (sleepers_.load() > 0) {
    {
      std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  work_on(job, 0);
  // All items are taken; wait for those still being worked on.
  for (int spins = 0; busy_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::worker(int thread) {
  uint64_t seen = 0;
  for (;;) {
    uint64_t generation = generation_.load();
    for (int spins = 0; generation == seen && spins < kSpins; ++spins) {
      pause_cpu();
      generation = generation_.load();
    }
    if (generation == seen) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      sleepers_.fetch_sub(1);
      generation = generation_.load();
    }
    if (stop_.load()) return;
    seen = generation;
    work_on(job_, thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace vireo
