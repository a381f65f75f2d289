#include "simulator/coding_time.hpp"

#include <algorithm>
#include <string>

namespace switchyard::simulator {

void CodingTime::add(codecs::Codec codec, DType type, i64 elements, int from, int to) {
  if (codec == codecs::Codec::none) return;
  const auto bytes = static_cast<double>(elements * size_of(type));
  const auto rates = device_.codecs.find(std::string(name_of(codec)));
  if (rates != device_.codecs.end()) {
    seconds_[from] += bytes / rates->second.encode.count;
    seconds_[to] += bytes / rates->second.decode.count;
    return;
  }
  const auto encoded = static_cast<double>(codecs::encoded_bytes(codec, type, elements));
  for (const int rank : {from, to}) seconds_[rank] += (bytes + encoded) / device_.rates_of(type).memory.count;
}

double CodingTime::seconds() const {
  double most = 0;
  for (const auto& [rank, seconds] : seconds_) most = std::max(most, seconds);
  return most;
}

}  // namespace switchyard::simulator
