#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "config/job_keys.hpp"

namespace switchyard::config {
namespace {

using testing::HasSubstr;

TEST(JobReference, help_and_page_have_every_key_with_its_meaning) {
  const std::string help = help_keys(), page = job_reference_markdown();
  const auto expect_key = [&](const KeyInfo& key) {
    EXPECT_THAT(help, HasSubstr("\n  " + key.name + "  ("));
    EXPECT_THAT(help, HasSubstr(key.meaning));
    EXPECT_THAT(page, HasSubstr("| `" + key.name + "` |"));
    EXPECT_THAT(page, HasSubstr(key.meaning));
  };
  for (const KeyInfo& key : job_keys()) expect_key(key);
  for (const KeyInfo& key : source_keys()) expect_key(key);
  for (const KeyInfo& key : bucket_keys()) expect_key(key);
}

TEST(JobReference, rows_have_values_units_and_defaults) {
  const std::string page = job_reference_markdown();
  EXPECT_THAT(page, HasSubstr("| `run.steps` | integer at least 1, in steps | required | Optimizer steps. |"));
  EXPECT_THAT(page, HasSubstr("| `optimizer.beta2` | number at least 0 and below 1 | 0.95 |"));
  EXPECT_THAT(page, HasSubstr("| `data.long_documents` | split, clip, error | \"split\" |"));
  EXPECT_THAT(page, HasSubstr("| `run.memory_budget` | memory | \"none\" |"));
  EXPECT_THAT(page, HasSubstr("| `fabric.timeout` | duration | \"30 s\" |"));
  EXPECT_THAT(page, HasSubstr("## [[data.source]], [[validation.source]]\n"));
  EXPECT_THAT(page, HasSubstr("| `weight` | number above 0 | 1.0 |"));
  EXPECT_THAT(page, HasSubstr("## [[bucket]]\n"));
}

TEST(JobReference, the_page_in_docs_is_the_one_the_program_writes) {
  std::ifstream file(SWITCHYARD_SOURCE "/docs/job-reference.md");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string fresh = SWITCHYARD_BINARY "/job-reference.md";
  std::ofstream(fresh) << job_reference_markdown();
  EXPECT_EQ(text.str(), job_reference_markdown())
      << "The keys have changed: copy " << fresh << " to docs/job-reference.md.";
}

}  // namespace
}  // namespace switchyard::config
