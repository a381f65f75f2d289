#include "train/profile_codecs.hpp"

#include <random>
#include <vector>

#include "codecs/codec.hpp"

namespace switchyard::train {
namespace {

constexpr i64 kElements = i64{1} << 16;

}  // namespace

std::map<std::string, cluster::CodecRates> profile_codecs(MeasurementBarrier& barrier, SecondsClock clock) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements), sum(kElements);
  for (float& value : values) value = normal(random);
  const codecs::Elements from{.data = reinterpret_cast<std::byte*>(values.data()), .columns = kElements},
      to{.data = reinterpret_cast<std::byte*>(sum.data()), .columns = kElements};
  std::map<std::string, cluster::CodecRates> rates;
  for (int i = 0; i < codecs::kCodecs; ++i) {
    const auto codec = static_cast<codecs::Codec>(i);
    if (codec == codecs::Codec::none || codec == codecs::Codec::top_k) continue;
    std::vector<std::byte> message(static_cast<size_t>(codecs::encoded_bytes(codec, DType::f32, kElements)));
    i64 bytes = 0;
    const double encoding = barrier.least_of([&] { bytes = codecs::encode(codec, from, message); }, clock);
    const std::span<const std::byte> made = std::span(message).first(static_cast<size_t>(bytes));
    const double decoding = barrier.least_of([&] { codecs::decode(codec, made, to, true); }, clock);
    rates[std::string(name_of(codec))] = {{4 * kElements / encoding}, {4 * kElements / decoding}};
  }
  return rates;
}

}  // namespace switchyard::train
