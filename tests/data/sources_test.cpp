#include "data/sources.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

using testing::HasSubstr;

class Sources : public testing::Test {
 protected:
  Sources() {
    job_.batch.sequences = 6;
    job_.batch.context = 64;
  }
  // Writes a corpus with this meta.json (none if empty) and adds it to the job.
  void add(const std::string& name, const std::string& meta, double weight = 1) {
    const std::filesystem::path folder = folder_.path() / name;
    std::filesystem::create_directories(folder);
    write_corpus(folder, {4, 6});
    if (!meta.empty()) write_file(folder / "meta.json", meta);
    job_.data.sources.push_back({folder.string(), weight, name});
  }
  std::string refusal() {
    return message_of([&] { open_sources(job_); });
  }

  Scratch folder_;
  config::Job job_;
};

TEST_F(Sources, AreThePathOrTheList) {
  EXPECT_EQ(missing_data(job_), "");
  EXPECT_THAT(refusal(), HasSubstr("data.path is missing. Make a folder with `switchyard data prepare`"));
  add("a", "", 1);
  add("b", "", 2);
  EXPECT_EQ(missing_data(job_), std::nullopt);
  const std::vector<Source> both = open_sources(job_);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].name, "b");
  EXPECT_EQ(both[1].weight, 2);
  std::vector<i64> tokens(2, 0);
  for (const Sequence& sequence : sampler_of(both, job_).batch({}).sequences)
    tokens[static_cast<std::size_t>(sequence.source)] += sequence.count;
  EXPECT_GT(tokens[1], tokens[0]);
  EXPECT_GT(tokens[0], 0);

  job_.data = {};
  job_.data.path = (folder_.path() / "a").string();
  const std::vector<Source> one = open_sources(job_);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].name, "");
  job_.data.path = (folder_.path() / "none").string();
  EXPECT_EQ(missing_data(job_), job_.data.path);
}

TEST_F(Sources, OfDifferentTokenizersAreRefused) {
  add("a", R"({"vocab_size": 100, "tokenizer_sha256": "aa"})");
  add("b", R"({"vocab_size": 100, "tokenizer_sha256": "aa"})");
  EXPECT_EQ(refusal(), "no error");
  add("c", R"({"vocab_size": 100, "tokenizer_sha256": "cc"})");
  EXPECT_EQ(refusal(),
            "data.source: \"a\" and \"c\" were prepared with different tokenizers. Prepare the second one again with "
            "--tokenizer " +
                (folder_.path() / "a").string() + ".");
}

TEST_F(Sources, WithoutChecksumsAreComparedByTheirVocabulary) {
  add("a", R"({"vocab_size": 100, "tokenizer_sha256": "aa"})");
  add("b", "");
  add("c", R"({"vocab_size": 100})");
  const std::vector<Source> sources = open_sources(job_);
  EXPECT_EQ(vocab_size(sources), 100);
  add("d", R"({"vocab_size": 101})");
  EXPECT_THAT(refusal(), HasSubstr("\"a\" and \"d\" were prepared with different tokenizers"));
}

TEST_F(Sources, TheVocabularySizeIsThatOfAnyWithMetadata) {
  add("a", "");
  EXPECT_EQ(vocab_size(open_sources(job_)), std::nullopt);
  add("b", R"({"vocab_size": 7})");
  EXPECT_EQ(vocab_size(open_sources(job_)), 7);
}

TEST_F(Sources, LabelsAreThoseThatCount) {
  add("a", "");
  add("b", "");
  const std::vector<Sequence> sequences{{.document = 1, .count = 6}, {.document = 1, .count = 6, .source = 1}};
  EXPECT_FALSE(masked(open_sources(job_)));
  EXPECT_EQ(labels(open_sources(job_), sequences), 10);
  write_mask(folder_.path() / "b", {1, 1, 1, 1, 1, 0, 0, 1, 1, 0});
  EXPECT_TRUE(masked(open_sources(job_)));
  EXPECT_EQ(labels(open_sources(job_), sequences), 5 + 2);
}

}  // namespace
}  // namespace switchyard::data
