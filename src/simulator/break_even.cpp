#include "simulator/break_even.hpp"

#include "simulator/coding_time.hpp"

namespace switchyard::simulator {
namespace {

constexpr i64 kLeast = 256, kMost = i64{64} << 20;

bool gains(codecs::Codec codec, DType type, i64 bytes, const cluster::Device& device, const cluster::LinkClass& link) {
  const auto seconds = [&](i64 sent) {
    const auto count = static_cast<double>(sent);
    return count / (link.pair_rate().count * link.curve.at(count));
  };
  const i64 elements = bytes / size_of(type);
  CodingTime coding(device);
  coding.add(codec, type, elements, 0, 1);
  return seconds(codecs::encoded_bytes(codec, type, elements)) + coding.in_turn() < seconds(bytes);
}

}  // namespace

std::optional<i64> break_even(codecs::Codec codec, DType type, const cluster::Hardware& hardware, cluster::Link link) {
  if (codecs::is_exact(codec, type)) return std::nullopt;
  std::optional<i64> least;
  for (i64 bytes = kMost; bytes >= kLeast; bytes /= 2) {
    if (!gains(codec, type, bytes, hardware.device, hardware.link(link))) break;
    least = bytes;
  }
  return least;
}

}  // namespace switchyard::simulator
