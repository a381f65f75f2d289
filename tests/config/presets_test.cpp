#include "config/presets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"

namespace switchyard::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Presets, there_are_ten_published_cases) { EXPECT_THAT(parallel_preset_names(), SizeIs(10)); }

TEST(Presets, buckets_fall_from_32768_to_4096_and_strategies_use_all_ranks) {
  for (const std::string& name : parallel_preset_names()) {
    const ParallelPreset preset = parallel_preset(name, 32768);
    const bool github = name.ends_with("github");
    ASSERT_EQ(preset.buckets.size(), github ? 4u : 3u) << name;
    EXPECT_EQ(preset.buckets[0].max_length, 32768);
    EXPECT_EQ(preset.buckets[1].max_length, 16384);
    EXPECT_EQ(preset.buckets[preset.buckets.size() - 2].max_length, github ? 8192 : 16384);
    EXPECT_EQ(preset.buckets.back().max_length, 4096);
    EXPECT_THAT(name, HasSubstr(fmt::format("-{}gpu-", preset.ranks)));
  }
}

TEST(Presets, the_published_order_longest_shortest_then_between_is_read_by_length) {
  EXPECT_THAT(parallel_preset("hotspa/7b-16gpu-commoncrawl", 32768).buckets,
              ElementsAre(PresetBucket{32768, "2,4,2"}, PresetBucket{16384, "4,4,1"}, PresetBucket{4096, "16,1,1"}));
  EXPECT_THAT(parallel_preset("hotspa/32b-32gpu-github", 32768).buckets,
              ElementsAre(PresetBucket{32768, "1,16,2"}, PresetBucket{16384, "2,8,2"}, PresetBucket{8192, "4,4,2"},
                          PresetBucket{4096, "4,2,4"}));
}

TEST(Presets, a_short_context_drops_the_buckets_above_it) {
  EXPECT_THAT(parallel_preset("hotspa/7b-8gpu-github", 16384).buckets,
              ElementsAre(PresetBucket{16384, "2,2,2"}, PresetBucket{8192, "4,2,1"}, PresetBucket{4096, "8,1,1"}));
  EXPECT_THAT(parallel_preset("hotspa/7b-8gpu-github", 6000).buckets,
              ElementsAre(PresetBucket{6000, "4,2,1"}, PresetBucket{4096, "8,1,1"}));
  EXPECT_THAT(parallel_preset("hotspa/7b-8gpu-github", 4096).buckets, ElementsAre(PresetBucket{4096, "8,1,1"}));
  EXPECT_THAT(parallel_preset("hotspa/7b-8gpu-github", 100).buckets, ElementsAre(PresetBucket{100, "8,1,1"}));
}

TEST(Presets, an_unknown_name_says_the_nearest_or_all) {
  EXPECT_EQ(
      message_of([] { parallel_preset("hotspa/7b-16gpu-comoncrawl", 4096); }),
      "parallel.preset = \"hotspa/7b-16gpu-comoncrawl\" is unknown. Did you mean \"hotspa/7b-16gpu-commoncrawl\"?");
  EXPECT_THAT(message_of([] { parallel_preset("fast", 4096); }), HasSubstr("Use one of hotspa/7b-8gpu-commoncrawl, "));
}

TEST(Presets, a_context_above_the_published_one_is_refused) {
  EXPECT_EQ(message_of([] { parallel_preset("hotspa/7b-8gpu-github", 65536); }),
            "parallel.preset = \"hotspa/7b-8gpu-github\" goes up to 32768 tokens, but batch.context = 65536. Lower the "
            "context, or write "
            "[[bucket]] "
            "entries.");
}

}  // namespace
}  // namespace switchyard::config
