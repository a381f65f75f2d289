#include "comm/block.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/bfloat16.hpp"
#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

struct Bf16 {
  std::uint16_t bits;
};

float widen(Bf16 x) { return bfloat16_value(x.bits); }
Bf16 narrow(float x) { return {bfloat16_bits(x)}; }

template <class T>
T sum(T a, T b) {
  return a + b;
}
template <>
Bf16 sum(Bf16 a, Bf16 b) {
  return narrow(widen(a) + widen(b));
}

// The inner loop has a constant length, which the compiler turns into vector instructions at -O2 as well.
template <class T>
void add_elements(T* __restrict to, const T* __restrict from, i64 n) {
  constexpr i64 kGroup = 32;
  i64 i = 0;
  for (; i + kGroup <= n; i += kGroup)
    for (i64 j = 0; j < kGroup; ++j) to[i + j] = sum(to[i + j], from[i + j]);
  for (; i < n; ++i) to[i] = sum(to[i], from[i]);
}

void add_bytes(std::byte* to, const std::byte* from, i64 bytes, DType dtype) {
  const auto add = [&]<class T>(T) {
    add_elements(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), bytes / static_cast<i64>(sizeof(T)));
  };
  switch (dtype) {
    case DType::f64:
      return add(double{});
    case DType::f32:
      return add(float{});
    case DType::bf16:
      return add(Bf16{});
    case DType::i64:
      return add(std::uint64_t{});
    case DType::i32:
      return add(std::uint32_t{});
    case DType::u8:
      return add(std::uint8_t{});
  }
}

// A block of this size leaves the caches before it is used. Stores that bypass them save the read of every line that is
// overwritten.
constexpr i64 kStreamed = i64{1} << 20;

#ifdef __SSE2__
void stream(std::byte* to, const std::byte* from, i64 n) {
  constexpr i64 kLine = 64, kStore = sizeof(__m128i);
  const i64 head = std::min(n, static_cast<i64>(-reinterpret_cast<std::uintptr_t>(to) % kLine));
  std::memcpy(to, from, static_cast<size_t>(head));
  i64 i = head;
  for (; i + kLine <= n; i += kLine)
    for (i64 at = i; at < i + kLine; at += kStore)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  std::memcpy(to + i, from + i, static_cast<size_t>(n - i));
}
// Makes streamed stores visible to other threads.
void finish_streams() { _mm_sfence(); }
#else
void stream(std::byte* to, const std::byte* from, i64 n) { std::memcpy(to, from, static_cast<size_t>(n)); }
void finish_streams() {}
#endif

Block flattened(const Block& block) { return is_contiguous(block) ? contiguous(block.data, block.bytes()) : block; }

// Calls visit(to, from, n) for the longest runs of n bytes that lie in one row of both.
template <class Visit>
void for_each_run(const Block& to_block, const Block& from_block, Visit visit) {
  check(to_block.bytes() == from_block.bytes(), "block of {} rows x {} bytes against {} rows x {} bytes", to_block.rows,
        to_block.row_bytes, from_block.rows, from_block.row_bytes);
  const Block to = flattened(to_block), from = flattened(from_block);
  const i64 total = to.bytes();
  i64 to_row = 0, to_at = 0, from_row = 0, from_at = 0;
  for (i64 done = 0; done < total;) {
    const i64 n = std::min(to.row_bytes - to_at, from.row_bytes - from_at);
    visit(to.data + to_row * to.stride + to_at, from.data + from_row * from.stride + from_at, n);
    done += n, to_at += n, from_at += n;
    if (to_at == to.row_bytes) to_at = 0, ++to_row;
    if (from_at == from.row_bytes) from_at = 0, ++from_row;
  }
}

void check_elements(const Block& block, DType dtype) {
  const i64 size = size_of(dtype);
  const bool whole = block.row_bytes % size == 0 && (block.rows < 2 || block.stride % size == 0) &&
                     reinterpret_cast<std::uintptr_t>(block.data) % static_cast<std::uintptr_t>(size) == 0;
  check(whole || block.bytes() == 0, "rows of {} bytes, {} apart, don't hold whole aligned elements of {}",
        block.row_bytes, block.stride, name_of(dtype));
}

// Whose memory both are; null: the host's.
const BlockDevice* device_of(const Block& to, const Block& from) {
  check(!to.device == !from.device, "a block of {} bytes on a device and one on the host", to.bytes());
  return to.device;
}

// First byte of a block and the one after its last, as numbers: blocks of different arrays are compared.
struct Range {
  std::uintptr_t begin, end;
};
Range range_of(const Block& b) {
  const auto begin = reinterpret_cast<std::uintptr_t>(b.data);
  return {begin, begin + static_cast<std::uintptr_t>((b.rows - 1) * b.stride + b.row_bytes)};
}

}  // namespace

Block contiguous(void* data, i64 bytes) {
  return {.data = static_cast<std::byte*>(data), .rows = 1, .row_bytes = bytes, .stride = bytes};
}

bool is_contiguous(const Block& block) { return block.rows <= 1 || block.stride == block.row_bytes; }

void copy_block(const Block& to, const Block& from) {
  if (const BlockDevice* device = device_of(to, from)) return device->copy(to, from);
  if (to.bytes() < kStreamed) {
    for_each_run(to, from, [](std::byte* a, const std::byte* b, i64 n) { std::memcpy(a, b, static_cast<size_t>(n)); });
  } else {
    for_each_run(to, from, stream);
    finish_streams();
  }
}

void add_block(const Block& to, const Block& from, DType dtype) {
  if (const BlockDevice* device = device_of(to, from)) return device->add(to, from, dtype);
  check_elements(to, dtype);
  check_elements(from, dtype);
  for_each_run(to, from, [dtype](std::byte* a, const std::byte* b, i64 n) { add_bytes(a, b, n, dtype); });
}

void sum_bf16(std::byte* to, std::span<const std::byte* const> partials, i64 elements) {
  for (i64 i = 0; i < elements; ++i) {
    float total = widen(reinterpret_cast<const Bf16*>(partials.front())[i]);
    for (const std::byte* partial : partials.subspan(1)) total += widen(reinterpret_cast<const Bf16*>(partial)[i]);
    reinterpret_cast<Bf16*>(to)[i] = narrow(total);
  }
}

void fill_block(const Block& block, unsigned char byte) {
  if (block.bytes() == 0) return;
  if (block.device) return block.device->fill(block, byte);
  const Block flat = flattened(block);
  for (i64 row = 0; row < flat.rows; ++row)
    std::memset(flat.data + row * flat.stride, byte, static_cast<size_t>(flat.row_bytes));
}

bool overlap(const Block& a, const Block& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  const Range ra = range_of(a), rb = range_of(b);
  if (ra.end <= rb.begin || rb.end <= ra.begin) return false;
  const Block fa = flattened(a), fb = flattened(b);
  const i64 offset = static_cast<i64>(rb.begin) - static_cast<i64>(ra.begin);  // b's first row, seen from a's
  for (i64 row = 0; row < fb.rows; ++row) {
    const i64 begin = offset + row * fb.stride, end = begin + fb.row_bytes;
    if (fa.rows == 1) {
      if (begin < fa.row_bytes && end > 0) return true;
      continue;
    }
    // The last row of a that starts before `end` is the only one that can reach furthest into [begin, end).
    if (end <= 0) continue;
    const i64 last = std::min((end - 1) / fa.stride, fa.rows - 1);
    if (last * fa.stride + fa.row_bytes > begin) return true;
  }
  return false;
}

}  // namespace switchyard::comm
