// Memory of the stand-in device: pages that the host may not touch, in pools of streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "ordering.hpp"

namespace switchyard::standin {

/// The device's addresses are protected: whoever reads or writes there from the host ends the process. The same bytes
/// lie a second time at other addresses, where the device's work finds them. As with a caching allocator, a freed block
/// goes back to the pool of the stream that allocated it, which may have it again at once: last freed, first used. What
/// other streams still do with it must be ordered before, or be recorded with `used_on`. Thread-safe.
class Memory {
 public:
  explicit Memory(std::size_t capacity, Ordering& ordering);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* allocate(std::size_t bytes, int stream);
  void release(void* block);
  /// The block is used by a stream: it is given to nobody else before that has done what it has when it is freed.
  void used_on(const void* block, int stream);

  /// Where work finds what has this address on the device.
  std::byte* inside(const void* address) const { return base_ + offset_of(address); }
  std::size_t offset_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - device_base_);
  }

  /// New blocks lie below this many bytes; at most the capacity.
  void limit(std::size_t bytes);
  /// Live blocks have at most so many bytes; 0: any number.
  void budget(std::int64_t bytes);
  /// There is no limit any more. If no block is live: all of it is free for any stream, whoever had it, and nothing is
  /// known of what it had.
  void start_over();

  std::int64_t live() const;
  std::int64_t peak() const;
  void reset_peak();

 private:
  struct Block {
    std::size_t offset = 0, bytes = 0;
    int stream = 0;
    std::set<int> users{};
  };
  struct Pending {
    Block block;
    std::vector<Clock> until;
  };
  void give_back(int stream);

  Ordering& ordering_;
  std::size_t capacity_, limit_, top_ = 0;
  std::byte *base_, *device_base_;
  mutable std::mutex mutex_;
  std::map<std::size_t, Block> live_;
  std::map<std::pair<int, std::size_t>, std::vector<std::size_t>> free_;  // stream and size -> offsets
  std::vector<Pending> pending_;
  std::int64_t live_bytes_ = 0, peak_bytes_ = 0, budget_ = 0;
};

}  // namespace switchyard::standin
