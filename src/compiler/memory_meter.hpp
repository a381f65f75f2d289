// Counting memory as a program is replayed.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/allocation.hpp"
#include "compiler/memory.hpp"

namespace switchyard::compiler {

/// Counts the memory that is taken now, and the peak.
class MemoryMeter {
 public:
  void take(MemoryClass what, i64 bytes) {
    if (bytes == 0) return;
    const i64 size = allocated(bytes);
    now_.bytes[static_cast<size_t>(what)] += size;
    now_.total += size;
    if (now_.total > peak_.total) peak_ = now_;
    recent_ = std::max(recent_, now_.total);
    if (keep_tasks_ && now_.total > tasks_.back().total) tasks_.back() = now_;
  }
  void drop(MemoryClass what, i64 bytes) {
    const i64 size = allocated(bytes);
    now_.bytes[static_cast<size_t>(what)] -= size;
    now_.total -= size;
  }
  /// Taken and dropped at once.
  void touch(MemoryClass what, i64 bytes) {
    if (bytes == 0) return;
    take(what, bytes);
    drop(what, bytes);
  }
  void at(int id) {
    now_.task = id;
    if (keep_tasks_) tasks_.push_back(now_);
  }
  /// The highest total since the last call.
  i64 recent() { return std::exchange(recent_, now_.total); }
  /// From now on the peak within every task is kept.
  void keep_tasks() {
    keep_tasks_ = true;
    tasks_.push_back(now_);
  }
  const MemoryPeak& peak() const { return peak_; }
  std::vector<MemoryPeak> tasks() && { return std::move(tasks_); }

 private:
  MemoryPeak now_, peak_;
  i64 recent_ = 0;
  bool keep_tasks_ = false;
  std::vector<MemoryPeak> tasks_;
};

/// Memory that several owners share: it is dropped with the last of them.
class SharedBlocks {
 public:
  SharedBlocks(MemoryMeter& meter, MemoryClass what) : meter_(meter), what_(what) {}
  int take(i64 bytes) {
    meter_.take(what_, bytes);
    return adopt(bytes);
  }
  /// A block that is counted already.
  int adopt(i64 bytes) {
    blocks_.push_back({bytes, 1});
    return static_cast<int>(blocks_.size()) - 1;
  }
  i64 bytes(int id) const { return blocks_[static_cast<size_t>(id)].bytes; }
  void share(int id) { ++blocks_[static_cast<size_t>(id)].owners; }
  void drop(int id) {
    Entry& entry = blocks_[static_cast<size_t>(id)];
    if (--entry.owners == 0) meter_.drop(what_, entry.bytes);
  }

 private:
  struct Entry {
    i64 bytes;
    int owners;
  };
  MemoryMeter& meter_;
  MemoryClass what_;
  std::vector<Entry> blocks_;
};

}  // namespace switchyard::compiler
