#include "train/profile_codecs.hpp"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "codecs/codec.hpp"

namespace switchyard::train {
namespace {

constexpr i64 kElements = i64{1} << 16, kFew = 64;

}  // namespace

std::map<std::string, cluster::CodecRates> profile_codecs(MeasurementBarrier& barrier, SecondsClock clock) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements), sum(kElements);
  for (float& value : values) value = normal(random);
  const codecs::Elements from{.data = reinterpret_cast<std::byte*>(values.data()), .columns = kElements},
      to{.data = reinterpret_cast<std::byte*>(sum.data()), .columns = kElements};
  const auto measured = [&](codecs::Codec codec, i64 elements) {
    codecs::Elements some = from, sum_of_some = to;
    some.columns = sum_of_some.columns = elements;
    std::vector<std::byte> message(static_cast<size_t>(codecs::encoded_bytes(codec, DType::f32, elements)));
    i64 bytes = 0;
    const double encoding = barrier.least_of([&] { bytes = codecs::encode(codec, some, message); }, clock);
    const std::span<const std::byte> made = std::span(message).first(static_cast<size_t>(bytes));
    return std::pair(encoding, barrier.least_of([&] { codecs::decode(codec, made, sum_of_some, true); }, clock));
  };
  std::map<std::string, cluster::CodecRates> rates;
  for (int i = 0; i < codecs::kCodecs; ++i) {
    const auto codec = static_cast<codecs::Codec>(i);
    if (codec == codecs::Codec::none) continue;
    const auto [encoding, decoding] = measured(codec, kElements);
    const auto [encoding_few, decoding_few] = measured(codec, kFew);
    // Time of a short message beyond its share of a long one.
    const double share = static_cast<double>(kFew) / kElements;
    const double message = (encoding_few + decoding_few - share * (encoding + decoding)) / 2;
    rates[std::string(name_of(codec))] = {.encode = {4 * kElements / encoding},
                                          .decode = {4 * kElements / decoding},
                                          .message = {std::max(0.0, message)}};
  }
  return rates;
}

}  // namespace switchyard::train
