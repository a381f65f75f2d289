// A device for tests of fabrics: its memory is the host's, its streams are the threads that use it, and it knows what
// is ordered. Work that could run beside other work on the same block throws.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/block.hpp"
#include "comm/fabric.hpp"

namespace switchyard::comm {

class FakeDevice final : public BlockDevice {
 public:
  /// A block of its memory, and the same bytes as the host sees them.
  Block block(void* data, i64 bytes) const {
    Block on_device = contiguous(data, bytes);
    on_device.device = this;
    return on_device;
  }

  void copy(const Block& to, const Block& from) const override {
    use(from, false);
    use(to, true);
    copy_block(on_host(to), on_host(from));
  }
  void add(const Block& to, const Block& from, DType dtype) const override {
    use(from, false);
    use(to, true);
    add_block(on_host(to), on_host(from), dtype);
  }
  void fill(const Block& to, unsigned char byte) const override {
    use(to, true);
    fill_block(on_host(to), byte);
  }
  void adopt_thread() const noexcept override {
    const std::lock_guard lock(mutex_);
    adopted_.insert(std::this_thread::get_id());
  }
  Mark mark() const override {
    const std::lock_guard lock(mutex_);
    const Mark made = std::make_shared<const Clock>(clocks_[std::this_thread::get_id()]);
    if (!reached_) made_.push_back(made);
    return made;
  }
  void wait_for(const Mark& mark) const override {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, count] : *static_cast<const Clock*>(mark.get())) {
      i64& known = clocks_[std::this_thread::get_id()][stream];
      known = std::max(known, count);
    }
  }
  bool reached(const Mark& mark) const override {
    const std::lock_guard lock(mutex_);
    asked_.insert(std::this_thread::get_id());
    ++questions_;
    if (broken_) throw std::runtime_error("the device is lost");
    return reached_ || reached_marks_.contains(mark);
  }
  std::shared_ptr<std::byte> allocate(i64 bytes) const override {
    return {new std::byte[static_cast<size_t>(bytes)], [this, bytes](std::byte* memory) { free(memory, bytes); }};
  }
  void* native_stream() const override { return nullptr; }

  /// What `reached` says of all marks: false stands for a device that hangs.
  void set_reached(bool reached) { reached_ = reached; }
  /// Marks that were made while none was reached.
  std::vector<Mark> made_marks() const {
    const std::lock_guard lock(mutex_);
    return made_;
  }
  /// Questions for marks from now on throw.
  void break_down() { broken_ = true; }
  /// How often marks were asked for, and whether only by threads that work with the device.
  int questions() const {
    const std::lock_guard lock(mutex_);
    return questions_;
  }
  bool only_adopted_asked() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::includes(adopted_, asked_);
  }
  /// This mark is reached in any case.
  void reach(const Mark& mark) const {
    const std::lock_guard lock(mutex_);
    reached_marks_.insert(mark);
  }

  /// Nothing uses this memory any more: other blocks may lie there.
  void forget(const std::byte* memory, i64 bytes) const {
    const std::lock_guard lock(mutex_);
    uses_.erase(uses_.lower_bound(memory), uses_.lower_bound(memory + std::max<i64>(1, bytes)));
  }
  void free(std::byte* memory, i64 bytes) const {
    forget(memory, bytes);
    delete[] memory;
  }

  /// The calling thread's stream reads or writes a block whose rows begin at `block.data`.
  void use(const Block& block, bool write) const {
    const std::lock_guard lock(mutex_);
    const auto me = std::this_thread::get_id();
    Uses& before = uses_[block.data];
    if (!knows(me, before.writes) || (write && !knows(me, before.reads)))
      throw std::logic_error(write ? "a block is written that may still be in use"
                                   : "a block is read that may not have been written yet");
    (write ? before.writes : before.reads)[me] = ++clocks_[me][me];
  }

 private:
  using Clock = std::map<std::thread::id, i64>;  // for each stream the last work that has been done
  struct Uses {
    Clock writes, reads;
  };

  bool knows(std::thread::id stream, const Clock& work) const {
    for (const auto& [other, count] : work)
      if (clocks_[stream][other] < count) return false;
    return true;
  }
  static Block on_host(Block block) {
    block.device = nullptr;
    return block;
  }

  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, Clock> clocks_;
  mutable std::map<const void*, Uses> uses_;
  mutable std::set<Mark> reached_marks_;
  mutable std::vector<Mark> made_;
  mutable std::set<std::thread::id> adopted_, asked_;
  mutable int questions_ = 0;
  std::atomic<bool> reached_ = true, broken_ = false;
};

}  // namespace switchyard::comm
