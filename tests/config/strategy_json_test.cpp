#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "../message_of.hpp"
#include "config/strategy.hpp"

namespace switchyard::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string error(const std::string& text) {
  return message_of([&] { strategy_from_json(text, "s.json"); });
}

/// A document whose only stage is `stage`.
std::string with_stage(const std::string& stage) { return R"({"groups": [{"stages": [)" + stage + "]}]}"; }

Strategy uneven() {
  Strategy strategy;
  strategy.name = "uneven \"é\"\n";
  strategy.groups = {{.stages = {{{0, 1, 2, 3}, {{StageAxis::ulysses, 2}, {StageAxis::inner, 2}}, 0, 20},
                                 {{5, 4}, {{StageAxis::outer, 2}}, 20, 32}}},
                     {.stages = {{{6, 7, 8, 9}, {{StageAxis::data, 2}, {StageAxis::depth, 2}}, 0, 32}}}};
  strategy.splits = {{"*.down_proj.weight", {{1, 2}, {0, 2}}},
                     {"*.up_proj.weight", {{1, 2, StageAxis::inner}, {0, 0, StageAxis::inner}}},
                     {"lm_head.weight", {}}};
  strategy.recompute = Recompute::selective;
  strategy.schedule = ScheduleKind::gpipe;
  strategy.sequence_parallel = false;
  strategy.micro_batch_tokens = 8192;
  strategy.chunks = 1;
  strategy.activation_cap = 5;
  strategy.micro_batch_sequences = 3;
  strategy.zero = 3;
  strategy.every = 4;
  strategy.paired = true;
  strategy.packing = Packing::stream;
  strategy.ring_degree = RingDegree::uniform;
  strategy.exchange = KeyPassing::ring;
  strategy.compression = {.gradients = codecs::Codec::int4,
                          .pipeline = codecs::Codec::zfp16,
                          .activations = codecs::Codec::zfp8,
                          .ulysses = codecs::Codec::fp8,
                          .keys = codecs::Codec::bf16,
                          .gathers = codecs::Codec::fp8,
                          .switches = codecs::Codec::lossless,
                          .error_feedback = ErrorFeedback::on,
                          .links = CompressedLinks::hosts,
                          .smallest = {12345}};
  return strategy;
}

TEST(StrategyJson, a_strategy_survives_printing_and_reading) {
  EXPECT_EQ(strategy_from_json(to_json(uneven()), "s.json"), uneven());
  const Strategy plain = strategy_from_spec("2,4,2", 16, 32);
  EXPECT_EQ(strategy_from_json(to_json(plain), "s.json"), plain);
  Strategy by_hand = plain;
  by_hand.order = schedule::gpipe(2, 3);
  EXPECT_EQ(strategy_from_json(to_json(by_hand), "s.json"), by_hand);
}

TEST(StrategyJson, the_page_has_a_line_per_stage) {
  EXPECT_EQ(to_json(strategy_from_spec("1,2,2", 4, 8)),
            "{\n"
            "  \"name\": \"1,2,2\",\n"
            "  \"groups\": [\n"
            "    {\"stages\": [\n"
            "      {\"ranks\": [0, 1], \"mesh\": {\"outer\": 2}, \"layers\": [0, 4]},\n"
            "      {\"ranks\": [2, 3], \"mesh\": {\"outer\": 2}, \"layers\": [4, 8]}\n"
            "    ]}\n"
            "  ],\n"
            "  \"splits\": [],\n"
            "  \"recompute\": \"gathers\",\n"
            "  \"schedule\": \"1f1b\",\n"
            "  \"chunks\": 1,\n"
            "  \"activation_cap\": 0,\n"
            "  \"sequence_parallel\": true,\n"
            "  \"micro_batch_tokens\": 0,\n"
            "  \"micro_batch_sequences\": 0,\n"
            "  \"paired\": false,\n"
            "  \"packing\": \"balanced\",\n"
            "  \"ring_degree\": \"document\",\n"
            "  \"exchange\": \"gather\",\n"
            "  \"zero\": 1,\n"
            "  \"every\": 1\n"
            "}\n");
}

TEST(StrategyJson, only_groups_are_needed) {
  const Strategy strategy =
      strategy_from_json(R"({"groups": [{"stages": [{"ranks": [0], "layers": [0, 4]}]}]})", "s.json");
  EXPECT_EQ(strategy.name, "s.json");
  EXPECT_EQ(strategy.groups[0].stages[0].mesh, StageMesh());
  EXPECT_THAT(strategy.groups[0].stages[0].ranks, ElementsAre(0));
  EXPECT_EQ(strategy.schedule, ScheduleKind::one_f_one_b);
  EXPECT_TRUE(strategy.sequence_parallel);
}

TEST(StrategyJson, codecs_have_the_choices_of_a_job) {
  const auto compressed = [](const std::string& table) {
    return R"({"groups": [{"stages": [{"ranks": [0], "layers": [0, 4]}]}], "compression": )" + table + "}";
  };
  EXPECT_EQ(strategy_from_json(compressed(R"({"pipeline": "bf16"})"), "s.json").compression,
            Compression{.pipeline = codecs::Codec::bf16});
  EXPECT_EQ(error(compressed(R"({"switches": "int8"})")),
            "s.json: compression.switches = \"int8\" is unknown. Use one of none, lossless.");
  EXPECT_EQ(strategy_from_json(compressed(R"({"gradients": "top-1-of-32"})"), "s.json").compression,
            Compression{.gradients = codecs::Codec::top_32});
  EXPECT_EQ(error(compressed(R"({"error_feedback": "yes"})")),
            "s.json: compression.error_feedback = \"yes\" is unknown. Use one of auto, on, off.");
  EXPECT_THAT(error(compressed(R"({"keys": "top-1-of-32"})")), HasSubstr("Use one of none, bf16, fp8, int8"));
  EXPECT_THAT(error(compressed(R"({"pipeline": "int4"})")), HasSubstr("Use one of none, bf16, fp8, int8"));
  EXPECT_THAT(error(compressed(R"({"gradient": "int4"})")), HasSubstr("Did you mean \"gradients\"?"));
}

TEST(StrategyJson, an_unknown_key_names_the_nearest) {
  EXPECT_EQ(error(R"({"groups": [], "recomptue": "none"})"),
            "s.json: the document has an unknown key \"recomptue\". Did you mean \"recompute\"?");
  EXPECT_EQ(error(with_stage(R"({"rank": [0], "layers": [0, 4]})")),
            "s.json: groups[0].stages[0] has an unknown key \"rank\". Did you mean \"ranks\"?");
  EXPECT_EQ(error(with_stage(R"({"temperature": 1})")),
            "s.json: groups[0].stages[0] has an unknown key \"temperature\". Known are ranks, mesh, layers.");
}

TEST(StrategyJson, a_missing_key_and_a_wrong_type_name_their_path) {
  EXPECT_EQ(error("{}"), "s.json: the document has no key \"groups\".");
  EXPECT_EQ(
      error("[]"),
      "s.json: the document is a list; an object is needed, with the keys name, groups, splits, recompute, schedule, "
      "chunks, activation_cap, sequence_parallel, micro_batch_tokens, micro_batch_sequences, paired, packing, "
      "ring_degree, exchange, compression, zero, every, order.");
  EXPECT_EQ(error(with_stage(R"({"ranks": [0], "mesh": {"outer": "1"}, "layers": [0, 4]})")),
            "s.json: groups[0].stages[0].mesh.outer is \"1\"; a whole number is needed.");
  EXPECT_EQ(error(with_stage(R"({"ranks": [0, 1.5], "layers": [0, 4]})")),
            "s.json: groups[0].stages[0].ranks[1] is 1.5; a whole number is needed.");
  EXPECT_EQ(error(with_stage(R"({"ranks": 0, "layers": [0, 4]})")),
            "s.json: groups[0].stages[0].ranks is 0; a list is needed.");
  EXPECT_EQ(
      error(with_stage(R"({"ranks": [0], "layers": [0]})")),
      "s.json: groups[0].stages[0].layers has 1 numbers; two are needed: the first layer and the one after the last.");
  EXPECT_EQ(error(R"({"groups": [], "name": 5})"), "s.json: name is 5; a string is needed.");
  EXPECT_EQ(error(R"({"groups": [], "sequence_parallel": 1})"),
            "s.json: sequence_parallel is 1; true or false is needed.");
  EXPECT_EQ(error(R"({"groups": [], "schedule": "zb"})"),
            "s.json: schedule = \"zb\" is unknown. Use one of gpipe, 1f1b, interleaved, zero-bubble, zb-v, zeropp.");
  EXPECT_EQ(error(R"({"groups": [], "splits": [{"parameter": "*", "cuts": [{"dim": 0}]}]})"),
            "s.json: splits[0].cuts[0] has no key \"parts\".");
  EXPECT_EQ(error(R"({"groups": [], "splits": [{"parameter": "*", "cuts": [{"dim": 0, "axis": "ulysses"}]}]})"),
            "s.json: splits[0].cuts[0].axis = \"ulysses\" cuts no weights. Use outer or inner.");
}

TEST(StrategyJson, numbers_out_of_range_are_refused) {
  for (const char* size : {"0", "-1", "99999999999", "18446744073709551615", "-9223372036854775808"}) {
    EXPECT_EQ(error(with_stage(fmt::format(R"({{"ranks": [0], "mesh": {{"outer": {}}}, "layers": [0, 4]}})", size))),
              fmt::format("s.json: groups[0].stages[0].mesh.outer = {} must lie between 1 and 1073741824.", size));
  }
  EXPECT_THAT(
      error(with_stage(R"({"ranks": [0], "mesh": {"data": 123456789012345678901234567890}, "layers": [0, 4]})")),
      HasSubstr("a whole number is needed"));
}

TEST(StrategyJson, keys_of_old_files_name_the_new_ones) {
  EXPECT_EQ(
      error(with_stage(R"({"ranks": [0, 1], "tp": 2, "layers": [0, 4]})")),
      "s.json: groups[0].stages[0].tp is no key any more. Write \"mesh\": {\"data\": ..., \"outer\": ...} instead.");
  EXPECT_EQ(error(R"({"groups": [{"dp": 1, "stages": []}]})"),
            "s.json: groups[0].dp is no key any more. Write \"mesh\": {\"data\": ...} in every stage instead.");
  EXPECT_EQ(error(with_stage(R"({"ranks": [0], "mesh": {"tokens": 1}, "layers": [0, 4]})")),
            "s.json: groups[0].stages[0].mesh has an unknown axis \"tokens\". Known are data, depth, ring, ulysses, "
            "outer, "
            "inner.");
}

TEST(StrategyJson, broken_text_says_where) {
  EXPECT_THAT(error("{\"groups\": [}"), StartsWith("s.json: this is not valid JSON: parse error at line 1, column 13"));
  EXPECT_THAT(error("{\"groups\": 1e999}"), StartsWith("s.json: this is not valid JSON: number overflow"));
  EXPECT_THAT(error(""), StartsWith("s.json: this is not valid JSON"));
  EXPECT_THAT(error("{\"name\": \"\xff\xfe\"}"), StartsWith("s.json: this is not valid JSON"));
  EXPECT_THAT(error(std::string(1 << 20, '[')), StartsWith("s.json: this is not valid JSON"));
  std::string deep = std::string(1 << 18, '[') + std::string(1 << 18, ']');
  EXPECT_THAT(error("{\"groups\": " + deep + "}"), HasSubstr("groups[0] is a list; an object is needed"));
}

TEST(StrategyJson, any_damage_to_a_file_ends_in_a_strategy_or_a_message) {
  const std::string good = to_json(uneven());
  std::mt19937 random(7);
  int messages = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string text = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      const size_t place = random() % text.size();
      if (random() % 2 == 0)
        text[place] = static_cast<char>(random() % 256);
      else
        text.erase(place, random() % 8);
    }
    messages += error(text) != "no error";
  }
  EXPECT_GT(messages, 600);
}

}  // namespace
}  // namespace switchyard::config
