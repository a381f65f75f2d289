#include "config/schedule_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "../message_of.hpp"
#include "schedule/interleaved.hpp"
#include "schedule/zero_bubble.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const schedule::Costs kUnits{.at = {{Seconds{1}, Seconds{1}, Seconds{1}}}};

std::string error(const std::string& text) {
  return message_of([&] { schedule_from_json(text, "s.json"); });
}

/// A document with these stages.
std::string with_stages(const std::string& stages, int mbs = 1) {
  return fmt::format(R"({{"micro_batches": {}, "stages": [{}]}})", mbs, stages);
}

TEST(ScheduleJson, a_schedule_survives_printing_and_reading) {
  for (const schedule::Schedule& made : {schedule::interleaved(3, 7, 3), schedule::zero_bubble(4, 8, 4, {kUnits}),
                                         schedule::zero_bubble_v(3, 5, 6, {kUnits}), schedule::interleaved(2, 0, 2)}) {
    EXPECT_EQ(schedule_from_json(to_json(made), "s.json"), made);
  }
}

TEST(ScheduleJson, the_page_has_a_line_per_stage_as_the_document_shows) {
  const std::string page = to_json(schedule::zero_bubble(2, 3, 2, {kUnits}));
  EXPECT_EQ(page,
            "{\n"
            "  \"micro_batches\": 3,\n"
            "  \"chunks\": 1,\n"
            "  \"placement\": \"loop\",\n"
            "  \"stages\": [\n"
            "    \"F0 F1 B0 W0 F2 B1 W1 B2 W2\",\n"
            "    \"F0 B0 F1 B1 W0 F2 B2 W1 W2\"\n"
            "  ]\n"
            "}\n");
  std::ostringstream document;
  document << std::ifstream(SWITCHYARD_SOURCE "/docs/schedule-format.md").rdbuf();
  EXPECT_THAT(document.str(), HasSubstr("```json\n" + page + "```"));
}

TEST(ScheduleJson, chunks_and_placement_are_read) {
  const auto made = schedule_from_json(R"({"micro_batches": 1, "chunks": 2, "placement": "v",)"
                                       R"( "stages": ["F0 F0.1 B0.1 B0 W0 W0.1", " F0  F0.1 BW0.1\n BW0 "]})",
                                       "s.json");
  EXPECT_EQ(made.chunks, 2);
  EXPECT_EQ(made.placement, schedule::Placement::v);
  EXPECT_EQ(made.order[1][2], (schedule::Item{Pass::BW, 1, 0}));
}

TEST(ScheduleJson, a_deadlock_prints_the_cycle) {
  EXPECT_EQ(error(with_stages(R"("F0 BW0 F1 BW1", "F0 F1 BW0 BW1")", 2)),
            "s.json: stages can't run: schedule: the order deadlocks: stage 1 at F1 waits for F1 of stage 0; stage 0 "
            "at BW0 waits for BW0 of "
            "stage 1. Fix the order of the items.");
}

TEST(ScheduleJson, errors_name_their_path_and_the_remedy) {
  EXPECT_EQ(error(with_stages(R"("F0 BW0", "F0")")),
            "s.json: stages can't run: schedule: stage 1 never runs B0 (or BW). Fix the order of the items.");
  EXPECT_EQ(
      error(with_stages(R"("F0 Y0")")),
      "s.json: stages[0] has \"Y0\" as item 1; write F, B, W or BW, the micro-batch, and for chunks above 0 a dot "
      "and the chunk: "
      "\"F3\", \"W3.1\".");
  for (const char* word : {"F", "F-1", "F0.", "F0.x", "F0x", "F99999999999", "f0", ".", "F 0"}) {
    EXPECT_THAT(error(with_stages(fmt::format("\"{}\"", word))), StartsWith("s.json: stages[0] has \"")) << word;
  }
  EXPECT_EQ(error(with_stages(R"("F0 F1")")),
            "s.json: stages[0] has \"F1\", but \"micro_batches\" is 1: their numbers begin at 0. Raise it, or take the "
            "item out.");
  EXPECT_EQ(
      error(with_stages(R"("F0 F0.1")")),
      "s.json: stages[0] has \"F0.1\", but \"chunks\" is 1: their numbers begin at 0. Raise it, or take the item out.");
  EXPECT_EQ(error(with_stages("")), "s.json: stages has 0 stages; there must be 1 to 16384.");
  EXPECT_EQ(error(with_stages("5")), "s.json: stages[0] is 5; a string is needed.");
  EXPECT_EQ(error(R"({"stages": []})"), "s.json: the document has no key \"micro_batches\".");
  EXPECT_EQ(error(R"({"micro_batches": 0, "stages": [], "chunk": 2})"),
            "s.json: the document has an unknown key \"chunk\". Did you mean \"chunks\"?");
  EXPECT_EQ(error(R"({"micro_batches": 0, "stages": [""], "placement": "w"})"),
            "s.json: placement = \"w\" is unknown. Use one of loop, v.");
  EXPECT_EQ(error(R"({"micro_batches": 0, "stages": [""], "chunks": 0})"),
            "s.json: chunks = 0 must lie between 1 and 1024.");
  EXPECT_THAT(error("{"), StartsWith("s.json: this is not valid JSON: parse error at line 1"));
}

TEST(ScheduleJson, a_huge_number_of_micro_batches_takes_no_memory) {
  EXPECT_THAT(error(with_stages(R"("F0 BW0")", 1 << 30)), HasSubstr("stage 0 never runs F1"));
}

TEST(ScheduleJson, any_damage_to_a_file_ends_in_a_schedule_or_a_message) {
  const std::string good = to_json(schedule::zero_bubble_v(2, 4, 4, {kUnits}));
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
