#include "codecs/codec.hpp"

#include <array>
#include <cmath>

#include "codecs/block_codecs.hpp"
#include "codecs/element_runs.hpp"
#include "codecs/lossless.hpp"

namespace switchyard::codecs {
namespace {

// visit(Block{}) for a codec of blocks.
template <class Visit>
void with_block(Codec codec, const Visit& visit) {
  switch (codec) {
    case Codec::bf16:
      return visit(Bf16Block{});
    case Codec::fp8:
      return visit(Fp8Block{});
    case Codec::int8:
      return visit(Int8Block{});
    case Codec::int4:
      return visit(Int4Block{});
    case Codec::zfp16:
      return visit(ZfpBlock<16>{});
    case Codec::zfp8:
      return visit(ZfpBlock<8>{});
    case Codec::top_32:
      return visit(TopBlock<32>{});
    case Codec::top_128:
      return visit(TopBlock<128>{});
    case Codec::none:
    case Codec::lossless:
      break;
  }
  throw InternalError(fmt::format("codecs: {} has no blocks", name_of(codec)));
}

template <class Block>
i64 bytes_of(i64 elements) {
  const i64 rest = elements % Block::kBlock;
  return elements / Block::kBlock * Block::bytes(Block::kBlock) + (rest > 0 ? Block::bytes(rest) : 0);
}

template <class T>
void load(const Elements& from, i64 first, i64 n, float* x) {
  for_each_run<T>(from, first, n, [&](const T* run, i64 offset, i64 length) {
    for (i64 i = 0; i < length; ++i) x[offset + i] = widened(run[i]);
  });
}

template <class T>
void store(const float* x, const Elements& to, i64 first, i64 n, bool summed) {
  for_each_run<T>(to, first, n, [&](T* run, i64 offset, i64 length) {
    if (summed)
      for (i64 i = 0; i < length; ++i) add(run[i], x[offset + i]);
    else
      for (i64 i = 0; i < length; ++i) set(run[i], x[offset + i]);
  });
}

// What encoding lost of x. Where an element became NaN, or was, nothing is kept: the step is left out.
template <class R>
void keep_lost(const float* x, const float* decoded, const Elements& residual, i64 first, i64 n) {
  for_each_run<R>(residual, first, n, [&](R* run, i64 offset, i64 length) {
    for (i64 i = 0; i < length; ++i) {
      const float lost = x[offset + i] - decoded[offset + i];
      run[i] = static_cast<R>(std::isfinite(lost) ? lost : 0);
    }
  });
}

template <class Block>
void encode_blocks(const Elements& from, std::byte* to, const Elements* residual) {
  std::array<float, Block::kBlock> x, lost, decoded;
  const i64 count = from.count();
  for (i64 first = 0; first < count; first += Block::kBlock) {
    const i64 n = std::min(Block::kBlock, count - first);
    if (n < Block::kBlock) x.fill(0);
    with_type(from.type, [&]<class T>(T) { load<T>(from, first, n, x.data()); });
    if (residual) {
      with_type(residual->type, [&]<class R>(R) { load<R>(*residual, first, n, lost.data()); });
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) x[i] += lost[i];
    }
    Block::encode(x.data(), n, to);
    if (residual) {
      Block::decode(to, n, decoded.data());
      if (residual->type == DType::f64)
        keep_lost<double>(x.data(), decoded.data(), *residual, first, n);
      else
        keep_lost<float>(x.data(), decoded.data(), *residual, first, n);
    }
    to += Block::bytes(n);
  }
}

template <class Block>
void decode_blocks(const std::byte* from, const Elements& to, bool summed) {
  std::array<float, Block::kBlock> x;
  const i64 count = to.count();
  for (i64 first = 0; first < count; first += Block::kBlock) {
    const i64 n = std::min(Block::kBlock, count - first);
    Block::decode(from, n, x.data());
    with_type(to.type, [&]<class T>(T) { store<T>(x.data(), to, first, n, summed); });
    from += Block::bytes(n);
  }
}

void copy_out(const Elements& from, std::byte* to) {
  const i64 size = size_of(from.type);
  with_type(from.type, [&]<class T>(T) {
    for_each_run<T>(from, 0, from.count(), [&](const T* run, i64 offset, i64 length) {
      std::memcpy(to + offset * size, run, static_cast<size_t>(length * size));
    });
  });
}

void copy_in(const std::byte* from, const Elements& to, bool summed) {
  with_type(to.type, [&]<class T>(T) {
    for_each_run<T>(to, 0, to.count(), [&](T* run, i64 offset, i64 length) {
      const std::byte* values = from + offset * static_cast<i64>(sizeof(T));
      if (!summed) std::memcpy(run, values, static_cast<size_t>(length) * sizeof(T));
      for (i64 i = 0; summed && i < length; ++i) {
        T value;
        std::memcpy(&value, values + static_cast<size_t>(i) * sizeof(T), sizeof value);
        add(run[i], value);
      }
    });
  });
}

}  // namespace

std::string_view name_of(Codec codec) {
  constexpr std::array<std::string_view, kCodecs> kNames = {"none",  "bf16", "fp8",         "int8",         "int4",
                                                            "zfp16", "zfp8", "top-1-of-32", "top-1-of-128", "lossless"};
  return kNames[static_cast<size_t>(codec)];
}

bool is_exact(Codec codec, DType type) {
  return codec == Codec::none || codec == Codec::lossless || (codec == Codec::bf16 && type == DType::bf16);
}

bool keeps_largest(Codec codec) { return codec == Codec::top_32 || codec == Codec::top_128; }

i64 block_elements(Codec codec) {
  i64 elements = 1;
  if (codec != Codec::none && codec != Codec::lossless && codec != Codec::bf16)
    with_block(codec, [&]<class Block>(Block) { elements = Block::kBlock; });
  return elements;
}

i64 encoded_bytes(Codec codec, DType type, i64 elements) {
  if (codec == Codec::none) return elements * size_of(type);
  if (codec == Codec::lossless) return lossless_bound(type, elements);
  i64 bytes = 0;
  with_block(codec, [&]<class Block>(Block) { bytes = bytes_of<Block>(elements); });
  return bytes;
}

i64 encode(Codec codec, const Elements& from, std::span<std::byte> to, const Elements* residual) {
  const i64 bytes = encoded_bytes(codec, from.type, from.count());
  check(bytes <= static_cast<i64>(to.size()), "codecs: {} of {} elements needs {} bytes, not {}", name_of(codec),
        from.count(), bytes, to.size());
  if (from.count() == 0) return 0;
  if (codec == Codec::lossless) return encode_lossless(from, to);
  if (codec == Codec::none) {
    copy_out(from, to.data());
    return bytes;
  }
  if (residual)
    check(residual->count() == from.count() && residual->type != DType::bf16,
          "codecs: a residual of {} {} elements for {}", residual->count(), name_of(residual->type), from.count());
  with_block(codec, [&]<class Block>(Block) { encode_blocks<Block>(from, to.data(), residual); });
  return bytes;
}

void decode(Codec codec, std::span<const std::byte> from, const Elements& to, bool summed) {
  const i64 bytes = encoded_bytes(codec, to.type, to.count());
  if (codec != Codec::lossless || to.count() == 0)
    check(static_cast<i64>(from.size()) == (to.count() == 0 ? 0 : bytes),
          "codecs: {} of {} elements has {} bytes, not {}", name_of(codec), to.count(), bytes, from.size());
  if (to.count() == 0) return;
  if (codec == Codec::lossless) return decode_lossless(from, to, summed);
  if (codec == Codec::none) return copy_in(from.data(), to, summed);
  with_block(codec, [&]<class Block>(Block) { decode_blocks<Block>(from.data(), to, summed); });
}

}  // namespace switchyard::codecs
