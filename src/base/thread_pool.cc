// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "base/check.h"

namespace vireo {
namespace {

// How often a waiting thread looks before it sleeps (or, for the caller, yields): some tens of microseconds.
constexpr int kSpins = 4000;
constexpr int kItemBits = 32;
constexpr uint64_t kItemMask = (uint64_t{1} << kItemBits) - 1;

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

// While it lives, this thread takes no signals but those of its own faults; threads that it makes begin the same way.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before_) == 0);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  return std::min(n, cgroup_cpus());
}

int threads_for_items(int64_t items, int threads) {
  constexpr int64_t kMost = 8;
  const int64_t most = std::min<int64_t>(threads > 0 ? threads : usable_cpus(), kMost);
  return static_cast<int>(std::clamp<int64_t>(items, 1, most));
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cpus();
  const NoSignals inherited_by_workers;
  for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { worker(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  ticket_.store((((ticket_.load() >> kItemBits) + 1) << kItemBits) | kItemMask);
  { std::lock_guard lock(mutex_); }
  wake_.notify_all();
  for (auto& w : workers_) w.join();
}

// Takes items of `generation` until there are none.
void ThreadPool::work_on(uint64_t generation, int thread) {
  const int64_t items = items_.load();
  void* const context = context_.load();
  const auto call = call_.load();
  uint64_t ticket = ticket_.load();
  while (ticket >> kItemBits == generation) {
    const int64_t item = static_cast<int64_t>(ticket & kItemMask);
    if (item >= items) return;
    // Success means that this generation still had items to give, so the job read above was whole.
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
    if (!cancelled()) call(context, item, thread);
    done_.fetch_add(1);
    ticket = ticket_.load();
  }
}

void ThreadPool::run_job(const Job& job) {
  if (workers_.empty() || job.items <= 1) {
    for (int64_t i = 0; i < job.items && !cancelled(); ++i) job.call(job.context, i, 0);
    return;
  }
  const uint64_t generation = (ticket_.load() >> kItemBits) + 2;
  ticket_.store(((generation - 1) << kItemBits) | kItemMask);
  done_.store(0);
  items_.store(job.items);
  context_.store(job.context);
  call_.store(job.call);
  ticket_.store(generation << kItemBits);
  if (sleepers_.load() > 0) {
    {
      std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  work_on(generation, 0);
  // All items are taken; wait for those still being worked on, and for nobody else.
  for (int spins = 0; done_.load() < job.items; ++spins) {
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
    uint64_t generation = ticket_.load() >> kItemBits;
    for (int spins = 0; generation == seen && spins < kSpins; ++spins) {
      pause_cpu();
      generation = ticket_.load() >> kItemBits;
    }
    if (generation == seen) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return ticket_.load() >> kItemBits != seen; });
      sleepers_.fetch_sub(1);
      continue;
    }
    if (stop_.load()) return;
    seen = generation;
    work_on(generation, thread);
  }
}

}  // namespace vireo
