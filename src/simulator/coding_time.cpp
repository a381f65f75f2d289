#include "simulator/coding_time.hpp"

#include <algorithm>
#include <string>

namespace switchyard::simulator {

void CodingTime::add(codecs::Codec codec, DType type, i64 elements, int from, int to, bool feedback) {
  if (codec == codecs::Codec::none) return;
  const auto bytes = static_cast<double>(elements * size_of(type));
  const auto rates = device_.codecs.find(std::string(name_of(codec)));
  if (rates != device_.codecs.end()) {
    const double message = rates->second.message.count, decoding = bytes / rates->second.decode.count + message;
    seconds_[from] += bytes / rates->second.encode.count + message + (feedback ? decoding : 0);
    seconds_[to] += decoding;
    return;
  }
  const auto encoded = static_cast<double>(codecs::encoded_bytes(codec, type, elements));
  const double coding = (bytes + encoded) / device_.rates_of(type).memory.count;
  seconds_[from] += feedback ? 2 * coding : coding;
  seconds_[to] += coding;
}

double CodingTime::in_turn() const {
  double sum = 0;
  for (const auto& [rank, seconds] : seconds_) sum += seconds;
  return sum;
}

double CodingTime::seconds() const {
  double most = 0;
  for (const auto& [rank, seconds] : seconds_) most = std::max(most, seconds);
  return most;
}

}  // namespace switchyard::simulator
