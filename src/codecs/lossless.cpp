#include "codecs/lossless.hpp"

#include <zstd.h>

#include <memory>
#include <vector>

#include "codecs/element_runs.hpp"

namespace switchyard::codecs {
namespace {

constexpr i64 kLength = 4;  // bytes of a part's length
constexpr int kLevel = 1;

using Buffer = std::vector<std::byte>;

// Byte b of element i, of n elements, to b * n + i, and back.
void shuffle(const std::byte* from, i64 n, i64 size, std::byte* to) {
  for (i64 b = 0; b < size; ++b)
    for (i64 i = 0; i < n; ++i) to[b * n + i] = from[i * size + b];
}
void unshuffle(const std::byte* from, i64 n, i64 size, std::byte* to) {
  for (i64 b = 0; b < size; ++b)
    for (i64 i = 0; i < n; ++i) to[i * size + b] = from[b * n + i];
}

// Room for a part of a message, as it is and shuffled.
struct Workspace {
  explicit Workspace(i64 part_bytes)
      : plain(static_cast<size_t>(part_bytes)), shuffled(static_cast<size_t>(part_bytes)) {}
  Buffer plain, shuffled;
};
struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

i64 part_elements(i64 elements) { return std::min(elements, kLosslessPart); }

void store_length(i64 length, std::byte* to) {
  for (int byte = 0; byte < kLength; ++byte) to[byte] = static_cast<std::byte>(length >> (8 * byte) & 255);
}
i64 load_length(const std::byte* from) {
  i64 length = 0;
  for (int byte = 0; byte < kLength; ++byte) length |= static_cast<i64>(from[byte]) << (8 * byte);
  return length;
}

}  // namespace

i64 lossless_bound(DType type, i64 elements) {
  return elements * size_of(type) + (elements + kLosslessPart - 1) / kLosslessPart * kLength;
}

i64 encode_lossless(const Elements& from, std::span<std::byte> to) {
  const i64 count = from.count(), size = size_of(from.type);
  Workspace room(part_elements(count) * size);
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  std::byte* at = to.data();
  for (i64 first = 0; first < count; first += kLosslessPart) {
    const i64 n = std::min(kLosslessPart, count - first), bytes = n * size;
    with_type(from.type, [&]<class T>(T) {
      for_each_run<T>(from, first, n, [&](const T* run, i64 offset, i64 length) {
        std::memcpy(room.plain.data() + offset * size, run, static_cast<size_t>(length * size));
      });
    });
    shuffle(room.plain.data(), n, size, room.shuffled.data());
    // One byte less than the part: what would not be shorter does not fit.
    const size_t made = ZSTD_compressCCtx(context.get(), at + kLength, static_cast<size_t>(bytes - 1),
                                          room.shuffled.data(), static_cast<size_t>(bytes), kLevel);
    const bool shorter = ZSTD_isError(made) == 0;
    if (!shorter) std::memcpy(at + kLength, room.plain.data(), static_cast<size_t>(bytes));
    const i64 length = shorter ? static_cast<i64>(made) : bytes;
    store_length(length, at);
    at += kLength + length;
  }
  return at - to.data();
}

void decode_lossless(std::span<const std::byte> from, const Elements& to, bool summed) {
  const i64 count = to.count(), size = size_of(to.type);
  Workspace room(part_elements(count) * size);
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  const std::byte *at = from.data(), *const end = from.data() + from.size();
  for (i64 first = 0; first < count; first += kLosslessPart) {
    const i64 n = std::min(kLosslessPart, count - first), bytes = n * size;
    const i64 length = end - at >= kLength ? load_length(at) : -1;
    check(length >= 0 && length <= end - at - kLength,
          "codecs: a lossless message of {} bytes ends within element {} of {}", from.size(), first, count);
    if (length == bytes) {
      std::memcpy(room.plain.data(), at + kLength, static_cast<size_t>(bytes));
    } else {
      const size_t made = ZSTD_decompressDCtx(context.get(), room.shuffled.data(), static_cast<size_t>(bytes),
                                              at + kLength, static_cast<size_t>(length));
      check(ZSTD_isError(made) == 0 && made == static_cast<size_t>(bytes),
            "codecs: elements from {} of {} on of a lossless message can't be decompressed", first, count);
      unshuffle(room.shuffled.data(), n, size, room.plain.data());
    }
    at += kLength + length;
    with_type(to.type, [&]<class T>(T) {
      for_each_run<T>(to, first, n, [&](T* run, i64 offset, i64 length_of_run) {
        const T* values = reinterpret_cast<const T*>(room.plain.data()) + offset;
        if (!summed)
          std::memcpy(run, values, static_cast<size_t>(length_of_run * size));
        else
          for (i64 i = 0; i < length_of_run; ++i) codecs::add(run[i], values[i]);
      });
    });
  }
  check(at == end, "codecs: a lossless message of {} bytes has more than its {} elements", from.size(), count);
}

}  // namespace switchyard::codecs
