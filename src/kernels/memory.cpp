#include "kernels/memory.hpp"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <shared_mutex>

#include "base/allocation.hpp"
#include "base/errors.hpp"

namespace switchyard::kernels {
namespace {

constexpr i64 kHugePage = i64{2} << 20;

i64 rounded_up(i64 bytes, i64 unit) { return (bytes + unit - 1) / unit * unit; }

thread_local RankMemory* current_memory = nullptr;

/// The address ranges of all rank memories: a block's own address shows where it came from, so that any thread can give
/// it back.
class Ranges {
 public:
  void add(const std::byte* begin, std::size_t bytes, RankMemory* memory) {
    const std::unique_lock lock(mutex_);
    ranges_[begin] = {begin + bytes, memory};
  }
  /// The range stays known, as nobody's.
  void retire(const std::byte* begin) {
    const std::unique_lock lock(mutex_);
    ranges_.at(begin).memory = nullptr;
  }
  void remove(const std::byte* begin) {
    const std::unique_lock lock(mutex_);
    ranges_.erase(begin);
  }
  void release(void* block) {
    {
      const std::shared_lock lock(mutex_);
      const auto after = ranges_.upper_bound(static_cast<const std::byte*>(block));
      if (after != ranges_.begin())
        if (const Range& range = std::prev(after)->second; block < range.end) {
          if (range.memory) range.memory->release(block);
          return;
        }
    }
    std::free(block);
  }

 private:
  struct Range {
    const std::byte* end = nullptr;
    RankMemory* memory = nullptr;
  };
  std::shared_mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // by their begin
};

Ranges& ranges() {
  static Ranges& all = *new Ranges;  // libraries give blocks back until the process is gone
  return all;
}

void release_block(void* block) { ranges().release(block); }

class RankAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    void* block = nullptr;
    if (bytes > 0 && current_memory) {
      block = current_memory->allocate(static_cast<i64>(bytes));
    } else if (bytes > 0 && posix_memalign(&block, kAllocationAlignment, bytes) != 0) {
      cluster_error(
          "out of memory: the system refused {} bytes. Use fewer tokens per micro-batch, or a machine with more "
          "memory.",
          bytes);
    }
    return {block, block, release_block, cpu};
  }

  /// oneDNN's kernels take and give back plain blocks.
  c10::DeleterFnPtr raw_deleter() const override { return release_block; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

RankMemory::RankMemory(i64 capacity_bytes, std::chrono::milliseconds patience)
    : patience_(patience), capacity_(capacity_bytes) {
  if (capacity_bytes <= 0) user_error("rank memory budget of {} bytes: give more than 0", capacity_bytes);
  void* range =
      mmap(nullptr, range_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    cluster_error("rank memory: the system refused an address range of {} bytes: {}. See `ulimit -v`.", capacity_,
                  std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(range);
  madvise(range, range_bytes(), MADV_HUGEPAGE);  // a wish; nothing depends on it
  free_.emplace(0, static_cast<i64>(range_bytes()));
  ranges().add(base_, range_bytes(), this);
}

// Blocks that a library still keeps (scratch of kernels) may come back later: their addresses must not become anybody
// else's.
RankMemory::~RankMemory() {
  if (live_ == 0) {
    ranges().remove(base_);
    munmap(base_, range_bytes());
  } else {
    ranges().retire(base_);
    madvise(base_, range_bytes(), MADV_DONTNEED);
  }
}

void RankMemory::adopt_thread() { current_memory = this; }

std::size_t RankMemory::range_bytes() const { return static_cast<std::size_t>(rounded_up(2 * capacity_, kHugePage)); }

// The first one that is large enough; none if that would exceed the capacity.
std::map<i64, i64>::iterator RankMemory::hole_of(i64 need) {
  if (live_ + need > capacity_) return free_.end();
  return std::find_if(free_.begin(), free_.end(), [&](const auto& entry) { return entry.second >= need; });
}

void* RankMemory::allocate(i64 bytes) {
  if (bytes <= 0) return nullptr;
  const i64 need = allocated(bytes);
  std::unique_lock lock(mutex_);
  auto hole = hole_of(need);
  while (hole == free_.end() && patience_.count() > 0) {
    const i64 before = releases_;
    if (!released_.wait_for(lock, patience_, [&] { return releases_ != before; })) break;
    hole = hole_of(need);
  }
  if (hole == free_.end())
    user_error(
        "rank memory budget of {} bytes exceeded: need {} bytes, live {} of {}. Raise run.memory_budget, or the memory "
        "of run.emulate's devices, or use fewer tokens per micro-batch, recomputation, or a strategy with more "
        "ranks per replica.",
        capacity_, bytes, live_, capacity_);
  const auto [offset, size] = *hole;
  free_.erase(hole);
  if (size > need) free_.emplace(offset + need, size - need);
  occupied_.emplace(offset, need);
  live_ += need;
  peak_ = std::max(peak_, live_);
  reserved_ = std::max(reserved_, offset + need);
  return base_ + offset;
}

void RankMemory::release(void* block) {
  if (block == nullptr) return;
  const std::lock_guard lock(mutex_);
  const i64 offset = static_cast<std::byte*>(block) - base_;
  const auto found = occupied_.find(offset);
  check(found != occupied_.end(), "rank memory: release of a block that isn't live, at offset {} of {}", offset,
        capacity_);
  const i64 size = found->second;
  occupied_.erase(found);
  live_ -= size;
  ++releases_;
  released_.notify_all();
  give_back(offset, offset + size);
  auto hole = free_.emplace(offset, size).first;
  if (const auto next = std::next(hole); next != free_.end() && offset + size == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == offset) {
    before->second += hole->second;
    free_.erase(hole);
  }
}

// Whole pages of a freed block beyond the capacity.
void RankMemory::give_back(i64 begin, i64 end) {
  const i64 page = sysconf(_SC_PAGESIZE);
  const i64 first = rounded_up(std::max(begin, capacity_), page), last = end / page * page;
  if (first < last) madvise(base_ + first, static_cast<std::size_t>(last - first), MADV_DONTNEED);
}

i64 RankMemory::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

i64 RankMemory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void RankMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
}

i64 RankMemory::capacity() const { return capacity_; }

i64 RankMemory::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

MemoryScope::MemoryScope(RankMemory* memory) : outer_(current_memory) { current_memory = memory; }
MemoryScope::~MemoryScope() { current_memory = outer_; }

i64 machine_memory() { return i64{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

void install_rank_allocator() {
  static RankAllocator allocator;  // torch keeps the pointer for the life of the process
  c10::SetCPUAllocator(&allocator, 1);
}

}  // namespace switchyard::kernels
