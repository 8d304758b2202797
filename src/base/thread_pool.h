// Worker threads for loops over independent items. Items are handed out from a shared counter, so a thread that the system
// holds up delays only the item it has; callers split work by shape and never by the number of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace vireo {

// Processors this process may use: the affinity mask, capped by the cgroup quota; at least 1.
int usable_cpus();
// Threads for short work of this many items, of which each is worth one: `threads`, or 0 for usable_cpus(), but no more than 8.
int threads_for_items(int64_t items, int threads);

class ThreadPool {
 public:
  // `threads` counts the caller, which works too; 0 takes usable_cpus(). The others take no signals, which are the program's: its
  // handlers (a line editor's, for one) may not bear to run beside its own threads.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Once the flag is set, the items not yet begun are skipped, in this run and in later ones. Null: never.
  void set_cancel(const std::atomic<bool>* flag) { cancel_ = flag; }

  // Calls work(item, thread) for every item in [0, items); thread is in [0, size()). Returns when all are done. Not
  // reentrant; one caller at a time.
  template <typename F>
  void run(int64_t items, F&& work) {
    Job job;
    job.items = items;
    job.context = &work;
    job.call = [](void* context, int64_t item, int thread) {
      (*static_cast<std::remove_reference_t<F>*>(context))(item, thread);
    };
    run_job(job);
  }

 private:
  struct Job {
    int64_t items = 0;
    void* context = nullptr;
    void (*call)(void*, int64_t, int) = nullptr;
  };

  void run_job(const Job& job);
  void work_on(uint64_t generation, int thread);
  void worker(int thread);
  bool cancelled() const { return cancel_ && cancel_->load(std::memory_order_relaxed); }

  const std::atomic<bool>* cancel_ = nullptr;
  // The job of the current generation. A worker that comes late may read a mixture of two jobs, and learns of it when it
  // fails to take an item: ticket_ holds the generation beside the next item. While a job is being written, its generation
  // is odd and no item can be taken.
  std::atomic<int64_t> items_{0};
  std::atomic<void*> context_{nullptr};
  std::atomic<void (*)(void*, int64_t, int)> call_{nullptr};
  std::atomic<uint64_t> ticket_{0};  // generation << kItemBits | next item
  std::atomic<int64_t> done_{0};     // items finished
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace vireo
