#include "config/names_elsewhere.hpp"

#include <algorithm>
#include <array>

namespace switchyard::config {
namespace {

struct Name {
  std::string_view key, instead;
};
constexpr std::string_view kContext = "Documents are divided over ranks by ring, ulysses or both.";
constexpr std::string_view kSharded = "Sharded data parallelism is dp with zero=3.";
constexpr std::string_view kChunks = "Several chunks of layers for each stage are schedule=interleaved with chunks.";
constexpr std::array<Name, 6> kNames{{{"cp", kContext},
                                      {"sp",
                                       "Documents are divided over ranks by ulysses, ring or both; beside tp, "
                                       "sequence_parallel is on."},
                                      {"fsdp", kSharded},
                                      {"dp_shard", kSharded},
                                      {"vp", kChunks},
                                      {"vpp", kChunks}}};

}  // namespace

std::string_view instead_of(std::string_view key) {
  const auto found = std::ranges::find(kNames, key, &Name::key);
  return found == kNames.end() ? std::string_view() : found->instead;
}

}  // namespace switchyard::config
