#include "memory.hpp"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

namespace switchyard::standin {
namespace {

constexpr std::size_t kUnit = 64;

std::byte* mapped(std::size_t bytes, int protection, int file) {
  void* range = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (range == MAP_FAILED) throw std::runtime_error("stand-in device: no address range for its memory");
  return static_cast<std::byte*>(range);
}

}  // namespace

Memory::Memory(std::size_t capacity, Ordering& ordering) : ordering_(ordering), capacity_(capacity), limit_(capacity) {
  const int file = memfd_create("stand-in device", 0);
  if (file < 0 || ftruncate(file, static_cast<off_t>(capacity)) != 0)
    throw std::runtime_error("stand-in device: no memory");
  base_ = mapped(capacity, PROT_READ | PROT_WRITE, file);
  device_base_ = mapped(capacity, PROT_NONE, file);
  close(file);
}

Memory::~Memory() {
  munmap(base_, capacity_);
  munmap(device_base_, capacity_);
}

void* Memory::allocate(std::size_t bytes, int stream) {
  if (bytes == 0) return nullptr;
  const std::size_t need = (bytes + kUnit - 1) / kUnit * kUnit;
  const std::lock_guard lock(mutex_);
  give_back(stream);
  if (budget_ > 0 && live_bytes_ + static_cast<std::int64_t>(need) > budget_)
    C10_THROW_ERROR(OutOfMemoryError, "stand-in device: " + std::to_string(bytes) + " bytes are more than is left of " +
                                          std::to_string(budget_));
  std::size_t offset = top_;
  if (std::vector<std::size_t>& free = free_[{stream, need}]; !free.empty()) {
    offset = free.back();
    free.pop_back();
  } else {
    if (top_ + need > limit_)
      C10_THROW_ERROR(OutOfMemoryError, "stand-in device: no memory for " + std::to_string(bytes) + " bytes");
    top_ += need;
  }
  live_[offset] = {.offset = offset, .bytes = need, .stream = stream};
  live_bytes_ += static_cast<std::int64_t>(need);
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  std::memset(base_ + offset, 0xff, need);  // NaN: nobody relies on what was there
  return device_base_ + offset;
}

void Memory::release(void* address) {
  if (!address) return;
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(offset_of(address));
  Block block = std::move(found->second);
  live_.erase(found);
  live_bytes_ -= static_cast<std::int64_t>(block.bytes);
  std::memset(base_ + block.offset, 0xff, block.bytes);  // NaN for who reads it all the same
  ordering_.free(block.stream, {block.users.begin(), block.users.end()},
                 {.begins = {block.offset}, .bytes = block.bytes});
  if (block.users.empty()) return free_[{block.stream, block.bytes}].push_back(block.offset);
  std::vector<Clock> until;
  for (const int user : block.users) until.push_back(ordering_.mark(user));
  pending_.push_back({std::move(block), std::move(until)});
}

// Blocks whose other users come before what the stream does next.
void Memory::give_back(int stream) {
  std::erase_if(pending_, [&](const Pending& pending) {
    if (pending.block.stream != stream ||
        !std::ranges::all_of(pending.until, [&](const Clock& mark) { return ordering_.follows(stream, mark); }))
      return false;
    free_[{stream, pending.block.bytes}].push_back(pending.block.offset);
    return true;
  });
}

void Memory::used_on(const void* address, int stream) {
  if (!address) return;
  const std::lock_guard lock(mutex_);
  const auto after = live_.upper_bound(offset_of(address));
  Block& block = std::prev(after)->second;
  if (block.stream != stream) block.users.insert(stream);
}

void Memory::limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = std::min(bytes, capacity_);
}

void Memory::budget(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
}

void Memory::start_over() {
  const std::lock_guard lock(mutex_);
  limit_ = capacity_;
  if (!live_.empty()) return;
  free_.clear();
  pending_.clear();
  top_ = 0;
  ordering_.forget();
}

std::int64_t Memory::live() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}
std::int64_t Memory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}
void Memory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_bytes_ = live_bytes_;
}

}  // namespace switchyard::standin
