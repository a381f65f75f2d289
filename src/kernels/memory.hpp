// CPU memory of one rank: an arena with a budget, and the allocator that makes torch's CPU tensors come from it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/dtype.hpp"

namespace switchyard::kernels {

/// One range of virtual memory; the system gives pages as they are first touched, 2 MiB at a time where it can. Live
/// blocks never exceed `capacity_bytes`. They are placed first-fit by address and merged with free neighbours when
/// released. The range is twice the capacity, so that holes between blocks refuse nobody; pages beyond the capacity go
/// back to the system when freed. Thread-safe. A block that doesn't fit waits while other threads release some, until
/// none has done so for `patience`: one that is late, as a switch over a slow link may be, fails nobody.
/// errors  UserError if the capacity isn't above 0; ClusterError if the system refuses the range
class RankMemory {
 public:
  explicit RankMemory(i64 capacity_bytes, std::chrono::milliseconds patience = std::chrono::milliseconds(0));
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  /// From now on the calling thread allocates from it, until the thread ends or a MemoryScope says otherwise.
  void adopt_thread();

  /// A block aligned to 64 bytes; null for 0 bytes. UserError if it doesn't fit: gives the need, what is live and the
  /// capacity.
  void* allocate(i64 bytes);
  /// From any thread. Null is accepted; InternalError for anything that isn't a live block.
  void release(void* block);

  i64 live() const;      ///< bytes of live blocks, each rounded up to 64
  i64 peak() const;      ///< the most that was live since construction or reset_peak
  void reset_peak();     ///< peak = live
  i64 capacity() const;  ///< bytes
  i64 reserved() const;  ///< bytes up to the end of the highest block ever live: what may occupy pages

 private:
  std::size_t range_bytes() const;
  std::map<i64, i64>::iterator hole_of(i64 need);
  void give_back(i64 begin, i64 end);

  mutable std::mutex mutex_;
  std::condition_variable released_;
  i64 releases_ = 0;  // so many blocks were
  std::chrono::milliseconds patience_;
  std::byte* base_ = nullptr;
  i64 capacity_, live_ = 0, peak_ = 0, reserved_ = 0;
  std::map<i64, i64> free_;                // offset -> bytes, ordered by address, no two adjacent
  std::unordered_map<i64, i64> occupied_;  // offset -> bytes
};

/// Makes `memory` (or none, for null) the calling thread's memory until the end of the scope; the outer one is restored
/// then.
class MemoryScope {
 public:
  explicit MemoryScope(RankMemory* memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  RankMemory* outer_;
};

/// Bytes of memory that the machine has: the budget of a rank without one.
i64 machine_memory();

/// From now on torch's CPU tensors come from the allocating thread's RankMemory, or from malloc where it has none. A
/// tensor may be freed on any thread, inside or outside a scope, and must not outlive its RankMemory; scratch that a
/// library keeps may. Idempotent.
void install_rank_allocator();

}  // namespace switchyard::kernels
