// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <numeric>

namespace vireo {
namespace {

TEST(ThreadPool, CallsEveryItemOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t items : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(items));
      pool.run(items, [&](int64_t i, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        hits[static_cast<size_t>(i)]++;
      });
      for (auto& h : hits) EXPECT_EQ(h.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRunsAndSleepsBetween) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 2000; ++round) {
    pool.run(4, [&](int64_t i, int) { sum += i; });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(sum.load(), 2000 * 6);
}

TEST(ThreadPool, SkipsItemsOnceCancelled) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<bool> cancel{false};
    pool.set_cancel(&cancel);
    std::atomic<int64_t> done{0};
    pool.run(100000, [&](int64_t, int) {
      if (++done == 10) cancel = true;
    });
    EXPECT_LT(done.load(), 20);
    cancel = false;
    pool.run(5, [&](int64_t, int) { ++done; });
    EXPECT_GE(done.load(), 15);
  }
}

// Jobs of changing sizes in quick succession, more threads than processors: late workers meet jobs that are being replaced.
TEST(ThreadPool, LateWorkersNeverTakeItemsOfAnotherJob) {
  ThreadPool pool(5);
  for (int round = 0; round < 20000; ++round) {
    const int64_t items = 1 + round * 7 % 13;
    std::array<std::atomic<int>, 13> hits{};
    pool.run(items, [&](int64_t i, int) { hits[static_cast<size_t>(i)]++; });
    for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i].load(), static_cast<int64_t>(i) < items ? 1 : 0);
  }
}

std::atomic<int> signals_taken;

TEST(ThreadPool, WorkersTakeNoSignals) {
  ThreadPool pool(3);
  struct sigaction count = {}, before = {};
  count.sa_handler = [](int) { ++signals_taken; };
  ASSERT_EQ(sigaction(SIGUSR1, &count, &before), 0);
  sigset_t usr1, mask;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &usr1, &mask), 0);
  // This thread does not take it for now, so that it would be for a worker.
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
  pool.run(100, [](int64_t, int) { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
  EXPECT_EQ(signals_taken.load(), 0);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &mask, nullptr), 0);
  EXPECT_EQ(signals_taken.load(), 1);
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(ThreadPool, UsableCpusIsPositive) {
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace vireo
